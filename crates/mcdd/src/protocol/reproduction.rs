//! The plan of a reproduction: the commands that make the paper's tables and figures from the data sets that are there.
//!
//! ```
//! use mcdd::protocol::reproduction::{Part, Plan};
//!
//! // Without data every study is missing, and the plan says which data sets it needs.
//! let plan = Plan::new(&[Part::Tables], false, std::path::Path::new("no such folder"));
//! assert!(plan.studies().next().is_none() && plan.gaps[0].why.contains("mcdd datasets get"));
//! ```

use std::path::Path;

use super::Method;
use super::published::METHODS;
use crate::data::sets::{self, thousands};

/// The parts of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Table 2 and the study of nu, for four data sets.
    Tables,
    /// The figures: bars and metrics against nu from the results of the tables, and latent spaces.
    Figures,
    /// Tables 3 and 4.
    Images,
}

impl Part {
    /// All of them, in the order in which they are made.
    pub const ALL: [Part; 3] = [Part::Tables, Part::Figures, Part::Images];
}

/// What is made, with the words of the `mcdd` command that makes it; the output, and the folders of results, are added by
/// who runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name of the folder of a study, or of the files of a figure.
    pub name: String,
    /// The number and title that the paper, or the page, has for it.
    pub title: String,
    /// The part that it belongs to.
    pub part: Part,
    /// What kind of step it is.
    pub kind: StepKind,
    /// The words of the command, without `mcdd`.
    pub command: Vec<String>,
}

/// The kinds of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A study of `mcdd bench`: a folder of results, resumed where it was stopped.
    Study,
    /// A figure for which networks are trained.
    Drawing,
    /// A figure of the results of studies, by their names.
    OfResults(Vec<String>),
}

/// Something that is not made, or made smaller than in the paper, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// What.
    pub what: String,
    /// Why, and what to do.
    pub why: String,
}

/// The steps of a reproduction, and what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether it is a run of minutes, whose numbers are not comparable with the paper's.
    pub quick: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What is left out for want of data or time.
    pub gaps: Vec<Gap>,
}

/// Rows and epochs of a quick run.
const QUICK_ROWS: usize = 2_000;
const QUICK_EPOCHS: usize = 5;
/// Images and epochs of a quick run.
const QUICK_IMAGES: usize = 1_000;
const QUICK_IMAGE_EPOCHS: usize = 1;

/// The data sets of Table 2, each with whether its methods without printed numbers are tested on one fold only.
const TABLES: [(&str, bool); 4] = [("gas", false), ("drive", false), ("shuttle", false), ("mnist", true)];
/// The image sets of Tables 3 and 4, each with the sets that are out-of-distribution.
const IMAGES: [(&str, [&str; 3]); 3] = [
    ("cifar10", ["svhn", "tinyimagenet", "lsun"]),
    ("cifar100", ["svhn", "tinyimagenet", "lsun"]),
    ("svhn", ["cifar10", "tinyimagenet", "lsun"]),
];
/// The network and the epochs of images: those of the paper would take days for each network on a CPU.
const IMAGE_NET: (&str, usize) = ("resnet20", 20);
/// The data set, the class left out and the number of rows of the latent spaces.
const LATENT: (&str, &str, usize) = ("mnist", "7", 10_000);

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

impl Plan {
    /// The steps of some parts with the data sets that are in a folder; `quick` for a run of minutes.
    pub fn new(parts: &[Part], quick: bool, data: &Path) -> Plan {
        let mut plan = Plan { quick, steps: Vec::new(), gaps: Vec::new() };
        let wanted = |part| parts.contains(&part);
        let there = |name: &str| sets::find(name).is_some_and(|set| set.locate(data).is_some());
        if wanted(Part::Tables) {
            plan.tables(&there);
        }
        if wanted(Part::Figures) {
            plan.figures(&there);
        }
        if wanted(Part::Images) {
            plan.images(&|name, part| sets::find(name).is_some_and(|set| set.has_images(data, part)));
        }
        plan
    }

