//! The HTML page: a summary, the figures, and all numbers.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::figures::figures;
use super::tables::{PRINTED, difference, most, row, title};
use super::{METRICS, Metric, Stat, Study};
use crate::data::sets::thousands;
use crate::error::count;
use crate::head::Loop;
use crate::protocol::Method;
use crate::report::figure::classes;
use crate::report::html::{html, name};
use crate::report::page::{Page, TABLES};
use crate::report::words::meaning;

const STYLE: &str = include_str!("page.css");
const SCRIPT: [&str; 2] = [TABLES, include_str!("page.js")];

/// A part of the page that the contents list links to.
pub(in crate::report) struct Section {
    pub id: String,
    pub title: String,
    pub body: String,
}

/// A page with a list of contents: `top`, the sections, and `end`, inside `main` with some attributes.
pub(in crate::report) fn document(title: &str, attributes: &str, top: &str, sections: &[Section], end: &str) -> String {
    let link = |s: &Section| format!("<li><a href=\"#{}\">{}</a></li>\n", s.id, html(&s.title));
    let links: String = sections.iter().map(link).collect();
    let mut body = format!(
        "<main{attributes}>\n{top}<nav class=contents aria-label=Contents><ul>\n{links}</ul></nav>\n<p class=aside role=status id=order></p>\n"
    );
    for Section { id, title, body: text } in sections {
        let _ = write!(body, "<section id={id}>\n<h2>{}</h2>\n{text}</section>\n", html(title));
    }
    body.push_str(end);
    body.push_str("</main>\n");
    let style = classes() + "\n" + STYLE;
    Page { title, style: &style, body: &body, script: &SCRIPT, data: None, images: true }.write()
}

/// A self-contained HTML page with its own figures and with others, given as names and contents of SVG files. A file with
/// the title of one of the page's own figures is left out.
pub fn page(study: &Study, others: &[(String, Vec<u8>)]) -> String {
    let table = Tables { study, first: study.shown_first() };
    let mut sections = vec![Section {
        id: "means".into(),
        title: format!("Mean over the {}", study.words().rows),
        body: format!("{}{}", legend(study), table.means()),
    }];
    sections.extend(charts(study, others));
    // AUROC first.
    let (first, rest): (Vec<_>, Vec<_>) = METRICS.iter().partition(|m| m.key == "auroc");
    for m in first.into_iter().chain(rest) {
        let note = format!("<p class=note>{}</p>\n", meaning(m.key));
        sections.push(Section { id: m.key.into(), title: title(m), body: note + &table.of_metric(m) });
    }
    sections.push(Section { id: "methods".into(), title: "Methods".into(), body: methods(study, &table) });
    sections.push(Section { id: "data".into(), title: "The data".into(), body: data(study) });
    let failures = study.failures();
    if !failures.is_empty() {
        let each: String = failures.iter().map(|f| format!("<li>{}</li>\n", html(f))).collect();
        sections.push(Section { id: "failed".into(), title: "Failed".into(), body: format!("<ul>\n{each}</ul>\n") });
    }

    let (few, all) = (table.first.len(), study.methods.len());
    let why =
        if study.asked.is_empty() { "the best by AUROC" } else { "the best by AUROC, and those that were asked for" };
    let attributes = format!(" data-first={few} data-all={all} data-why=\"{why}\"");
    let mut top = summary(study);
    if !failures.is_empty() {
        let cells = count(failures.len(), "cell");
        let _ = writeln!(top, "<p class=warn>{cells} failed; <a href=\"#failed\">see below</a>.</p>");
    }
    let title = format!("{}: out-of-distribution detection", study.about.title);
    document(&title, &attributes, &top, &sections, &footer(&study.versions()))
}

/// What holds for all numbers.
pub(in crate::report) fn footer(versions: &str) -> String {
    format!(
        "<p class=note>mcdd {}. Scaling and weights come from training rows alone. TNR and detection accuracy \
         are taken from the ROC curve of the test rows, as in the paper, not from a threshold that was set in advance.</p>\n",
        html(versions)
    )
}

/// The title, the question, and the best methods.
fn summary(study: &Study) -> String {
    let best: String =
        study.sentences().iter().map(|(m, text)| format!("<li><b>{}</b>: {}</li>\n", named(m), html(text))).collect();
    let best = if best.is_empty() { best } else { format!("<ul>\n{best}</ul>\n") };
    format!(
        "<h1><bdi>{}</bdi></h1>\n<p class=lead>{}</p>\n<p class=note>{}.</p>\n{best}",
        html(&name(&study.about.title)),
        study.words().question,
        html(&study.header())
    )
}

