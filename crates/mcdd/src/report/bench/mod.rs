//! The results of a [`Grid`](crate::protocol::Grid) as tables and as a page, beside the paper's numbers.
//!
//! Numbers are in percent. A class's number is the mean over folds (and seeds), with the standard deviation over them. The
//! mean over classes has the standard deviation of the folds' means. All outputs depend on the cells alone, not on the
//! order in which they were computed; of many methods the page shows those first that were asked for.

mod figures;
pub(in crate::report) mod files;
pub(in crate::report) mod page;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

pub use figures::{against_nu, comparison, comparisons};
pub use files::write;
pub use page::page;
pub use tables::{csv, latex, markdown};

use serde_json::{Map, Value};

use crate::protocol::results::{About, Cell};
use crate::protocol::{Method, Scenario, images, published};
use crate::report::figure::SERIES;
use crate::train::Settings;

/// The largest number of methods that are shown without folding: the number of colors.
const FEW: usize = SERIES;
/// The smallest number of the best methods that are shown first.
const BEST: usize = 5;

/// A metric; higher is better.
pub struct Metric {
    /// Its name in files.
    pub key: &'static str,
    /// Its name in headings.
    pub title: &'static str,
    /// A short name for columns.
    pub short: &'static str,
    of: fn(&Scenario) -> Option<f64>,
}

/// All metrics, in the order of the paper's tables, with two more.
pub const METRICS: [Metric; 7] = [
    Metric { key: "accuracy", title: "accuracy", short: "accuracy", of: |s| s.accuracy },
    Metric { key: "tnr85", title: "TNR at 85% TPR", short: "TNR85", of: |s| Some(s.detection.tnr85) },
    Metric { key: "tnr95", title: "TNR at 95% TPR", short: "TNR95", of: |s| Some(s.detection.tnr95) },
    Metric { key: "auroc", title: "AUROC", short: "AUROC", of: |s| Some(s.detection.auroc) },
    Metric { key: "aupr_id", title: "AUPR", short: "AUPR", of: |s| Some(s.detection.aupr_id) },
    Metric { key: "aupr_ood", title: "AUPR (OOD positive)", short: "AUPR-OOD", of: |s| Some(s.detection.aupr_ood) },
    Metric {
        key: "detection_accuracy",
        title: "detection accuracy",
        short: "det. acc.",
        of: |s| Some(s.detection.detection_accuracy),
    },
];

/// A metric by its key.
///
/// # Panics
/// If there is none; keys are constants of this module.
fn metric(key: &str) -> &'static Metric {
    METRICS.iter().find(|m| m.key == key).expect("a metric of this name")
}

/// A mean in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stat {
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation; none for one value.
    pub std: Option<f64>,
    /// The number of values.
    pub n: usize,
}

impl Stat {
    fn of(values: &[f64]) -> Option<Stat> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let std = (n > 1).then(|| 100.0 * libm::sqrt(squares / (n - 1) as f64));
        Some(Stat { mean: 100.0 * mean, std, n })
    }
}

/// The terms of a study, for tables or for images.
struct Words {
    row: &'static str,
    kind: &'static str,
    rows: &'static str,
    runs: &'static str,
    question: &'static str,
    what: &'static str,
    such: &'static str,
}

const TABLE_WORDS: Words = Words {
    row: "left out",
    kind: "left-out class",
    rows: "classes",
    runs: "folds",
    question: "How well does each method detect a class that it has never seen?",
    what: "a class that it has never seen",
    such: "such a class",
};

const IMAGE_WORDS: Words = Words {
    row: "OOD set",
    kind: "OOD set",
    rows: "sets",
    runs: "seeds",
    question: "How well does each method detect images of another set?",
    what: "images of another set",
    such: "those images",
};

/// Measurements by seed and fold.
type Runs<'a> = BTreeMap<(u64, usize), &'a Scenario>;

/// The results of a grid.
pub struct Study<'a> {
    /// The data.
    pub about: &'a About,
    /// The methods with results, in the order of the tables.
    pub methods: Vec<&'a str>,
    /// The classes (or sets) with results, in the order of the data.
    pub classes: Vec<&'a str>,
    /// The number of folds.
    pub folds: usize,
    /// The number of seeds.
    pub seeds: usize,
    cells: &'a [Cell],
    /// Methods whose settings differ from those of their name, with the differences.
    changed: BTreeMap<&'a str, String>,
    /// By method and class.
    measured: BTreeMap<(&'a str, &'a str), Runs<'a>>,
    /// Methods that are always shown first.
    asked: BTreeSet<&'a str>,
}

