//! Explanations: how much each column lowers the confidence of a row.
//!
//! One column at a time, the inputs of the column (for a category all of them, and the indicator of a missing cell) are
//! replaced by their mean over the training rows of the predicted class, and the row is scored again. The gain in confidence
//! is the contribution of the column. This works for every method and detector.

use serde::Serialize;

use super::{Model, Predictions};
use crate::compute::pool::Pool;
use crate::data::{ColumnKind, Unseen};
use crate::error::{Error, Result};

/// The largest number of values of class means; with more, only the mean of all rows is stored.
const MAX_VALUES: usize = 1 << 22;

/// The number of values that are scored at a time.
const BLOCK: usize = 1 << 20;

/// The means of the preprocessed training rows: of each class, or of all rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Centers {
    width: usize,
    values: Vec<f32>,
}

impl Centers {
    /// From some rows of many, with their labels; the mean of all of them if there are no labels, or too many classes to
    /// store.
    pub(super) fn fit(x: &[f32], width: usize, rows: &[usize], labels: Option<&[u32]>, classes: usize) -> Centers {
        let labels = labels.filter(|_| classes.saturating_mul(width) <= MAX_VALUES);
        let groups = if labels.is_some() { classes.max(1) } else { 1 };
        let mut sums = vec![0.0f64; groups * width];
        let mut counts = vec![0usize; groups];
        for (i, row) in rows.iter().map(|&row| &x[row * width..(row + 1) * width]).enumerate() {
            let group = labels.map_or(0, |l| l[i] as usize);
            counts[group] += 1;
            sums[group * width..(group + 1) * width].iter_mut().zip(row).for_each(|(s, &v)| *s += f64::from(v));
        }
        let mean = |(i, sum): (usize, f64)| (sum / counts[i / width].max(1) as f64) as f32;
        Centers { width, values: sums.into_iter().enumerate().map(mean).collect() }
    }

    /// From stored values; `None` unless there is one mean, or one for each class.
    pub(super) fn from_values(values: Vec<f32>, width: usize, classes: usize) -> Option<Centers> {
        let groups = values.len() / width;
        (groups * width == values.len() && (groups == 1 || groups == classes)).then_some(Centers { width, values })
    }

    /// The number of means and the number of inputs.
    pub(super) fn shape(&self) -> [usize; 2] {
        [self.values.len() / self.width, self.width]
    }

    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }

    /// The mean of a class, or of all rows.
    fn get(&self, class: Option<u32>) -> (&[f32], Option<u32>) {
        let class = class.filter(|&c| self.shape()[0] > 1 && (c as usize) < self.shape()[0]);
        let at = class.unwrap_or(0) as usize * self.width;
        (&self.values[at..at + self.width], class)
    }
}

/// The contribution of a column to the confidence of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contribution {
    /// The column.
    pub column: String,
    /// The value of the row, in the units of the table.
    pub value: String,
    /// The expected value: the mean of the class's training rows, or their most frequent category with its fraction.
    pub expected: String,
    /// The distance of the value from that mean, in standard deviations of all training rows; `None` for categories.
    pub deviations: Option<f64>,
    /// The gain in confidence if the column has its expected value.
    pub gain: f64,
    /// About a category that training did not have: which it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The columns that explain the confidence of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The class that the row is compared with, which is the predicted one; `None` for all training rows.
    pub class: Option<u32>,
    /// The columns that contribute most, in descending order.
    pub columns: Vec<Contribution>,
}

impl Model {
    /// The number of columns of an explanation; each of them costs a prediction.
    pub fn explained_columns(&self) -> usize {
        self.schema().inputs().len()
    }

    /// Whether it can explain predictions: models of tables can.
    pub fn explains(&self) -> bool {
        self.centers.is_some()
    }

