//! The protocol for tables: each class left out in turn, the others in folds.

use sha2::{Digest, Sha256};

use super::Method;
use super::grid::{Experiment, Group, Trial};
use super::results::About;
use super::split::{ClassRole, Split, predict};
use crate::compute::pool::Pool;
use crate::data::list;
use crate::data::sets::{Coverage, thousands};
use crate::data::{Column, Table};
use crate::error::{Error, Result, count, plural};
use crate::model::{FitResult, Model, Predictions};
use crate::train::{Run, Settings};

/// A table whose classes are left out one at a time.
#[derive(Clone, Debug)]
pub struct LeaveOneOut<'a> {
    /// All rows.
    pub table: &'a Table,
    /// The classes that are left out.
    pub classes: Vec<String>,
    /// The number of folds of the other classes' rows, 2 or more.
    pub folds: usize,
    /// How many of the folds are tested in turn, 1 to `folds`.
    pub tested: usize,
}

impl Experiment for LeaveOneOut<'_> {
    fn check(&self) -> Result<()> {
        let rules = [
            ((2..=1000).contains(&self.folds), "folds", self.folds, "2 to 1,000".to_owned()),
            ((1..=self.folds).contains(&self.tested), "test_folds", self.tested, format!("1 to {}", self.folds)),
        ];
        if let Some((_, name, value, rule)) = rules.into_iter().find(|(holds, ..)| !holds) {
            return Err(Error::setting(format!("`{name}` is {value}")).hint(format!("`{name}` must be {rule}")));
        }
        let sizes = self.table.class_sizes();
        let least = if sizes.len() == 2 { 1 } else { 2 };
        let possible = |class: &String| {
            let out = self.table.class_number(class).unwrap_or(usize::MAX);
            let others = || (0..sizes.len()).filter(|c| *c != out).map(|c| ClassRole::of(sizes[c], self.folds));
            others().any(|r| r == ClassRole::Tested)
                && others().filter(|r| *r != ClassRole::UnknownOnly).count() >= least
        };
        if self.classes.is_empty() || self.classes.iter().any(possible) {
            return Ok(());
        }
        Err(Error::data(format!("classes are too small for {} folds: none of their rows could be tested", self.folds))
            .hint("lower `folds`, or give more rows; if these are not classes, check `label`"))
    }

    fn check_method(&self, method: &Method) -> Result<()> {
        if self.table.classes().len() > 2 || !method.needs_classes() {
            return Ok(());
        }
        Err(Error::setting(format!(
            "{} is trained on two classes or more, and of two classes one is left out",
            method.name
        ))
        .hint("give `methods=one-class`: methods that are trained without classes, such as deep-svdd"))
    }

    fn folds(&self) -> usize {
        self.folds
    }

    fn groups(&self) -> Vec<Group> {
        let all = (0..self.tested).flat_map(|fold| self.classes.iter().map(move |class| (fold, class)));
        all.map(|(fold, class)| Group { fold, name: class.clone(), ood: vec![class.clone()] }).collect()
    }

    fn trial(&self, group: &Group, seed: u64) -> Result<Box<dyn Trial + '_>> {
        Ok(Box::new(Split::new(self.table, &group.name, group.fold, self.folds, seed)?))
    }

    fn long_running(&self) -> bool {
        false
    }
}

impl Trial for Split {
    fn fit(&self, settings: &Settings, run: &Run) -> Result<FitResult> {
        Model::fit_with(&self.train, settings, run)
    }

    fn known(&self, model: &Model, pool: &Pool) -> Result<(Predictions, Vec<bool>)> {
        Split::known(self, model, pool)
    }

    fn unknown(&self, model: &Model, _ood: &str, pool: &Pool) -> Result<Predictions> {
        predict(model, &self.unknown, pool)
    }
}

impl About {
    /// Describes a table; `coverage` if it is a published data set.
    ///
    /// # Errors
    /// If it has fewer than two classes.
    pub fn new(table: &Table, title: &str, coverage: Option<&Coverage>) -> Result<About> {
        let (rows, columns, classes) = (table.rows(), table.columns.len(), table.classes().len());
        if classes < 2 {
            return Err(Error::data(format!(
                "there {} {}",
                if classes == 1 { "is" } else { "are" },
                count(classes, "class")
            ))
            .hint("one class is left out and at least one must remain: give data with two or more"));
        }
        let whole = || {
            let number = |n: usize, what: &str| format!("{} {}", thousands(n), plural(n, what));
            format!("{}, {}, {}", number(rows, "row"), number(columns, "feature"), number(classes, "class"))
        };
        Ok(About {
            title: coverage.map_or(title, |c| c.set.title).to_owned(),
            set: coverage.map(|c| c.set.name.to_owned()),
            coverage: coverage.map_or_else(|| format!("{title}: {}", whole()), Coverage::to_string),
            classes: table.classes().iter().cloned().zip(table.class_sizes()).collect(),
            sha256: digest(table),
            net: None,
        })
    }

    /// Notices about classes that are too small for `folds` folds; none for images.
    pub fn small_classes(&self, folds: usize) -> Vec<String> {
        if self.net.is_some() {
            return Vec::new();
        }
        let named = |test: &dyn Fn(usize) -> bool| {
            let all = self.classes.iter().filter(|(_, n)| test(*n)).map(|(c, n)| format!("{c} ({n})"));
            list(&all.collect::<Vec<_>>())
        };
        let role = |role: ClassRole| named(&|n| ClassRole::of(n, folds) == role);
        let few = named(&|n| ClassRole::of(n, folds) == ClassRole::Tested && n < 10 * folds);
        let notices = [
            ("these classes have too few rows to train on and are used only as left out", role(ClassRole::UnknownOnly)),
            ("these classes have too few rows to be tested; all of them are trained on", role(ClassRole::TrainOnly)),
            ("these classes have fewer than ten test rows in a fold", few),
        ];
        let found = notices.into_iter().filter(|(_, which)| !which.is_empty());
        found.map(|(what, which)| format!("{what}: {which}")).collect()
    }
}

/// The SHA-256 of every name and value.
fn digest(table: &Table) -> String {
    let mut hash = Sha256::new();
    let mut text = |t: &str| hash.update([t.as_bytes(), b"\0"].concat());
    table.names.iter().chain(table.classes()).for_each(|t| text(t));
    for column in &table.columns {
        match column {
            Column::Number(values) => {
                for part in values.chunks(4096) {
                    hash.update(part.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
                }
            }
            Column::Text { codes, names } => {
                names.iter().for_each(|n| hash.update([n.as_bytes(), b"\0"].concat()));
                hash.update(codes.iter().flat_map(|c| c.to_le_bytes()).collect::<Vec<u8>>());
            }
        }
    }
    let labels = (0..table.rows()).map(|r| table.label(r).unwrap_or(u32::MAX));
    hash.update(labels.flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
