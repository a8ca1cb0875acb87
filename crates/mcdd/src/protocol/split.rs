//! One scenario of a table: a class left out, a fold tested.

use super::Scenario;
use crate::compute::parallel_map;
use crate::compute::pool::Pool;
use crate::data::Table;
use crate::error::{Error, Result};
use crate::model::{MIN_CLASS_ROWS, Model, Predictions};
use crate::train::{Run, Settings};

/// The rows of a scenario.
pub struct Split {
    /// All classes but one, without the fold.
    pub train: Table,
    /// The fold.
    pub test: Table,
    /// The class that was left out.
    pub unknown: Table,
}

impl Split {
    /// Leaves out `class`, and fold `fold` of `folds` of the others. `seed` assigns the rows to folds.
    ///
    /// Small classes are not tested, or not trained on either ([`ClassRole`]).
    ///
    /// # Errors
    /// If there is no such class or fold, or nothing to test.
    pub fn new(table: &Table, class: &str, fold: usize, folds: usize, seed: u64) -> Result<Split> {
        let out = table.class_number(class)?;
        let sizes = table.class_sizes();
        let known = table.with_classes(|c| c != out && ClassRole::of(sizes[c], folds) != ClassRole::UnknownOnly);
        let unknown = table.with_classes(|c| c == out);
        let mut parts = known.folds(folds, seed);
        if fold >= parts.len() {
            return Err(Error::setting(format!("there is no fold {fold}"))
                .hint(format!("folds are 0 to {}", folds.saturating_sub(1))));
        }
        let sizes = known.class_sizes();
        let tested = |&row: &usize| {
            known.label(row).is_some_and(|c| ClassRole::of(sizes[c as usize], folds) == ClassRole::Tested)
        };
        let mut test_rows = parts.swap_remove(fold);
        test_rows.retain(tested);
        if test_rows.is_empty() || unknown.rows() == 0 {
            return Err(Error::data(format!("without class {class:?}, fold {fold} has no rows to test"))
                .hint("lower `folds`, or give more rows"));
        }
        let train_rows: Vec<usize> = (0..known.rows()).filter(|r| test_rows.binary_search(r).is_err()).collect();
        Ok(Split { train: known.select(&train_rows), test: known.select(&test_rows), unknown })
    }

    /// Accuracy on the test rows, and how well they are separated from the class that was left out.
    ///
    /// # Errors
    /// If the model cannot read the rows.
    pub fn measure(&self, model: &Model) -> Result<Scenario> {
        // On this thread alone: other threads have other scenarios.
        let pool = Pool::new(1);
        let (known, correct) = self.known(model, &pool)?;
        Scenario::new(model, &known, &correct, &predict(model, &self.unknown, &pool)?)
    }

    /// The predictions of the test rows, and which are correct.
    pub(super) fn known(&self, model: &Model, pool: &Pool) -> Result<(Predictions, Vec<bool>)> {
        let known = predict(model, &self.test, pool)?;
        let correct = known.class.iter().enumerate().map(|(i, &c)| self.test.label(i) == Some(c)).collect();
        Ok((known, correct))
    }
}

pub(super) fn predict(model: &Model, table: &Table, pool: &Pool) -> Result<Predictions> {
    let mut out = Predictions::default();
    model.predict_rows(&model.schema().transform(table, None)?, &mut out, pool)?;
    Ok(out)
}

/// How a class is used while others are left out, by its number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRole {
    /// In every fold some of its rows are tested, and enough are left to train on.
    Tested,
    /// All its rows are trained on in every fold, because fewer would be too few.
    TrainOnly,
    /// It has too few rows to train on and is used only as the class that is left out.
    UnknownOnly,
}

impl ClassRole {
    /// The role of a class with `rows` rows.
    pub fn of(rows: usize, folds: usize) -> ClassRole {
        if rows < MIN_CLASS_ROWS {
            ClassRole::UnknownOnly
        } else if rows < folds || rows - rows.div_ceil(folds.max(1)) < MIN_CLASS_ROWS {
            ClassRole::TrainOnly
        } else {
            ClassRole::Tested
        }
    }
}

/// Trains without `class` and without fold `fold` of `folds`, and tests on both.
///
/// # Errors
/// If the data or the settings cannot be used, or training diverges.
pub fn scenario(
    table: &Table,
    class: &str,
    fold: usize,
    folds: usize,
    settings: &Settings,
    run: &Run,
) -> Result<Scenario> {
    let split = Split::new(table, class, fold, folds, settings.seed)?;
    split.measure(&Model::fit_with(&split.train, settings, run)?.model)
}