impl<'a> Study<'a> {
    /// A study of cells.
    pub fn new(about: &'a About, cells: &'a [Cell]) -> Study<'a> {
        let mut methods: Vec<&str> = cells.iter().map(|c| c.method.as_str()).collect();
        methods.sort_by_key(|m| Method::rank(m));
        methods.dedup();
        let present: BTreeSet<&str> = cells.iter().map(|c| c.ood.as_str()).collect();
        let classes = about.classes.iter().map(|(name, _)| name.as_str()).filter(|c| present.contains(c)).collect();
        let mut measured: BTreeMap<_, Runs> = BTreeMap::new();
        for cell in cells {
            if let Some(m) = &cell.measured {
                let of = measured.entry((cell.method.as_str(), cell.ood.as_str())).or_default();
                of.insert((cell.seed, cell.fold), m);
            }
        }
        let folds = cells.first().map_or(0, |c| c.folds);
        let seeds = cells.iter().map(|c| c.seed).collect::<BTreeSet<_>>().len();
        let changes = |m: &&'a str| {
            let cell = cells.iter().find(|c| c.method == *m)?;
            Some((*m, changes(cell)?))
        };
        let changed = methods.iter().filter_map(changes).collect();
        Study { about, methods, classes, folds, seeds, cells, changed, measured, asked: BTreeSet::new() }
    }

    /// The same study, with methods that are shown first even if there are many and others are better.
    pub fn asked_for(self, methods: &'a [String]) -> Study<'a> {
        let asked = methods.iter().map(String::as_str).filter(|m| self.methods.contains(m)).collect();
        Study { asked, ..self }
    }

    /// The methods that are shown first, in the order of the tables: all if they are few, else those that were asked for
    /// and the best by AUROC.
    pub fn shown_first(&self) -> Vec<&'a str> {
        if self.methods.len() <= FEW {
            return self.methods.clone();
        }
        let auroc = |m: &&'a str| Some((self.mean(m, metric("auroc"))?.mean, *m));
        let mut best: Vec<(f64, &str)> =
            self.methods.iter().filter(|m| self.complete(m) && !self.asked.contains(*m)).filter_map(auroc).collect();
        best.sort_by(|a, b| b.0.total_cmp(&a.0));
        best.truncate(FEW.saturating_sub(self.asked.len()).max(BEST));
        let first = |m: &&'a str| self.asked.contains(m) || best.iter().any(|(_, b)| b == m);
        self.methods.iter().copied().filter(first).collect()
    }

    /// The terms for tables, where classes are left out, or for images, where whole sets are unknown.
    fn words(&self) -> Words {
        match self.about.net {
            None => TABLE_WORDS,
            Some(_) => IMAGE_WORDS,
        }
    }

    /// What results are averaged over: folds or seeds.
    pub fn runs(&self) -> &'static str {
        self.words().runs
    }

    /// A method's number for a class.
    pub fn class(&self, method: &str, class: &str, metric: &Metric) -> Option<Stat> {
        let values: Vec<f64> = self.measured.get(&(method, class))?.values().filter_map(|s| (metric.of)(s)).collect();
        Stat::of(&values)
    }

    /// A method's mean over classes and over the folds with results of all classes; none if there is no such fold.
    pub fn mean(&self, method: &str, metric: &Metric) -> Option<Stat> {
        let fold = |fold| {
            let numbers = self.classes.iter().map(|c| (metric.of)(self.measured.get(&(method, *c))?.get(&fold)?));
            let values: Vec<f64> = numbers.collect::<Option<_>>()?;
            Some(values.iter().sum::<f64>() / values.len() as f64)
        };
        let folds: Vec<f64> = self.whole_folds(method).into_iter().map(fold).collect::<Option<_>>()?;
        Stat::of(&folds)
    }

    /// Whether a method has as many results as any other, without a failure.
    fn complete(&self, method: &str) -> bool {
        let most = self.methods.iter().map(|m| self.whole_folds(m).len()).max().unwrap_or(0);
        let failed = self.cells.iter().any(|c| c.method == method && c.error.is_some());
        !failed && self.whole_folds(method).len() == most
    }

    /// Folds and seeds in which a method has a result for each class.
    pub(super) fn whole_folds(&self, method: &str) -> BTreeSet<(u64, usize)> {
        let mut sets = self.classes.iter().map(|c| {
            self.measured.get(&(method, *c)).map(|m| m.keys().copied().collect::<BTreeSet<_>>()).unwrap_or_default()
        });
        let first = sets.next().unwrap_or_default();
        sets.fold(first, |all, one| all.intersection(&one).copied().collect())
    }

    /// A text with the number of folds (and seeds) of a method.
    pub fn tested(&self, method: &str) -> String {
        let whole = self.whole_folds(method).len();
        let wanted = self.folds * self.seeds;
        let sizes = self.classes.iter().map(|c| self.measured.get(&(method, *c)).map_or(0, BTreeMap::len));
        let (cells, there) = sizes.fold((0, 0), |(cells, there), n| (cells + n, there + usize::from(n > 0)));
        match (whole == wanted, cells == whole * self.classes.len()) {
            _ if there < self.classes.len() => format!("{there} of {} {}", self.classes.len(), self.words().rows),
            (true, true) => format!("{whole}"),
            (false, true) => format!("{whole} of {wanted}"),
            _ => format!("{whole} of {wanted} and parts of others"),
        }
    }

    /// The paper's number for a class, or without a class the mean over all classes; only if classes and settings are the same.
    /// Networks for images are compared with the paper's even if they were trained for fewer epochs.
    pub fn paper(&self, method: &str, class: Option<&str>, metric: &Metric) -> Option<f64> {
        let same = self.about.net.is_some() || !self.changed.contains_key(method);
        let set = self.about.set.as_deref().filter(|_| same)?;
        let number = |class: &str| match &self.about.net {
            None => published::tabular(set, class, metric.key, method),
            Some(net) => published::images(net, set, class, metric.key, method),
        };
        match class {
            Some(class) => number(class),
            None if self.classes.len() < self.about.classes.len() => None,
            None => {
                let all: Vec<f64> = self.classes.iter().map(|c| number(c)).collect::<Option<_>>()?;
                Some(all.iter().sum::<f64>() / all.len() as f64)
            }
        }
    }

    /// A description of the paper's numbers, if it has any for these cells.
    fn papers(&self) -> Option<String> {
        let any = |method: &&str| self.classes.iter().any(|c| self.paper(method, Some(c), metric("auroc")).is_some());
        let network = self.about.net.as_deref().and_then(published::network);
        self.methods.iter().any(any).then(|| match network {
            Some(network) => format!("the paper's ({network}, 200 epochs)"),
            None => "the paper's".into(),
        })
    }

    /// A text for each failed cell.
    pub fn failures(&self) -> Vec<String> {
        let failed = self.cells.iter().filter_map(|c| Some((c, c.error.as_ref()?)));
        let images = self.about.net.is_some();
        let text = |(c, e): (&Cell, &String)| match images {
            false => format!("{} without {}, fold {}, seed {}: {e}", c.method, c.ood, c.fold, c.seed),
            true => format!("{} against {}, seed {}: {e}", c.method, c.ood, c.seed),
        };
        failed.map(text).collect()
    }

    /// The three best methods, each with a sentence on how well it detects unknown rows.
    pub fn sentences(&self) -> Vec<(String, String)> {
        let (auroc, tnr) = (metric("auroc"), metric("tnr95"));
        let one = |method: &&str| {
            let (mean, rejected) = (self.mean(method, auroc)?, self.mean(method, tnr)?);
            let classes = self.classes.iter().filter_map(|c| Some((*c, self.class(method, c, auroc)?.mean)));
            let (hardest, worst) = classes.min_by(|a, b| a.1.total_cmp(&b.1))?;
            let sentence = format!(
                "AUROC {:.2} for {}; at a threshold that keeps 95% of the known test rows, {:.1}% of {} are detected; hardest is \
                 {hardest} ({worst:.2})",
                mean.mean,
                self.words().what,
                rejected.mean,
                self.words().such
            );
            Some((mean.mean, method.to_string(), sentence))
        };
        let whole = self.methods.iter().filter(|m| self.complete(m));
        let mut all: Vec<(f64, String, String)> = whole.filter_map(one).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.into_iter().take(3).map(|(_, method, sentence)| (method, sentence)).collect()
    }

    /// The description at the start of every output.
    fn header(&self) -> String {
        let seeds = if self.seeds == 1 { String::new() } else { format!(", {} seeds", self.seeds) };
        let classes = match (self.classes.len(), self.about.classes.len()) {
            (some, all) if some == all => "Each class".to_owned(),
            (some, all) => format!("{some} of {all} classes"),
        };
        let folds = match self.cells.iter().map(|c| c.fold).collect::<BTreeSet<_>>().len() {
            some if some == self.folds => format!("{some} folds"),
            some => format!("{some} of {} folds", self.folds),
        };
        let text = match self.about.net {
            None => format!("{}. {classes} left out in turn, {folds}{seeds}", self.about.coverage),
            Some(_) => {
                let sets = self.classes.len();
                let plural = if sets == 1 { "" } else { "s" };
                format!("{}. Compared with {sets} other set{plural}{seeds}", self.about.coverage)
            }
        };
        let mut changes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        self.changed.iter().for_each(|(method, what)| changes.entry(what).or_default().push(method));
        // With many methods the largest group is not listed, if each method is in one.
        let largest =
            changes.values().map(Vec::len).max().filter(|n| *n > 3 && self.changed.len() == self.methods.len());
        let (mut listed, mut others) = (String::new(), String::new());
        for (what, methods) in &changes {
            match largest == Some(methods.len()) && others.is_empty() {
                true if changes.len() == 1 => others = format!("; all methods: {what}"),
                true => others = format!("; all other methods: {what}"),
                false => listed.push_str(&format!("; {}: {what}", methods.join(", "))),
            }
        }
        text + &listed + &others
    }

    /// Notices about small classes.
    fn remarks(&self) -> Vec<String> {
        self.about.small_classes(self.folds)
    }

    /// The versions of the program that computed the cells.
    pub(in crate::report) fn versions(&self) -> String {
        let all: BTreeSet<&str> = self.cells.iter().map(|c| c.version.as_str()).collect();
        all.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Which methods are best in a row of printed numbers; methods with fewer results are excluded.
    fn best(&self, methods: &[&str], numbers: &[Option<Stat>]) -> Vec<bool> {
        let printed = |(stat, method): (&Option<Stat>, &&str)| {
            stat.filter(|_| self.complete(method)).map(|s| (s.mean * 100.0).round() as i64)
        };
        let shown: Vec<Option<i64>> = numbers.iter().zip(methods).map(printed).collect();
        let most = shown.iter().flatten().max().copied();
        shown.iter().map(|s| s.is_some() && *s == most).collect()
    }
}