/// What the numbers of all tables are.
pub(in crate::report) fn legend(study: &Study) -> String {
    let mut out = format!(
        "<p class=note>Numbers are means in percent ± standard deviation over {}; higher is better. The best of each column, and \
         of each row of the tables below, is bold",
        study.words().runs
    );
    if study.shown_first().len() < study.methods.len() {
        let _ = write!(out, ", among all {} methods", study.methods.len());
    }
    out.push_str(
        ". TPR is the fraction of known test rows that are kept, TNR the fraction of unknown ones that are rejected.",
    );
    if let Some(whose) = study.papers() {
        let _ = write!(out, " Below a number: {whose}, and the difference.");
    }
    for remark in study.remarks() {
        let _ = write!(out, " Note: {}.", html(&remark));
    }
    out + "</p>\n"
}

/// The figures of the study, then the others, as images: the contents of a file do not become part of the page.
fn charts(study: &Study, others: &[(String, Vec<u8>)]) -> Option<Section> {
    let own = figures(study);
    let mut body: String = own.iter().map(|f| format!("<figure class=wide>{}</figure>\n", f.embedded())).collect();
    let others = others.iter().filter(|(_, svg)| !own.iter().any(|f| f.same_title(svg)));
    others.for_each(|(name, svg)| body.push_str(&picture(name, svg)));
    (!body.is_empty()).then(|| Section { id: "figures".into(), title: "Figures".into(), body })
}

/// An SVG file as an image.
pub(in crate::report) fn picture(name: &str, svg: &[u8]) -> String {
    let data = BASE64_STANDARD.encode(svg);
    format!("<figure class=wide><img alt=\"{}\" src=\"data:image/svg+xml;base64,{data}\"></figure>\n", html(name))
}

/// A study's tables for another page: the means, and the printed metrics by class, folded.
pub(in crate::report) fn tables(study: &Study) -> String {
    let table = Tables { study, first: study.methods.clone() };
    let mut out = format!("<p class=note>{}.</p>\n{}", html(&study.header()), table.means());
    for m in METRICS.iter().filter(|m| PRINTED.contains(&m.key)) {
        let _ = write!(
            out,
            "<details><summary>{} by {}</summary>\n{}</details>\n",
            html(&title(m)),
            study.words().kind,
            table.of_metric(m)
        );
    }
    out
}

/// A method's name; a long one is broken at its parts.
pub(in crate::report) fn named(method: &str) -> String {
    let text = name(method);
    format!("<bdi title=\"{0}\">{1}</bdi>", html(&text), html(&text).replace('+', "+<wbr>").replace(':', ":<wbr>"))
}

/// The tables, whose methods beyond the first ones can be hidden.
struct Tables<'a> {
    study: &'a Study<'a>,
    first: Vec<&'a str>,
}

impl Tables<'_> {
    /// The class of what belongs to a method.
    fn more(&self, method: &str) -> &'static str {
        if self.first.contains(&method) { "" } else { " class=more" }
    }

    /// Where the script puts the button that shows all methods.
    fn fold(&self) -> &'static str {
        if self.first.len() < self.study.methods.len() { "<p class=\"note fold\"></p>\n" } else { "" }
    }

    fn means(&self) -> String {
        let Tables { study, .. } = self;
        let mut out = format!("{}<div class=wide><table>\n<thead><tr><th scope=col>method</th>", self.fold());
        for m in &METRICS {
            let _ = write!(out, "<th scope=col title=\"{}\">{}</th>", html(m.title), html(m.short));
        }
        let _ = writeln!(out, "<th scope=col>{}</th></tr></thead>\n<tbody>", study.words().runs);
        let columns: Vec<Vec<Option<Stat>>> = METRICS.iter().map(|m| row(study, None, m)).collect();
        let bold: Vec<Vec<bool>> = columns.iter().map(|c| study.best(&study.methods, c)).collect();
        for (i, method) in study.methods.iter().enumerate() {
            let _ = write!(out, "<tr{}><th scope=row>{}</th>", self.more(method), named(method));
            for (j, m) in METRICS.iter().enumerate() {
                out.push_str(&cell(columns[j][i], study.paper(method, None, m), bold[j][i], 0, ""));
            }
            let _ = writeln!(out, "<td>{}</td></tr>", study.tested(method));
        }
        out + "</tbody></table></div>\n"
    }

    /// A metric for each class and method.
    fn of_metric(&self, m: &Metric) -> String {
        let Tables { study, .. } = self;
        let mut out =
            format!("{}<div class=wide><table>\n<thead><tr><th scope=col>{}</th>", self.fold(), study.words().row);
        for method in &study.methods {
            let _ = write!(out, "<th scope=col{}>{}</th>", self.more(method), named(method));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        let line = |class: Option<&str>| {
            let stats = row(study, class, m);
            let (bold, most) = (study.best(&study.methods, &stats), most(&stats));
            let label = class.map_or("mean".into(), |c| format!("<bdi title=\"{0}\">{0}</bdi>", html(&name(c))));
            let cells = study
                .methods
                .iter()
                .enumerate()
                .map(|(i, method)| cell(stats[i], study.paper(method, class, m), bold[i], most, self.more(method)));
            format!("<tr><th scope=row>{label}</th>{}</tr>\n", cells.collect::<String>())
        };
        study.classes.iter().for_each(|c| out.push_str(&line(Some(c))));
        let _ = write!(out, "</tbody>\n<tfoot>\n{}</tfoot></table></div>\n", line(None));
        out
    }
}

