//! Figures of a grid's results.

use super::{METRICS, Metric, Stat, Study, metric};
use crate::error::{Error, Result};
use crate::report::figure::{BarPanel, Figure, LinePanel, SERIES, Value, bars, lines};

/// The metrics of detection that figures show.
const SHOWN: [&str; 5] = ["tnr85", "tnr95", "auroc", "aupr_id", "detection_accuracy"];
/// The title of a bar chart of one study with the methods that are shown first.
const TITLE: &str = "Detection of unknown classes";

fn value(stat: Option<Stat>) -> Option<Value> {
    stat.map(|s| Value { mean: s.mean, deviation: s.std })
}

/// Bars of some methods, a panel for each study: means over the classes, with deviations over folds.
///
/// # Errors
/// If a study has none of the methods.
pub fn comparison(title: &str, studies: &[Study], methods: &[&str]) -> Result<Figure> {
    comparison_with(title, "", studies, methods)
}

/// The same, with a sentence before the caption.
fn comparison_with(title: &str, about: &str, studies: &[Study], methods: &[&str]) -> Result<Figure> {
    let panel = |study: &Study| {
        let number = |method: &&str| SHOWN.iter().map(|key| value(study.mean(method, metric(key)))).collect::<Vec<_>>();
        let values: Vec<Vec<Option<Value>>> = methods.iter().map(number).collect();
        if let Some(absent) = methods.iter().find(|m| !study.methods.contains(m)) {
            return Err(Error::data(format!("{} has no results of {absent}", study.about.title)).hint(format!(
                "run the benchmark with {absent} among `methods` first; there are {}",
                study.methods.join(", ")
            )));
        }
        Ok(BarPanel {
            title: study.about.title.clone(),
            unit: "%".into(),
            groups: SHOWN.iter().map(|key| metric(key).short.to_owned()).collect(),
            values,
        })
    };
    let panels: Vec<BarPanel> = studies.iter().map(panel).collect::<Result<_>>()?;
    if panels.iter().flat_map(|p| &p.values).flatten().all(Option::is_none) {
        let titles: Vec<&str> = studies.iter().map(|s| s.about.title.as_str()).collect();
        let what = format!("there is no fold with all classes yet: {}", titles.join(", "));
        return Err(Error::data(what).hint("resume the benchmark"));
    }
    let names: Vec<String> = methods.iter().map(|m| (*m).to_owned()).collect();
    bars(title, &format!("{about}{}", caption(studies, methods, "error bars")), &names, &panels)
}

/// The two comparisons of the paper: with methods that do not use classes, and with methods that measure distances.
const PAPER: [(&str, &str, [&str; 4]); 2] = [
    ("bars-detectors", "Deep-MCDD and detectors without classes", ["deep-svdd", "alad", "soft-mcdd", "deep-mcdd"]),
    (
        "bars-classifiers",
        "Deep-MCDD and other distance classifiers",
        ["protonet", "deep-ncm", "soft-mcdd", "deep-mcdd"],
    ),
];

/// The bar charts of some studies, each with a name for its file: one of the given methods; without these the two of the
/// paper if all studies have its methods, else one of the methods that all studies have, or of the best of them.
///
/// # Errors
/// If a study has none of the methods.
pub fn comparisons(studies: &[Study], methods: Option<&[&str]>) -> Result<Vec<(&'static str, Figure)>> {
    let all_have = |method: &&str| studies.iter().all(|s| s.methods.contains(method));
    if methods.is_none() && PAPER.iter().all(|(_, _, methods)| methods.iter().all(all_have)) {
        return PAPER.iter().map(|(name, title, methods)| Ok((*name, comparison(title, studies, methods)?))).collect();
    }
    if let Some(methods) = methods {
        return Ok(vec![("bars", comparison(&format!("{TITLE}, selected methods"), studies, methods)?)]);
    }
    if let [study] = studies {
        return Ok(vec![("bars", shown_first(study)?)]);
    }
    let mut common = studies.first().map_or(Vec::new(), |s| s.methods.clone());
    common.retain(all_have);
    let title = format!("{TITLE} in {} data sets", studies.len());
    Ok(vec![("bars", comparison(&title, studies, &best(studies, &common))?)])
}