    /// Explains the prediction of one preprocessed row by the `most` columns that contribute most. `unseen` are the
    /// cells of the row that hold a category not seen in training, so that they can be named; it may be empty.
    ///
    /// # Errors
    /// If the row does not match the model, or the model was trained on images.
    pub fn explain(&self, x: &[f32], unseen: &[Unseen], most: usize, pool: &Pool) -> Result<Explanation> {
        let centers = self.centers.as_ref().ok_or_else(|| {
            Error::format("the model has no means of its training rows, so it cannot explain predictions")
                .hint("train it on a table")
        })?;
        let mut predictions = Predictions::default();
        self.predict_rows(x, &mut predictions, pool)?;
        let &[confidence] = &predictions.confidence[..] else {
            return Err(Error::data("only one row can be explained at a time"));
        };
        let (center, class) = centers.get(predictions.class.first().copied());
        let columns = self.schema().inputs();
        let mut gains = Vec::with_capacity(columns.len());
        for part in columns.chunks((BLOCK / x.len().max(1)).max(1)) {
            let mut rows = x.repeat(part.len());
            for (row, (_, at)) in rows.chunks_exact_mut(x.len()).zip(part) {
                row[at.clone()].copy_from_slice(&center[at.clone()]);
            }
            self.predict_rows(&rows, &mut predictions, pool)?;
            gains.extend(predictions.confidence.iter().map(|c| c - confidence));
        }
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by(|&a, &b| gains[b].total_cmp(&gains[a]));
        let contribution = |&i: &usize| {
            let (column, at) = &columns[i];
            let (own, mean) = (&x[at.clone()], &center[at.clone()]);
            // A missing cell has no distance from the mean.
            let numeric = matches!(column.kind, ColumnKind::Numeric { .. } | ColumnKind::Time { .. });
            let numeric = numeric && !column.is_missing(own);
            let is = |u: &&Unseen| self.schema().columns.get(u.column).is_some_and(|c| c.name == column.name);
            let text = unseen.iter().find(is).map(|u| &u.text);
            Contribution {
                column: column.name.clone(),
                value: text.cloned().unwrap_or_else(|| column.cell(own)),
                expected: column.usual(mean),
                deviations: numeric.then(|| f64::from(own[0]) - f64::from(mean[0])),
                gain: gains[i],
                note: text.map(|text| column.not_among(text)),
            }
        };
        Ok(Explanation { class, columns: order.iter().take(most).map(contribution).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Table;
    use crate::head::HeadConfig;
    use crate::seed::Stream;
    use crate::train::{Preset, Settings};

    /// Two classes in six columns.
    fn rows(n: usize) -> (Vec<f32>, Vec<&'static str>) {
        let mut random = Stream::new(1, "explain");
        let labels: Vec<&str> = (0..n).map(|i| ["a", "b"][i % 2]).collect();
        let value =
            |l: &&str, c: usize, r: &mut Stream| (if (*l == "a") == (c < 3) { 3.0 } else { 0.0 } + r.normal()) as f32;
        let x = labels.iter().flat_map(|l| (0..6).map(|c| value(l, c, &mut random)).collect::<Vec<_>>()).collect();
        (x, labels)
    }

    #[test]
    fn the_column_that_was_changed_contributes_most() {
        let (x, labels) = rows(400);
        let table = Table::from_rows(&x, 6, Some(&labels)).unwrap();
        let fast = Settings { epochs: 15, ..Preset::Fast.settings() };
        let alone = Settings { epochs: 5, head: HeadConfig::parse("deep-svdd").unwrap(), ..Preset::Paper.settings() };
        for (settings, names) in [(fast, true), (alone, false)] {
            let model = Model::fit(&table, &settings).unwrap();
            let model = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
            let inputs = model.schema().transform(&table, None).unwrap();
            let pool = Pool::new(2);
            for (i, column) in [(0, 1), (1, 4), (7, 2)] {
                let mut row = inputs[i * 6..(i + 1) * 6].to_vec();
                row[column] += 12.0;
                let found = model.explain(&row, &[], 3, &pool).unwrap();
                assert_eq!(found.columns.len(), 3);
                let first = &found.columns[0];
                assert_eq!(first.column, table.names[column], "{found:?}");
                assert!(first.gain > 0.0 && first.gain >= found.columns[1].gain);
                assert!(first.deviations.unwrap() > 8.0);
                assert_eq!(found.class.is_some(), names);
            }
            assert!(
                model.explain(&inputs[..12], &[], 3, &pool).is_err() && model.explain(&[1.0], &[], 3, &pool).is_err()
            );
        }
    }

    #[test]
    fn means_are_those_of_the_rows() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 9.0];
        let by_class = Centers::fit(&x, 2, &[0, 1, 2], Some(&[0, 1, 0]), 2);
        assert_eq!((by_class.shape(), by_class.values()), ([2, 2], &[3.0, 5.5, 3.0, 4.0][..]));
        assert_eq!(by_class.get(Some(1)), (&[3.0, 4.0][..], Some(1)));
        let all = Centers::fit(&x, 2, &[0, 1, 2], None, 2);
        assert_eq!((all.shape(), all.values(), all.get(Some(1)).1), ([1, 2], &[3.0, 5.0][..], None));
        assert!(Centers::from_values(vec![0.0; 6], 2, 2).is_none());
        assert!(Centers::from_values(vec![0.0; 4], 2, 2).is_some());
    }
}