    /// The steps that are studies.
    pub fn studies(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|s| s.kind == StepKind::Study)
    }

    /// What a quick run leaves out.
    pub fn quick_terms() -> String {
        format!(
            "one fold, {QUICK_EPOCHS} epochs and at most {} rows of each table; {QUICK_IMAGE_EPOCHS} epoch of a small network \
             and at most {} images of each set",
            thousands(QUICK_ROWS),
            thousands(QUICK_IMAGES)
        )
    }

    fn add(&mut self, part: Part, kind: StepKind, name: &str, title: String, command: &str) {
        self.steps.push(Step { name: name.to_owned(), title, part, kind, command: words(command) });
    }

    fn gap(&mut self, what: String, why: String) {
        self.gaps.push(Gap { what, why });
    }

    fn lacks(&mut self, what: String, set: &str) {
        self.lacks_some(what, "data", set);
    }

    fn lacks_some(&mut self, what: String, some: &str, set: &str) {
        self.gap(what, format!("its {some} are not there; mcdd datasets get {set} downloads them"));
    }

    /// The options of a table's study in a quick run.
    fn quick_table(&self) -> String {
        match self.quick {
            true => format!(" --test-folds 1 --epochs {QUICK_EPOCHS} --limit {QUICK_ROWS}"),
            false => String::new(),
        }
    }

    fn tables(&mut self, there: &dyn Fn(&str) -> bool) {
        let quick = self.quick_table();
        for (set, slow) in TABLES {
            let title = format!("Table 2, {}", title(set));
            if !there(set) {
                self.lacks(title, set);
                continue;
            }
            if !slow || self.quick {
                self.add(Part::Tables, StepKind::Study, set, title, &format!("bench {set} --methods paper{quick}"));
                continue;
            }
            let others: Vec<String> = Method::asked_for(&["paper".into()]);
            let others: Vec<&str> = others.iter().map(String::as_str).filter(|m| !METHODS.contains(m)).collect();
            let printed = format!("bench {set} --methods {}", METHODS.join(","));
            self.add(Part::Tables, StepKind::Study, set, title.clone(), &printed);
            let shown = format!("bench {set} --methods {} --test-folds 1", others.join(","));
            self.add(Part::Tables, StepKind::Study, set, title, &shown);
            self.gap(
                format!("{} on {}", others.join(", "), self::title(set)),
                "for want of time: one of five folds; the paper prints no numbers of them".into(),
            );
        }
        for (set, slow) in TABLES {
            let title = format!("nu, {}", title(set));
            if !there(set) {
                self.lacks(title, set);
                continue;
            }
            let some = if slow && !self.quick { " --test-folds 1" } else { "" };
            if !some.is_empty() {
                self.gap(title.clone(), "for want of time: one of five folds".into());
            }
            let command = format!("bench {set} --methods nu{quick}{some}");
            self.add(Part::Tables, StepKind::Study, &format!("{set}-nu"), title, &command);
        }
    }

    fn figures(&mut self, there: &dyn Fn(&str) -> bool) {
        let (set, ood, rows) = LATENT;
        let (rows, epochs) =
            if self.quick { (QUICK_ROWS, format!(" --epochs {QUICK_EPOCHS}")) } else { (rows, String::new()) };
        for (name, what) in [("latent", "Latent spaces of the methods"), ("nu-latent", "Latent spaces for several nu")]
        {
            if !there(set) {
                self.lacks(what.to_owned(), set);
                continue;
            }
            let command = format!("figure {name} {set} --ood {ood} --limit {rows}{epochs}");
            self.add(Part::Figures, StepKind::Drawing, name, what.to_owned(), &command);
        }
        let all: Vec<String> = TABLES.map(|(set, _)| set.to_owned()).into();
        self.add(Part::Figures, StepKind::OfResults(all), "figure", "Bars of the methods".into(), "figure bars");
        for (set, _) in TABLES {
            let kind = StepKind::OfResults(vec![format!("{set}-nu")]);
            self.add(
                Part::Figures,
                kind,
                &format!("nu-{set}"),
                format!("Metrics against nu, {}", title(set)),
                "figure nu",
            );
        }
    }

    fn images(&mut self, has: &dyn Fn(&str, sets::Part) -> bool) {
        let (net, options) = match self.quick {
            true => ("resnet8", format!("--epochs {QUICK_IMAGE_EPOCHS} --limit {QUICK_IMAGES}")),
            false => (IMAGE_NET.0, format!("--epochs {}", IMAGE_NET.1)),
        };
        for (id, ood) in IMAGES {
            let what = format!("Tables 3 and 4, {}", title(id));
            let (some, others): (Vec<&str>, Vec<&str>) = ood.into_iter().partition(|o| has(o, sets::Part::Test));
            let absent = match (has(id, sets::Part::Train), has(id, sets::Part::Test)) {
                (true, true) => None,
                (false, false) => Some("data"),
                (false, true) => Some("images to train with"),
                (true, false) => Some("images to test with"),
            };
            if let Some(absent) = absent {
                self.lacks_some(what, absent, id);
                continue;
            }
            others.iter().for_each(|o| self.lacks(format!("{what} against {}", title(o)), o));
            if !some.is_empty() {
                let command = format!("bench images --id {id} --ood {} --net {net} {options}", some.join(","));
                self.add(Part::Images, StepKind::Study, &format!("images-{id}"), what, &command);
            }
        }
        if !self.quick {
            self.gap(
                "ResNet-34 and DenseNet-100, trained for 200 epochs".into(),
                format!("for want of time: {net}, {} epochs, beside the paper's numbers of ResNet-34", IMAGE_NET.1),
            );
        }
    }
}

