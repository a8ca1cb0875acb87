use super::*;
use crate::metrics::detection;

/// A cell whose AUROC is `auroc` hundredths, exactly.
fn cell(method: &str, ood: &str, fold: usize, auroc: usize, accuracy: Option<f64>) -> Cell {
    let ood_scores: Vec<f64> = (0..100).map(|i| if i < auroc { 0.0 } else { 2.0 }).collect();
    let measured = Scenario { accuracy, detection: detection(&[1.0; 10], &ood_scores).unwrap() };
    Cell {
        data: "x".into(),
        method: method.into(),
        ood: ood.into(),
        fold,
        folds: 5,
        seed: 0,
        measured: Some(measured),
        error: None,
        seconds: [1.0, 2.0],
        settings: Method::parse(method).unwrap().settings,
        version: "0".into(),
    }
}

fn about(set: Option<&str>, classes: &[&str]) -> About {
    About {
        title: "A & B".into(),
        set: set.map(str::to_owned),
        coverage: "A & B: 5 of 10 rows".into(),
        classes: classes.iter().map(|c| (c.to_string(), 7)).collect(),
        sha256: "x".into(),
        net: None,
    }
}

#[test]
fn means_and_deviations_are_those_of_the_definition() {
    let about = about(None, &["b", "a<", "unused"]);
    let mut cells = vec![
        cell("best", "a<", 0, 90, Some(0.5)),
        cell("best", "a<", 1, 80, Some(0.7)),
        cell("best", "b", 0, 60, Some(0.5)),
        cell("best", "b", 1, 90, Some(0.5)),
        cell("deep-svdd", "a<", 0, 85, None),
        cell("deep-svdd", "b", 0, 75, None),
        cell("deep-svdd", "b", 1, 75, None),
    ];
    cells.push(Cell { measured: None, error: Some("no | <luck>".into()), ..cell("deep-svdd", "a<", 1, 0, None) });
    let study = Study::new(&about, &cells);
    assert_eq!((study.methods.as_slice(), study.classes.as_slice()), (&["deep-svdd", "best"][..], &["b", "a<"][..]));
    let auroc = metric("auroc");
    let near = |stat: Option<Stat>, mean: f64, std: Option<f64>, n: usize| {
        let s = stat.unwrap();
        assert!((s.mean - mean).abs() < 1e-9 && s.n == n, "{s:?}");
        assert_eq!(s.std.map(|s| (s * 1e6).round()), std.map(|s| (s * 1e6_f64).round()), "{s:?}");
    };
    near(study.class("best", "a<", auroc), 85.0, Some(50f64.sqrt()), 2);
    // Means of the folds: 75 and 85.
    near(study.mean("best", auroc), 80.0, Some(50f64.sqrt()), 2);
    near(study.mean("deep-svdd", auroc), 80.0, None, 1);
    assert_eq!(study.mean("deep-svdd", metric("accuracy")), None);
    assert_eq!(study.tested("best"), "2 of 5");
    assert_eq!(study.tested("deep-svdd"), "1 of 5 and parts of others");
    assert_eq!(study.paper("deep-mcdd", Some("b"), auroc), None);

    let text = markdown(&study);
    assert!(text.contains("A &amp; B: 5 of 10 rows. 2 of 3 classes left out in turn, 2 of 5 folds."), "{text}");
    assert!(
        text.contains("| a&lt; | 85.00 of 1 | **85.00** ± 7.07 |"),
        "a method with failures is not the best: {text}"
    );
    assert!(text.contains("| n/a | **55.00**"), "{text}");
    assert!(text.contains("without a&lt;, fold 1, seed 0: no &#124; &lt;luck&gt;"), "{text}");
    let page = page(&study, &[("latent <b>".into(), b"<svg/>".to_vec())]);
    assert!(page.contains("<img alt=\"latent &lt;b&gt;\" src=\"data:image/svg+xml;base64,PHN2Zy8+\">"), "{page}");
    assert!(page.contains("<h1><bdi>A &amp; B</bdi></h1>") && page.contains("no | &lt;luck&gt;"), "{page}");
    assert!(
        page.contains(">a&lt;</bdi></th><td>85.00<span class=std> of 1</span></td><td><b>85.00</b><span class=std> ± 7.07</span></td>"),
        "{page}"
    );
    assert_eq!(page.matches("<figure class=wide><svg").count(), 1);
    // Every link of the contents list leads to a section.
    for id in page.split("<a href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert_eq!(page.matches(&format!("<section id={id}>")).count(), 1, "{id}");
    }
    assert!(!page.contains(" style=") && page.matches("<style>").count() == 1 && page.matches("<script>").count() == 1);
    assert!(!page.contains("NaN") && !text.contains("NaN"));
    let csv = csv(&study);
    assert!(csv.lines().any(|l| l == "A & B,A & B: 5 of 10 rows,best,,auroc,80.0000,7.0711,2,,"), "{csv}");
    let tex = latex(&study);
    assert!(tex.contains("A \\& B: 5 of 10 rows") && tex.contains("\\textbf{80.00}$_{\\pm7.07}$"), "{tex}");
    let sentences = study.sentences();
    assert_eq!(sentences.len(), 1, "a method with failures is not listed: {sentences:?}");
    assert!(sentences[0].0 == "best" && sentences[0].1.starts_with("AUROC 80.00"), "{sentences:?}");
    assert!(sentences[0].1.ends_with("hardest is b (75.00)"), "{sentences:?}");
}

