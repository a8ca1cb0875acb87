//! The paper's protocol for tables: each class in turn is left out as OOD, the others are split into stratified folds.
//!
//! Test rows and OOD rows are scored and nothing else: threshold, epoch, scaling and weights come from the training
//! rows of the fold alone.

use serde::Serialize;

use crate::data::Table;
use crate::error::{Error, Result};
use crate::metrics::{self, Detection};
use crate::model::Model;
use crate::train::{Run, Settings, in_parallel};

/// One class left out, one fold tested.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// The class that training did not see.
    pub left_out: String,
    /// The fold that was tested, counted from 0.
    pub fold: usize,
    /// Share of the fold's rows that were put in their class; none where the method does not classify.
    pub accuracy: Option<f64>,
    /// The fold's rows (ID) against all rows of the class that was left out (OOD).
    pub detection: Detection,
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
    let (known, unknown) = table.leave_out(class)?;
    let parts = known.folds(folds, settings.seed);
    let test_rows = parts.get(fold).ok_or_else(|| {
        Error::setting(format!("there is no fold {fold}")).hint(format!("folds are 0 to {}", folds.saturating_sub(1)))
    })?;
    let train_rows: Vec<usize> = (0..known.rows()).filter(|r| test_rows.binary_search(r).is_err()).collect();
    let (train, test) = (known.select(&train_rows), known.select(test_rows));
    let model = Model::fit_with(&train, settings, run)?.model;
    let (id, ood) = (model.predict(&test)?, model.predict(&unknown)?);
    let right: Vec<bool> = id.class.iter().enumerate().map(|(i, &c)| test.label(i) == Some(c)).collect();
    let accuracy = if model.classifies() { Some(metrics::accuracy(&right)?.accuracy) } else { None };
    Ok(Scenario {
        left_out: class.to_owned(),
        fold,
        accuracy,
        detection: metrics::detection(&id.confidence, &ood.confidence)?,
    })
}

/// Every class left out in turn, on one fold, side by side on `threads` threads.
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
    in_parallel(classes.len(), threads, one).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::train::Preset;

    #[test]
    fn scenarios_do_not_depend_on_threads() {
        let table = digits().select(&(0..400).collect::<Vec<_>>());
        let settings = Settings { hidden: vec![16], latent: 8, epochs: 5, ..Preset::Paper.settings() };
        let run = |threads| serde_json::to_string(&leave_one_out(&table, 1, 5, &settings, threads).unwrap()).unwrap();
        let one = run(1);
        assert_eq!(one, run(3));
        assert_eq!(one.matches("left_out").count(), 10);
        assert!(scenario(&table, "0", 5, 5, &settings, &Run::default()).is_err());
        assert!(scenario(&table, "ten", 0, 5, &settings, &Run::default()).is_err());
    }

    /// The honesty of the protocol: other test rows and other OOD rows, the same model.
    #[test]
    fn test_and_ood_rows_select_nothing() {
        let table = digits();
        let settings = Settings { hidden: vec![16], latent: 8, epochs: 2, ..Preset::Paper.settings() };
        let (known, _) = table.leave_out("4").unwrap();
        let test_rows = known.folds(5, settings.seed)[2].clone();
        let bytes = |table: &Table| {
            let train: Vec<usize> = (0..table.rows()).filter(|r| test_rows.binary_search(r).is_err()).collect();
            Model::fit(&table.select(&train), &settings).unwrap().to_bytes().unwrap()
        };
        let mut changed = known.clone();
        for column in &mut changed.columns {
            if let crate::data::Column::Number(values) = column {
                test_rows.iter().for_each(|&r| values[r] = 1e6);
            }
        }
        assert!(bytes(&known) == bytes(&changed));
    }
}