/// The methods with the highest mean AUROC, as many as there are colors, in their order.
fn best<'a>(studies: &[Study], methods: &[&'a str]) -> Vec<&'a str> {
    let auroc = |m: &str| studies.iter().filter_map(|s| s.mean(m, metric("auroc"))).map(|s| s.mean).sum::<f64>();
    let mut order: Vec<(f64, &str)> = methods.iter().map(|m| (auroc(m), *m)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    order.truncate(SERIES);
    methods.iter().copied().filter(|m| order.iter().any(|(_, kept)| kept == m)).collect()
}

/// The bars of the methods that a study shows first. Those with other values of nu have a figure of their own.
fn shown_first(study: &Study) -> Result<Figure> {
    let whole = |m: &&str| study.mean(m, metric("auroc")).is_some() && !m.starts_with("deep-mcdd:nu=");
    let all = study.methods.iter().copied().filter(whole).count();
    let first: Vec<&str> = study.shown_first().into_iter().filter(whole).collect();
    let studies = std::slice::from_ref(study);
    let first = best(studies, &first);
    let about = if first.len() < all { format!("{} of {all} methods. ", first.len()) } else { String::new() };
    comparison_with(TITLE, &about, studies, if first.is_empty() { &study.methods } else { &first })
}

/// A description of the data, and of error bars or bands. It says which methods have fewer folds than others.
fn caption(studies: &[Study], methods: &[&str], marks: &str) -> String {
    let data: Vec<String> = studies.iter().map(Study::header).collect();
    let (runs, what) = studies.first().map_or(("folds", "classes"), |s| (s.runs(), s.words().rows));
    let mut text = format!("{}. Mean over the {what}", data.join("; "));
    let counts = |study: &Study| methods.iter().map(|m| study.whole_folds(m).len()).collect::<Vec<_>>();
    let all: Vec<Vec<usize>> = studies.iter().map(counts).collect();
    if all.iter().flatten().any(|&n| n > 1) {
        text.push_str(&format!(", {marks}: standard deviation over {runs}"));
        if all.iter().flatten().any(|&n| n == 1) {
            text.push_str(&format!("; without {marks}: one {}", runs.trim_end_matches('s')));
        }
    }
    for (study, counts) in studies.iter().zip(&all) {
        let most = counts.iter().max().copied().unwrap_or(0);
        let fewer = |(method, &n): (&&str, &usize)| {
            (n > 1 && n < most).then(|| format!("; {}, {method}: {n} {runs}", study.about.title))
        };
        text.extend(methods.iter().zip(counts).filter_map(fewer));
    }
    text + "."
}

/// Every metric against nu of Deep-MCDD.
///
/// # Errors
/// If there are fewer than three values of nu.
pub fn against_nu(study: &Study) -> Result<Figure> {
    let nu = |method: &&str| method.strip_prefix("deep-mcdd:nu=")?.parse::<f64>().ok().filter(|v| *v > 0.0);
    let mut found: Vec<(f64, &str)> = study.methods.iter().filter_map(|m| Some((nu(m)?, *m))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.dedup_by(|a, b| a.0 == b.0);
    if found.len() < 3 {
        return Err(Error::data(format!("{} has no results for three values of nu", study.about.title))
            .hint("run the benchmark with nu as `methods` first"));
    }
    let all: Vec<&Metric> = METRICS.iter().filter(|m| m.key == "accuracy" || SHOWN.contains(&m.key)).collect();
    let values = all.iter().map(|m| found.iter().map(|(_, method)| value(study.mean(method, m))).collect()).collect();
    let panel = LinePanel {
        title: study.about.title.clone(),
        x_name: "nu".into(),
        y_name: "%".into(),
        log_x: true,
        x: found.iter().map(|(v, _)| *v).collect(),
        values,
    };
    let names: Vec<String> = all.iter().map(|m| m.short.to_owned()).collect();
    let methods: Vec<&str> = found.iter().map(|(_, method)| *method).collect();
    lines("Metrics of deep-mcdd against nu", &caption(std::slice::from_ref(study), &methods, "bands"), &names, &[panel])
}

/// The figures of the page.
pub(super) fn figures(study: &Study) -> Vec<Figure> {
    let mut all = Vec::new();
    all.extend(against_nu(study).ok());
    if study.methods.iter().filter(|m| !m.starts_with("deep-mcdd:nu=")).count() > 1 {
        all.extend(shown_first(study).ok());
    }
    all
}