#[test]
fn the_papers_numbers_stand_beside() {
    let classes = ["1", "2", "3", "4", "5", "6"];
    let about = about(Some("gas"), &classes);
    let cells: Vec<Cell> = (0..5).flat_map(|f| classes.map(|c| cell("deep-mcdd", c, f, 97, Some(0.9957)))).collect();
    let study = Study::new(&about, &cells);
    let text = markdown(&study);
    assert!(text.contains("| 1 | **97.00** ± 0.00 (96.08, +0.92) |"), "{text}");
    assert!(
        text.contains("| **mean** | **97.00** ± 0.00 (98.00, −1.00) |") || text.contains("(97.99, −0.99)"),
        "{text}"
    );
    assert!(text.contains("(99.57, +0.00)"), "what is printed as nothing has no minus: {text}");
    assert!(text.contains("| 5 |\n"), "{text}");
    assert!(latex(&study).contains("1 & ours & ") && latex(&study).contains(" & paper & "));
    assert!(csv(&study).contains("A & B,A & B: 5 of 10 rows,deep-mcdd,1,auroc,97.0000,0.0000,5,96.0800,0.9200"));
    // With a class missing the means are not of the same thing.
    let some = Study::new(&about, &cells[1..2]);
    assert_eq!(some.paper("deep-mcdd", None, metric("auroc")), None);
}

/// The paper prints three methods; a table without its numbers has all of them, and the best in bold.
#[test]
fn latex_has_every_method_of_a_users_table() {
    let about = about(None, &["a", "b"]);
    let methods = [("softmax+msp", 70), ("softmax+mahalanobis", 75), ("deep-mcdd", 80), ("best", 90)];
    let cells: Vec<Cell> =
        methods.iter().flat_map(|(m, auroc)| ["a", "b"].map(|c| cell(m, c, 0, *auroc, None))).collect();
    let tex = latex(&Study::new(&about, &cells));
    assert!(tex.contains("{softmax+msp / softmax+mahalanobis / deep-mcdd / best}"), "{tex}");
    assert!(tex.contains("70.00 / 75.00 / 80.00 / \\textbf{90.00}") && !tex.contains("\\textbf{80.00}"), "{tex}");
}

#[test]
fn figures_show_what_there_is() {
    let about = about(None, &["a", "b"]);
    let nu = ["deep-mcdd:nu=10", "deep-mcdd:nu=0.1", "deep-mcdd:nu=1"];
    let mut cells: Vec<Cell> = nu.iter().flat_map(|m| ["a", "b"].map(|c| cell(m, c, 0, 80, Some(0.9)))).collect();
    let study = Study::new(&about, &cells);
    let svg = against_nu(&study).unwrap().svg();
    assert!(svg.contains("nu") && svg.contains("accuracy") && svg.contains("TNR85"), "{svg}");
    assert!(page(&study, &[]).contains("Metrics of deep-mcdd against nu"));
    // A chart that the page has is not shown again, even if it is of an earlier run.
    let file = ("nu".to_owned(), against_nu(&Study::new(&about, &cells[..])).unwrap().svg().into_bytes());
    assert_eq!(page(&study, &[file]).matches("<figure").count(), 1);
    assert!(comparison("x", &[study], &["alad"]).is_err());
    cells.truncate(4);
    cells.extend(["a", "b"].map(|c| cell("alad", c, 0, 70, None)));
    let study = Study::new(&about, &cells);
    assert!(against_nu(&study).is_err());
    let svg = comparison("Bars", &[study], &["alad", "deep-mcdd:nu=10"]).unwrap().svg();
    assert!(svg.contains(">alad<") && svg.contains(">deep-mcdd:nu=10<"), "{svg}");
    // Methods with fewer folds than others are named.
    let mut some = vec![cell("alad", "a", 0, 70, None), cell("alad", "b", 0, 70, None)];
    let caption = |cells: &[Cell], methods: &[&str]| {
        let svg = comparison("Bars", &[Study::new(&about, cells)], methods).unwrap().svg();
        let lines = svg.split("-mut\">").filter_map(|part| part.split("</text>").next());
        lines.collect::<Vec<_>>().join(" ")
    };
    assert!(
        caption(&some, &["alad"]).contains("1 of 5 folds. Mean over the classes."),
        "{}",
        caption(&some, &["alad"])
    );
    for fold in 0..5 {
        some.extend(["a", "b"].map(|c| cell("deep-mcdd", c, fold, 80 + fold, None)));
        some.extend(["a", "b"].map(|c| cell("deep-svdd", c, fold.min(2), 80 + fold, None)));
    }
    let all = "Mean over the classes, error bars: standard deviation over folds";
    assert!(caption(&some, &["deep-mcdd"]).contains(&format!("{all}.")));
    assert!(caption(&some, &["alad", "deep-mcdd"]).contains(&format!("{all}; without error bars: one fold.")));
    let text = caption(&some, &["alad", "deep-svdd", "deep-mcdd"]);
    assert!(text.contains("one fold; A &amp; B, deep-svdd: 3 folds."), "{text}");
    // A study without a fold of all classes has no bars beside another, and alone no figure.
    let part = [cell("alad", "a", 0, 70, None), cell("alad", "b", 1, 70, None)];
    let studies = [Study::new(&about, &some), Study::new(&about, &part)];
    assert!(comparison("Bars", &studies, &["alad"]).unwrap().svg().contains(">n/a<"));
    let e = comparison("Bars", &studies[1..], &["alad"]).unwrap_err();
    assert!(e.to_string().contains("no fold with all classes"), "{e}");
    // A changed setting is reported, and the paper's number is left out.
    let gas = About { set: Some("gas".into()), ..self::about(None, &["1", "2"]) };
    let mut cells = vec![cell("deep-mcdd", "1", 0, 90, None), cell("softmax+msp", "1", 0, 90, None)];
    cells[0].settings.epochs = 3;
    let text = markdown(&Study::new(&gas, &cells));
    assert!(
        text.contains("1 of 2 classes left out in turn, 1 of 5 folds; deep-mcdd: epochs 3 instead of 100"),
        "{text}"
    );
    assert!(text.contains("| 1 | **90.00** (57.46, +32.54) | **90.00** |"), "{text}");
}