/// Every class left out in turn, on one fold, in parallel on `threads` threads.
///
/// # Errors
/// As for [`scenario`].
pub fn leave_one_out(
    table: &Table,
    fold: usize,
    folds: usize,
    settings: &Settings,
    threads: usize,
) -> Result<Vec<Scenario>> {
    let classes = table.classes();
    let one = |i: usize| scenario(table, &classes[i], fold, folds, settings, &Run { threads: 1, ..Run::default() });
    parallel_map(classes.len(), threads, one).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, digits};
    use crate::train::{Preset, Select};

    #[test]
    fn scenarios_do_not_depend_on_threads() {
        let table = digits().select(&(0..400).collect::<Vec<_>>());
        let settings = Settings { hidden: vec![16], latent: 8, epochs: 5, ..Preset::Paper.settings() };
        let run = |threads| serde_json::to_string(&leave_one_out(&table, 1, 5, &settings, threads).unwrap()).unwrap();
        let one = run(1);
        assert_eq!(one, run(3));
        assert_eq!(one.matches("accuracy\":").count(), 20);
        assert!(scenario(&table, "0", 5, 5, &settings, &Run::default()).is_err());
        assert!(scenario(&table, "ten", 0, 5, &settings, &Run::default()).is_err());
    }

    /// Other test rows and other OOD rows give the same model.
    #[test]
    fn test_and_ood_rows_select_nothing() {
        let table = digits();
        let small = |settings: Settings| Settings { hidden: vec![16], latent: 8, epochs: 2, steps: None, ..settings };
        let all = [
            small(Preset::Paper.settings()),
            small(Settings { select: Select::Best, ..Preset::Paper.settings() }),
            small(Preset::Best.settings()),
        ];
        let seed = all[0].seed;
        let bytes = |table: &Table| {
            let split = Split::new(table, "4", 2, 5, seed).unwrap();
            let fit = |settings: &Settings| Model::fit(&split.train, settings).unwrap().to_bytes().unwrap();
            all.each_ref().map(fit)
        };
        // A column with row numbers shows which rows are where.
        let mut numbered = table.clone();
        numbered.columns[0] = Column::Number((0..table.rows()).map(|r| r as f64).collect());
        let split = Split::new(&numbered, "4", 2, 5, seed).unwrap();
        let rows = |t: &Table| match &t.columns[0] {
            Column::Number(values) => values.iter().map(|&v| v as usize).collect::<Vec<_>>(),
            Column::Text { .. } => vec![],
        };
        let (train, tested, unknown) = (rows(&split.train), rows(&split.test), rows(&split.unknown));
        let mut all = [train, tested.clone(), unknown.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..table.rows()).collect::<Vec<_>>());
        let mut changed = table.clone();
        for column in &mut changed.columns {
            if let Column::Number(values) = column {
                tested.iter().chain(&unknown).for_each(|&r| values[r] = 1e6 + (r * r) as f64 / 7.0);
            }
        }
        assert!(bytes(&table) == bytes(&changed));
        // Other training rows give another model.
        if let Column::Number(values) = &mut changed.columns[1] {
            (0..table.rows()).filter(|r| !tested.contains(r)).for_each(|r| values[r] += 1.0);
        }
        let [before, after] = [bytes(&table), bytes(&changed)];
        assert!(before.iter().zip(&after).all(|(a, b)| a != b));
    }

    #[test]
    fn small_classes_are_only_trained_on_or_only_unknown() {
        // Five folds: one class too small to train on, two too small to test, two large enough.
        let sizes = [("a", 4), ("b", 5), ("c", 6), ("d", 7), ("e", 20)];
        use ClassRole::{Tested, TrainOnly, UnknownOnly};
        let parts = sizes.map(|(_, n)| ClassRole::of(n, 5));
        assert_eq!(parts, [UnknownOnly, TrainOnly, TrainOnly, Tested, Tested]);
        let rows =
            sizes.iter().flat_map(|(c, n)| (0..*n).map(move |i| format!("{:.3},{c}\n", ((i * i + n) as f64).sin())));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        std::fs::write(&path, format!("x,label\n{}", rows.collect::<String>())).unwrap();
        let table = Table::read(&[path], &crate::data::ReadOptions::default()).unwrap();
        let mut tested = 0;
        for fold in 0..5 {
            let split = Split::new(&table, "e", fold, 5, 0).unwrap();
            let [train, test] = [&split.train, &split.test].map(Table::class_sizes);
            assert_eq!(split.train.classes(), ["b", "c", "d"]);
            assert!(train[..2] == [5, 6] && test[..2] == [0, 0] && train[2] >= 5 && train[2] + test[2] == 7);
            tested += split.test.rows();
            // As the unknown class it has all its rows.
            assert_eq!(Split::new(&table, "a", fold, 5, 0).unwrap().unknown.rows(), 4);
        }
        assert_eq!(tested, 7);
        assert!(Split::new(&table, "e", 0, 20, 0).is_err());
    }
}
