//! Figures of a grid's results.

use super::{METRICS, Metric, Stat, Study, metric};
use crate::error::{Error, Result};
use crate::report::figure::{BarPanel, Figure, LinePanel, SERIES, Value, bars, lines};
use crate::report::method_name;

/// The metrics of detection that figures show.
const SHOWN: [&str; 5] = ["tnr85", "tnr95", "auroc", "aupr_id", "detection_accuracy"];
/// The number of colors.
const MOST_BARS: usize = SERIES;

fn value(stat: Option<Stat>) -> Option<Value> {
    stat.map(|s| Value { mean: s.mean, deviation: s.std })
}

/// The name of a method as papers write it; pairs with a detector stay as typed.
fn name(method: &str) -> String {
    let (first, rest) = method.split_at(method.find(':').unwrap_or(method.len()));
    format!("{}{rest}", method_name(first))
}

/// Bars of some methods, a panel for each study: means over the classes, with deviations over folds.
///
/// # Errors
/// If a study has none of the methods.
pub fn comparison(title: &str, studies: &[Study], methods: &[&str]) -> Result<Figure> {
    let panel = |study: &Study| {
        let number = |method: &&str| SHOWN.iter().map(|key| value(study.mean(method, metric(key)))).collect::<Vec<_>>();
        let values: Vec<Vec<Option<Value>>> = methods.iter().map(number).collect();
        if let Some(absent) = methods.iter().find(|m| !study.methods.contains(m)) {
            return Err(Error::data(format!("{} has no results of {absent}", study.about.title)).hint(format!(
                "run the benchmark with {absent} among `methods` first; there are {}",
                study.methods.join(", ")
            )));
        }
        if values.iter().flatten().all(Option::is_none) {
            return Err(Error::data(format!("{} has no fold with all classes yet", study.about.title))
                .hint("resume the benchmark"));
        }
        Ok(BarPanel {
            title: study.about.title.clone(),
            unit: "%".into(),
            groups: SHOWN.iter().map(|key| metric(key).short.to_owned()).collect(),
            values,
        })
    };
    let panels: Vec<BarPanel> = studies.iter().map(panel).collect::<Result<_>>()?;
    let names: Vec<String> = methods.iter().map(|m| name(m)).collect();
    bars(title, &caption(studies, "whiskers"), &names, &panels)
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
/// paper if all studies have its methods, else one of the methods that all studies have.
///
/// # Errors
/// If a study has none of the methods.
pub fn comparisons(studies: &[Study], methods: Option<&[&str]>) -> Result<Vec<(&'static str, Figure)>> {
    let all_have = |method: &&str| studies.iter().all(|s| s.methods.contains(method));
    if methods.is_none() && PAPER.iter().all(|(_, _, methods)| methods.iter().all(all_have)) {
        return PAPER.iter().map(|(name, title, methods)| Ok((*name, comparison(title, studies, methods)?))).collect();
    }
    let common = || studies.first().map_or(&[][..], |s| &s.methods).iter().copied().filter(|m| all_have(m));
    let methods = methods.map_or_else(|| common().take(SERIES).collect(), <[&str]>::to_vec);
    Ok(vec![("bars", comparison("Detection of unknown classes", studies, &methods)?)])
}

/// A description of the data, and of whiskers or bands.
fn caption(studies: &[Study], marks: &str) -> String {
    let data: Vec<String> = studies.iter().map(Study::header).collect();
    let spread = match studies.iter().find(|s| s.folds > 1) {
        Some(study) => format!(", {marks}: standard deviation over {}", study.runs()),
        None => String::new(),
    };
    let what = studies.first().map_or("classes", |s| s.words().rows);
    format!("{}. Mean over the {what}{spread}.", data.join("; "))
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
    lines("Deep-MCDD against nu", &caption(std::slice::from_ref(study), "bands"), &names, &[panel])
}

/// The figures of the page, as SVG.
pub(super) fn figures(study: &Study) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(against_nu(study).ok());
    let whole = study.methods.iter().copied().filter(|m| study.mean(m, metric("auroc")).is_some());
    let mut others: Vec<&str> = whole.filter(|m| !m.starts_with("deep-mcdd:nu=")).collect();
    let mut title = "Detection of unknown classes".to_owned();
    if others.len() > MOST_BARS {
        let auroc = |m: &str| study.mean(m, metric("auroc")).map_or(0.0, |s| s.mean);
        let mut best = others.clone();
        best.sort_by(|a, b| auroc(b).total_cmp(&auroc(a)));
        best.truncate(MOST_BARS);
        title = format!("Detection of unknown classes, the best {MOST_BARS} of {} methods by AUROC", others.len());
        others.retain(|m| best.contains(m));
    }
    if others.len() > 1 {
        all.extend(comparison(&title, std::slice::from_ref(study), &others).ok());
    }
    all.iter().map(Figure::svg).collect()
}