fn title(set: &str) -> &str {
    sets::find(set).map_or(set, |s| s.title)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("gas")).unwrap();
        std::fs::write(dir.path().join("gas/batch1.dat"), "1 1:1\n").unwrap();
        dir
    }

    #[test]
    fn what_is_there_is_planned_and_the_rest_is_named() {
        let dir = folder();
        let plan = Plan::new(&Part::ALL, false, dir.path());
        let studies: Vec<&str> = plan.studies().map(|s| s.name.as_str()).collect();
        assert_eq!(studies, ["gas", "gas-nu"]);
        assert_eq!(plan.steps[0].command, words("bench gas --methods paper"));
        for name in ["Shuttle", "MNIST", "CIFAR-10", "SVHN", "Latent spaces"] {
            assert!(plan.gaps.iter().any(|g| g.what.contains(name) && g.why.contains("datasets get")), "{name}");
        }
        // The study of the whole of MNIST: what has printed numbers on all folds, the others on one.
        std::fs::create_dir(dir.path().join("mnist")).unwrap();
        std::fs::write(dir.path().join("mnist/t10k-images-idx3-ubyte.gz"), "").unwrap();
        let plan = Plan::new(&[Part::Tables], false, dir.path());
        let mnist: Vec<String> = plan.studies().filter(|s| s.name == "mnist").map(|s| s.command.join(" ")).collect();
        assert_eq!(mnist[0], "bench mnist --methods softmax+msp,softmax+mahalanobis,deep-mcdd");
        assert!(mnist.len() == 2 && mnist[1].contains("alad") && mnist[1].ends_with("--test-folds 1"), "{mnist:?}");
        assert!(plan.gaps.iter().any(|g| g.what.contains("alad") && g.why.contains("for want of time")));
    }

    /// SVHN is often there for its test part alone, as an out-of-distribution set.
    #[test]
    fn a_set_without_images_to_train_with_is_only_tested_with() {
        let dir = folder();
        for (folder, names) in
            [("svhn", vec!["test_32x32.mat"]), ("cifar-10-batches-bin", vec!["data_batch_1.bin", "test_batch.bin"])]
        {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
            names.iter().for_each(|name| std::fs::write(dir.path().join(folder).join(name), "").unwrap());
        }
        let plan = Plan::new(&[Part::Images], false, dir.path());
        let studies: Vec<String> = plan.studies().map(|s| s.command.join(" ")).collect();
        assert_eq!(studies, ["bench images --id cifar10 --ood svhn --net resnet20 --epochs 20"]);
        let why = "its images to train with are not there; mcdd datasets get svhn downloads them";
        let svhn = Gap { what: "Tables 3 and 4, SVHN".into(), why: why.into() };
        assert!(plan.gaps.contains(&svhn), "{:?}", plan.gaps);
    }

    #[test]
    fn a_quick_run_has_few_rows_and_epochs() {
        let dir = folder();
        let plan = Plan::new(&Part::ALL, true, dir.path());
        for study in plan.studies() {
            let command = study.command.join(" ");
            assert!(command.contains("--limit 2000") && command.contains("--epochs 5"), "{command}");
        }
        assert!(Plan::quick_terms().contains("2,000 rows"));
    }
}
