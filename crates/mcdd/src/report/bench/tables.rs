//! Tables as Markdown, CSV and LaTeX.

use std::fmt::Write as _;

use super::{METRICS, Metric, Stat, Study, metric};
use crate::error::is_harmful;
use crate::protocol::published;

/// `97.55 ± 0.31`, followed by the paper's number and the difference, and by the number of folds if others have more.
fn shown(stat: Option<Stat>, paper: Option<f64>, most: usize) -> String {
    let Some(stat) = stat else { return "n/a".into() };
    let mut text = format!("{:.2}", stat.mean);
    if let Some(std) = stat.std {
        let _ = write!(text, " ± {std:.2}");
    }
    if let Some(paper) = paper {
        let _ = write!(text, " ({paper:.2}, {})", difference(stat.mean - paper));
    }
    if stat.n < most {
        let _ = write!(text, " of {}", stat.n);
    }
    text
}

/// A difference with its sign.
pub(super) fn difference(d: f64) -> String {
    // No minus sign for a number that is printed as 0.
    if format!("{d:.2}") == "-0.00" { "+0.00".into() } else { format!("{d:+.2}").replace('-', "−") }
}

/// Escapes text for Markdown.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' => out.push_str("&#124;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' => out.extend(['\\', c]),
            c if is_harmful(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// The largest number of folds in a row.
pub(super) fn most(row: &[Option<Stat>]) -> usize {
    row.iter().flatten().map(|s| s.n).max().unwrap_or(0)
}

/// All numbers as Markdown: means, then each metric by class.
pub fn markdown(study: &Study) -> String {
    let mut out = format!("# {}\n\n{}.\n\n", plain(&study.about.title), plain(&study.header()));
    out.push_str(&format!(
        "Means in percent ± standard deviation over {}; the best of a column or row is bold. ID rows are positive.",
        study.words().runs
    ));
    if let Some(whose) = study.papers() {
        out.push_str(&format!(" In brackets: {whose}, and the difference."));
    }
    for remark in study.remarks() {
        out.push_str(&format!(" Note: {}.", plain(&remark)));
    }
    out.push('\n');
    let titles: Vec<&str> = METRICS.iter().map(|m| m.title).collect();
    let _ = write!(
        out,
        "\n## Mean over the {}\n\n| method | {} | {} |\n|---{}|---|\n",
        study.words().rows,
        titles.join(" | "),
        study.words().runs,
        "|---".repeat(METRICS.len())
    );
    let columns: Vec<Vec<Option<Stat>>> =
        METRICS.iter().map(|m| study.methods.iter().map(|method| study.mean(method, m)).collect()).collect();
    let bold: Vec<Vec<bool>> = columns.iter().map(|c| study.best(&study.methods, c)).collect();
    for (i, method) in study.methods.iter().enumerate() {
        let cells: Vec<String> = METRICS
            .iter()
            .enumerate()
            .map(|(j, m)| strong(&shown(columns[j][i], study.paper(method, None, m), 0), bold[j][i]))
            .collect();
        let _ = writeln!(out, "| {} | {} | {} |", plain(method), cells.join(" | "), study.tested(method));
    }
    for m in &METRICS {
        let _ = write!(
            out,
            "\n## {}\n\n| {} | {} |\n|---{}|\n",
            title(m),
            study.words().row,
            study.methods.iter().map(|m| plain(m)).collect::<Vec<_>>().join(" | "),
            "|---".repeat(study.methods.len())
        );
        for class in study.classes.iter().map(|c| Some(*c)).chain([None]) {
            let row = row(study, class, m);
            let (bold, most) = (study.best(&study.methods, &row), most(&row));
            let cells: Vec<String> = study
                .methods
                .iter()
                .enumerate()
                .map(|(i, method)| strong(&shown(row[i], study.paper(method, class, m), most), bold[i]))
                .collect();
            let _ = writeln!(out, "| {} | {} |", class.map_or("**mean**".into(), plain), cells.join(" | "));
        }
    }
    let failures = study.failures();
    if !failures.is_empty() {
        out.push_str("\n## Failed\n\n");
        failures.iter().for_each(|f| {
            let _ = writeln!(out, "- {}", plain(f));
        });
    }
    out
}

/// The title of a metric, capitalized.
pub(super) fn title(m: &Metric) -> String {
    let mut letters = m.title.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The methods' numbers for a class, or their means.
pub(super) fn row(study: &Study, class: Option<&str>, m: &Metric) -> Vec<Option<Stat>> {
    let number = |method: &&str| class.map_or_else(|| study.mean(method, m), |c| study.class(method, c, m));
    study.methods.iter().map(number).collect()
}

fn strong(text: &str, bold: bool) -> String {
    match (bold, text.split_once(' ')) {
        (false, _) => text.to_owned(),
        (true, None) => format!("**{text}**"),
        (true, Some((number, rest))) => format!("**{number}** {rest}"),
    }
}

/// A line for each method, class and metric; the mean over the classes has no class.
pub fn csv(study: &Study) -> String {
    let mut out = csv::Writer::from_writer(Vec::new());
    // Writing into memory does not fail.
    let _ = out.write_record([
        "data",
        "coverage",
        "method",
        "left_out",
        "metric",
        "mean",
        "std",
        "folds",
        "paper",
        "difference",
    ]);
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.4}"));
    for method in &study.methods {
        for class in study.classes.iter().map(|c| Some(*c)).chain([None]) {
            for m in &METRICS {
                let stat = class.map_or_else(|| study.mean(method, m), |c| study.class(method, c, m));
                let Some(stat) = stat else { continue };
                let paper = study.paper(method, class, m);
                let _ = out.write_record([
                    &study.about.title,
                    &study.about.coverage,
                    *method,
                    class.unwrap_or_default(),
                    m.key,
                    &format!("{:.4}", stat.mean),
                    &number(stat.std),
                    &stat.n.to_string(),
                    &number(paper),
                    &number(paper.map(|p| stat.mean - p)),
                ]);
            }
        }
    }
    out.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Escapes text for LaTeX.
fn tex(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => out.extend(['\\', c]),
            // After a line break these would be parsed as its argument.
            '[' | ']' | '*' => out.extend(['{', c, '}']),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            '|' => out.push_str("\\textbar{}"),
            '"' => out.push_str("\\textquotedbl{}"),
            c if is_harmful(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// The metrics of the paper's Table 2.
pub(super) const PRINTED: [&str; 5] = ["accuracy", "tnr85", "auroc", "aupr_id", "detection_accuracy"];

/// The paper's Table 2 with our numbers, the paper's numbers and the differences, or the same table of all methods if the
/// paper has no numbers for the data; then the means of all methods.
pub fn latex(study: &Study) -> String {
    let head = ["Classification acc.", "TNR at TPR 85\\%", "AUROC", "AUPR", "Detection acc."].join(" & ");
    let mut out = format!("% {}.\n% Needs \\usepackage{{multirow,booktabs,graphicx}}.\n", tex(&study.header()));
    study.remarks().iter().for_each(|r| out.push_str(&format!("% Note: {}.\n", tex(r))));
    // Beside the paper's numbers the methods that it prints, else all of them: the best must be among them.
    let printed = |m: &&str| study.papers().is_none() || published::METHODS.contains(m);
    let methods: Vec<&str> = study.methods.iter().copied().filter(printed).collect();
    let names: Vec<String> = methods.iter().map(|m| tex(m)).collect();
    let words = study.words();
    let beside = study.papers().map_or(String::new(), |whose| format!(" Below ours: {}.", tex(&whose)));
    let _ = write!(
        out,
        "\\begin{{table*}}\n\\caption{{{}. Mean over {} with the standard deviation as subscript; the best of {} in bold.{beside}}}\n\\centering\\small\n\\resizebox{{\\textwidth}}{{!}}{{%\n\\begin{{tabular}}{{ll{}}}\n\\toprule\n\\multirow{{2}}{{*}}{{OOD}} & & {head} \\\\\n & & \\multicolumn{{{}}}{{c}}{{{}}} \\\\\n\\midrule\n",
        tex(&study.header()),
        words.runs,
        if methods.len() < study.methods.len() { "these methods" } else { "all methods" },
        "c".repeat(PRINTED.len()),
        PRINTED.len(),
        names.join(" / ")
    );
    for class in study.classes.iter().map(|c| Some(*c)).chain([None]) {
        let (mut ours, mut paper, mut less) = (Vec::new(), Vec::new(), Vec::new());
        for m in PRINTED.map(metric) {
            let stats: Vec<Option<Stat>> = methods
                .iter()
                .map(|method| class.map_or_else(|| study.mean(method, m), |c| study.class(method, c, m)))
                .collect();
            let bold = study.best(&methods, &stats);
            let papers: Vec<Option<f64>> = methods.iter().map(|method| study.paper(method, class, m)).collect();
            let differences = stats.iter().zip(&papers).map(|(s, p)| Some(difference(s.as_ref()?.mean - (*p)?)));
            less.push(slashes(differences.collect()));
            paper.push(slashes(papers.iter().map(|p| p.map(|p| format!("{p:.2}"))).collect()));
            ours.push(slashes(stats.iter().zip(bold).map(|(s, b)| s.map(|s| number(s, b))).collect()));
        }
        let name = class.map_or("mean".into(), tex);
        let paper_too = methods.iter().any(|m| study.paper(m, class, metric("auroc")).is_some());
        let whose = if paper_too { "ours" } else { "" };
        let _ = writeln!(out, "{name} & {whose} & {} \\\\", ours.join(" & "));
        if paper_too {
            let _ = writeln!(out, " & paper & {} \\\\", paper.join(" & "));
            let _ = writeln!(out, " & difference & {} \\\\", less.join(" & ").replace('−', "$-$"));
        }
    }
    out.push_str("\\bottomrule\n\\end{tabular}}\n\\end{table*}\n\n");
    let _ = write!(
        out,
        "\\begin{{table}}\n\\caption{{{}. Means over the {}.}}\n\\centering\\small\n\\begin{{tabular}}{{l{}r}}\n\\toprule\nMethod & {head} & {} \\\\\n\\midrule\n",
        tex(&study.header()),
        words.rows,
        "c".repeat(PRINTED.len()),
        words.runs
    );
    let columns: Vec<Vec<Option<Stat>>> = PRINTED.iter().map(|key| row(study, None, metric(key))).collect();
    let bold: Vec<Vec<bool>> = columns.iter().map(|c| study.best(&study.methods, c)).collect();
    for (i, method) in study.methods.iter().enumerate() {
        let cells: Vec<String> =
            (0..PRINTED.len()).map(|j| columns[j][i].map_or("--".into(), |s| number(s, bold[j][i]))).collect();
        let _ = writeln!(out, "{} & {} & {} \\\\", tex(method), cells.join(" & "), study.tested(method));
    }
    out.push_str("\\bottomrule\n\\end{tabular}\n\\end{table}\n");
    out
}

fn number(stat: Stat, bold: bool) -> String {
    let mean = if bold { format!("\\textbf{{{:.2}}}", stat.mean) } else { format!("{:.2}", stat.mean) };
    stat.std.map_or(mean.clone(), |std| format!("{mean}$_{{\\pm{std:.2}}}$"))
}

fn slashes(numbers: Vec<Option<String>>) -> String {
    numbers.into_iter().map(|n| n.unwrap_or_else(|| "--".into())).collect::<Vec<_>>().join(" / ")
}
