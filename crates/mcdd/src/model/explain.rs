//! Why a row has its confidence: what each column would add to it if it were as usual.
//!
//! A column's inputs (all of a category's, with the one for a missing cell) are set to their mean over the training rows of
//! the class that the row is nearest to, one column at a time, and the confidence is measured again. What it gains is the
//! column's contribution. That works for every method and detector, and sees what the network sees.

use super::{Model, Predictions};
use crate::compute::pool::Pool;
use crate::error::{Error, Result};

/// Means are kept for each class as long as they are so many numbers at the most; else one for all rows.
const MOST_VALUES: usize = 1 << 22;

/// Inputs that are scored at a time.
const BLOCK: usize = 1 << 20;

/// The means of the training rows as the network gets them: of each class, or of all.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Centers {
    width: usize,
    values: Vec<f32>,
}

impl Centers {
    /// Of rows by rows; of all together where there are no labels, or too many classes to keep.
    pub fn of(x: &[f32], width: usize, labels: Option<&[u32]>, classes: usize) -> Centers {
        let labels = labels.filter(|_| classes.saturating_mul(width) <= MOST_VALUES);
        let groups = if labels.is_some() { classes.max(1) } else { 1 };
        let mut sums = vec![0.0f64; groups * width];
        let mut counts = vec![0usize; groups];
        for (i, row) in x.chunks_exact(width).enumerate() {
            let group = labels.map_or(0, |l| l[i] as usize);
            counts[group] += 1;
            sums[group * width..(group + 1) * width].iter_mut().zip(row).for_each(|(s, &v)| *s += f64::from(v));
        }
        let mean = |(i, sum): (usize, f64)| (sum / counts[i / width].max(1) as f64) as f32;
        Centers { width, values: sums.into_iter().enumerate().map(mean).collect() }
    }

    /// From a file; none if it is not of one group or of every class.
    pub fn from_values(values: Vec<f32>, width: usize, classes: usize) -> Option<Centers> {
        let groups = values.len() / width;
        (groups * width == values.len() && (groups == 1 || groups == classes)).then_some(Centers { width, values })
    }

    /// Groups and inputs.
    pub fn shape(&self) -> [usize; 2] {
        [self.values.len() / self.width, self.width]
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Of a class, or of all rows.
    fn get(&self, class: Option<u32>) -> (&[f32], Option<u32>) {
        let class = class.filter(|&c| self.shape()[0] > 1 && (c as usize) < self.shape()[0]);
        let at = class.unwrap_or(0) as usize * self.width;
        (&self.values[at..at + self.width], class)
    }
}

/// What a column has to do with a row's confidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// The column.
    pub column: String,
    /// The row's cell, in the table's own units.
    pub value: String,
    /// What is usual: the mean of the class's training rows, or their most frequent category with its share.
    pub usual: String,
    /// How far the value is from that mean, in deviations of all training rows; none for categories.
    pub deviations: Option<f64>,
    /// What the confidence gains if the column is as usual.
    pub gain: f64,
}

/// Why a row has its confidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The class that the row is compared with: the one it was put in. None: with all training rows.
    pub class: Option<u32>,
    /// The columns that contribute most, the most first.
    pub columns: Vec<Contribution>,
}

impl Model {
    /// How many columns there are to explain with: each costs a prediction.
    pub fn explained_columns(&self) -> usize {
        self.schema().inputs().len()
    }

    /// Whether it can explain: models of earlier versions cannot.
    pub fn explains(&self) -> bool {
        self.centers.is_some()
    }

    /// Explains one row that is ready for the network by the `most` columns that contribute most.
    ///
    /// # Errors
    /// If the row does not fit, or the model was trained by a version that kept no means.
    pub fn explain(&self, x: &[f32], most: usize, pool: &Pool) -> Result<Explanation> {
        let centers = self.centers.as_ref().ok_or_else(|| {
            Error::format("the model has no means of its training rows to explain with")
                .hint("train it again with this version")
        })?;
        let mut predictions = Predictions::default();
        self.predict_rows(x, &mut predictions, pool)?;
        let &[confidence] = &predictions.confidence[..] else {
            return Err(Error::data("one row can be explained at a time"));
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
            // What is missing is as far from the mean as nothing else.
            let there = |indicator: bool| !indicator || own[1] <= 0.5;
            let numeric = matches!(column.kind, crate::data::ColumnKind::Numeric { indicator, .. } if there(indicator));
            Contribution {
                column: column.name.clone(),
                value: column.cell(own),
                usual: column.usual(mean),
                deviations: numeric.then(|| f64::from(own[0]) - f64::from(mean[0])),
                gain: gains[i],
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
    fn the_column_that_was_moved_is_named() {
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
                let found = model.explain(&row, 3, &pool).unwrap();
                assert_eq!(found.columns.len(), 3);
                let first = &found.columns[0];
                assert_eq!(first.column, table.names[column], "{found:?}");
                assert!(first.gain > 0.0 && first.gain >= found.columns[1].gain);
                assert!(first.deviations.unwrap() > 8.0);
                assert_eq!(found.class.is_some(), names);
            }
            assert!(model.explain(&inputs[..12], 3, &pool).is_err() && model.explain(&[1.0], 3, &pool).is_err());
        }
    }

    #[test]
    fn means_are_those_of_the_rows() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 9.0];
        let by_class = Centers::of(&x, 2, Some(&[0, 1, 0]), 2);
        assert_eq!((by_class.shape(), by_class.values()), ([2, 2], &[3.0, 5.5, 3.0, 4.0][..]));
        assert_eq!(by_class.get(Some(1)), (&[3.0, 4.0][..], Some(1)));
        let all = Centers::of(&x, 2, None, 2);
        assert_eq!((all.shape(), all.values(), all.get(Some(1)).1), ([1, 2], &[3.0, 5.0][..], None));
        assert!(Centers::from_values(vec![0.0; 6], 2, 2).is_none());
        assert!(Centers::from_values(vec![0.0; 4], 2, 2).is_some());
    }
}