/// The differences of a cell's settings from those of its method's name.
fn changes(cell: &Cell) -> Option<String> {
    let method = match &cell.settings.image {
        None => Method::parse(&cell.method).ok()?,
        Some(image) => images::methods(std::slice::from_ref(&cell.method), image.net).ok()?.pop()?,
    };
    let default = Settings { seed: cell.settings.seed, ..method.settings };
    let fields = |s: &Settings| match serde_json::to_value(s) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let mut all = Vec::new();
    differences(&fields(&cell.settings), &fields(&default), &mut all);
    (!all.is_empty()).then(|| all.join(", "))
}

/// The differences between settings as text; nested settings with the same name are compared field by field.
fn differences(ours: &Map<String, Value>, default: &Map<String, Value>, all: &mut Vec<String>) {
    let words = |v: &Value| v.get("name").unwrap_or(v).to_string().replace('"', "").replace("null", "none");
    for (key, ours) in ours.iter().filter(|(key, value)| default.get(*key) != Some(*value)) {
        match (ours, default.get(key)) {
            (Value::Object(ours), Some(Value::Object(default))) if ours.get("name") == default.get("name") => {
                differences(ours, default, all);
            }
            (_, default) => {
                let default = default.map_or(String::new(), words);
                all.push(format!("{} {} instead of {default}", key.replace('_', " "), words(ours)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