pub(in crate::report) fn cell(
    stat: Option<Stat>,
    paper: Option<f64>,
    bold: bool,
    most: usize,
    attributes: &str,
) -> String {
    let Some(stat) = stat else { return format!("<td{attributes}>n/a</td>") };
    let mean = format!("{:.2}", stat.mean);
    let mut out = format!("<td{attributes}>{}", if bold { format!("<b>{mean}</b>") } else { mean });
    if let Some(std) = stat.std {
        let _ = write!(out, "<span class=std> ± {std:.2}</span>");
    }
    if stat.n < most {
        let _ = write!(out, "<span class=std> of {}</span>", stat.n);
    }
    if let Some(paper) = paper {
        let d = stat.mean - paper;
        let class = if d < -0.005 { "less" } else { "better" };
        let _ = write!(out, "<span class=paper>{paper:.2} <i class={class}>{}</i></span>", difference(d));
    }
    out + "</td>"
}

/// What each method is.
fn methods(study: &Study, table: &Tables) -> String {
    let mut out = String::from(
        "<p class=note>Names are those that mcdd takes: a method, or a method and, after +, the detector that gives its confidence; \
         settings follow after a colon. mcdd methods lists all of them.</p>\n",
    );
    let _ = writeln!(out, "{}<dl class=words>", table.fold());
    for method in &study.methods {
        let text = [description(method), study.changed.get(method).map(|c| format!("Here: {c}."))];
        let text: Vec<String> = text.into_iter().flatten().collect();
        let more = table.more(method);
        let _ = writeln!(out, "<dt{more}>{}</dt><dd{more}>{}</dd>", named(method), html(&text.join(" ")));
    }
    out + "</dl>\n"
}

/// What a method is, and where it was published.
fn description(method: &str) -> Option<String> {
    match method {
        "best" => {
            return Some(
                "The default of mcdd train: seven networks, and the distance to the nearest training row.".into(),
            );
        }
        "fast" => return Some("The default of mcdd train with one network instead of five.".into()),
        _ => {}
    }
    let settings = Method::parse(method).ok()?.settings;
    let (head, detector) = (settings.head.about(), settings.detector.detector.about());
    Some(match (detector.name, settings.head.trained_by()) {
        ("distance", _) => format!("{}: {}. {}.", head.title, head.summary, head.reference),
        (_, Loop::ClosedForm) => {
            format!("On the inputs, without a network: {}. {}.", detector.summary, detector.reference)
        }
        _ => format!("On a network trained with {}: {}. {}.", head.title, detector.summary, detector.reference),
    })
}

fn data(study: &Study) -> String {
    let row = |(text, rows): &(String, usize)| {
        let name = html(&name(text));
        format!("<tr><th scope=row><bdi title=\"{name}\">{name}</bdi></th><td>{}</td></tr>\n", thousands(*rows))
    };
    let rows: String = study.about.classes.iter().map(row).collect();
    let what = if study.about.net.is_some() { "set" } else { "class" };
    format!(
        "<div class=wide><table>\n<thead><tr><th scope=col>{what}</th><th scope=col>rows</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}