#[test]
fn many_methods_are_folded() {
    let about = about(None, &["a", "b"]);
    let names: Vec<String> = (1..=30).map(|k| format!("softmax+knn:k={k}")).collect();
    let cells: Vec<Cell> = names
        .iter()
        .enumerate()
        .flat_map(|(i, m)| ["a", "b"].map(|c| cell(m, c, 0, 50 + i, Some(0.9))))
        .chain(["a", "b"].map(|c| cell("gda", c, 0, 10, Some(0.9))))
        .collect();
    let asked = ["gda".to_owned(), "not there".to_owned()];
    let study = Study::new(&about, &cells).asked_for(&asked);
    let mut wanted: Vec<&str> = names[21..].iter().map(String::as_str).chain(["gda"]).collect();
    wanted.sort_by_key(|m| Method::rank(m));
    assert_eq!(study.shown_first(), wanted, "the best nine and the one that was asked for");
    // Rows of the means, columns of seven tables, and a term with its description.
    let text = page(&study, &[]);
    let hidden = 31 - 10;
    assert_eq!(text.matches("<tr class=more>").count(), hidden);
    assert_eq!(text.matches("<th scope=col class=more>").count(), 7 * hidden);
    assert_eq!(text.matches("<td class=more>").count(), 7 * 3 * hidden);
    assert_eq!(text.matches("<dt class=more>").count(), hidden);
    assert!(text.contains("data-first=10 data-all=31") && text.contains("10 of 31 methods. "), "{text}");
    // The chart has the methods in sight, by the names of the tables.
    let chart = text.split("<figure").nth(1).unwrap().split("</figure>").next().unwrap();
    wanted.iter().for_each(|m| assert!(chart.contains(&format!(">{m}</text>")), "{m}"));
    assert!(!chart.contains(">softmax+knn:k=21</text>"));
    // Few methods, or all of them asked for: nothing is hidden.
    let all = Study::new(&about, &cells).asked_for(&names);
    assert_eq!(all.shown_first().len(), 31);
    assert!(!page(&Study::new(&about, &cells[..20]), &[]).contains("class=more"));
}

#[test]
fn hostile_names_are_escaped() {
    let image = "<img src=x onerror=alert(1)>";
    let long = "x".repeat(10_000);
    let about = About { title: format!("{image}\u{202e}"), ..about(None, &[image, &long]) };
    let mut cells = vec![cell("best", image, 0, 90, None), cell("best", &long, 0, 80, None)];
    cells.extend(cells.clone().into_iter().map(|c| Cell { method: format!("\"'{image}"), ..c }));
    let text = page(&Study::new(&about, &cells), &[(image.into(), b"<svg><script>alert(1)</script></svg>".to_vec())]);
    assert!(!text.contains("<img src=x") && !text.contains("<script>alert"), "{text}");
    assert_eq!(text.matches("<script").count(), 1);
    assert!(text.contains("img-src data:; style-src 'sha256-") && text.contains("default-src 'none'"));
    assert!(!text.contains(&format!("<bdi title=\"{}", "x".repeat(121))), "long names are cut");
}
