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
    assert!(page.contains("<h1>A &amp; B</h1>") && page.contains("no | &lt;luck&gt;"), "{page}");
    assert!(
        page.contains("<th>a&lt;</th><td>85.00<span class=std> of 1</span></td><td><b>85.00</b><span class=std> ± 7.07</span></td>"),
        "{page}"
    );
    assert_eq!(page.matches("<figure><svg").count(), 1);
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
    assert!(page(&study, &[]).contains("Deep-MCDD against nu"));
    assert!(comparison("x", &[study], &["alad"]).is_err());
    cells.truncate(4);
    cells.extend(["a", "b"].map(|c| cell("alad", c, 0, 70, None)));
    let study = Study::new(&about, &cells);
    assert!(against_nu(&study).is_err());
    let svg = comparison("Bars", &[study], &["alad", "deep-mcdd:nu=10"]).unwrap().svg();
    assert!(svg.contains("ALAD") && svg.contains("Deep-MCDD:nu=10"), "{svg}");
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
