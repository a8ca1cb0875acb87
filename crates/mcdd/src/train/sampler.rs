//! The batches of an epoch.

use crate::head::Sampling;
use crate::seed::Stream;

/// Draws the batches of each epoch; its buffers are reused.
pub(super) struct BatchSampler {
    sampling: Sampling,
    batch: usize,
    /// The rows of each class, for episodes.
    classes: Vec<Vec<usize>>,
    rows: usize,
    order: Vec<usize>,
    /// The end of each batch in `order`.
    ends: Vec<usize>,
    /// Whether all batches have about the same size, so that none is too small for batch normalization.
    even: bool,
}

impl BatchSampler {
    /// For batches of up to `batch` of the rows with these labels; with `even`, all of about the same size.
    pub(super) fn new(sampling: Sampling, batch: usize, even: bool, labels: &[u32]) -> BatchSampler {
        let mut classes: Vec<Vec<usize>> = Vec::new();
        if sampling != Sampling::Shuffled {
            classes.resize(labels.iter().max().map_or(0, |&y| y as usize + 1), Vec::new());
            labels.iter().enumerate().for_each(|(i, &y)| classes[y as usize].push(i));
            classes.retain(|rows| !rows.is_empty());
        }
        BatchSampler {
            sampling,
            batch: batch.max(1),
            classes,
            rows: labels.len(),
            order: Vec::new(),
            ends: Vec::new(),
            even,
        }
    }

    /// The number of batches that cover every row once.
    pub(super) fn steps(&self) -> usize {
        self.rows.div_ceil(self.batch)
    }

    /// Draws the batches of an epoch.
    pub(super) fn draw(&mut self, seed: &mut Stream) {
        self.order.clear();
        self.ends.clear();
        match self.sampling {
            Sampling::Shuffled => {
                self.order.extend(0..self.rows);
                seed.shuffle(&mut self.order);
                let (steps, batch, rows) = (self.steps(), self.batch, self.rows);
                self.ends.extend((1..=steps).map(|i| if self.even { i * rows / steps } else { (i * batch).min(rows) }));
            }
            Sampling::Episodes { rows } => {
                // Back to the initial order, so that an epoch depends on its own seed alone.
                self.classes.iter_mut().for_each(|rows| rows.sort_unstable());
                self.classes.sort_unstable();
                for _ in 0..self.steps() {
                    self.episode(rows, seed);
                    self.ends.push(self.order.len());
                }
            }
        }
    }

    /// Some classes, at least two where there are two, and up to `rows` different rows of each.
    fn episode(&mut self, rows: usize, seed: &mut Stream) {
        let ways = (self.batch / rows).max(2).min(self.classes.len());
        let rows = rows.min(self.batch / ways.max(1)).max(2);
        for way in 0..ways {
            // The first of a shuffle, of the classes and then of the rows: each drawn once.
            let other = way + seed.below(self.classes.len() - way);
            self.classes.swap(way, other);
            let class = &mut self.classes[way];
            for i in 0..rows.min(class.len()) {
                let other = i + seed.below(class.len() - i);
                class.swap(i, other);
                self.order.push(class[i]);
            }
        }
    }

    /// The batches that were drawn.
    pub(super) fn batches(&self) -> impl Iterator<Item = &[usize]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, &to)| &self.order[from..to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_in_one_shuffled_batch() {
        let mut sampler = BatchSampler::new(Sampling::Shuffled, 30, false, &[0; 100]);
        sampler.draw(&mut Stream::new(1, "sampler"));
        let sizes: Vec<usize> = sampler.batches().map(<[usize]>::len).collect();
        assert_eq!((sizes, sampler.steps()), (vec![30, 30, 30, 10], 4));
        let mut even = BatchSampler::new(Sampling::Shuffled, 30, true, &[0; 100]);
        even.draw(&mut Stream::new(1, "sampler"));
        assert_eq!(even.batches().map(<[usize]>::len).collect::<Vec<_>>(), [25; 4]);
        assert!(even.batches().flatten().eq(sampler.batches().flatten()));
        let mut all = sampler.batches().flatten().copied().collect::<Vec<_>>();
        all.sort_unstable();
        assert!(all.iter().enumerate().all(|(i, &r)| i == r));
    }

    #[test]
    fn episodes_have_different_rows_of_few_classes() {
        // 30 classes; the last has 3 rows.
        let labels: Vec<u32> = (0..293).map(|i| if i < 290 { i % 29 } else { 29 }).collect();
        let mut sampler = BatchSampler::new(Sampling::Episodes { rows: 8 }, 64, false, &labels);
        let mut met = std::collections::HashSet::new();
        for epoch in 0..20 {
            sampler.draw(&mut Stream::new(epoch, "sampler"));
            assert_eq!(sampler.batches().count(), 5);
            for batch in sampler.batches() {
                let distinct: std::collections::HashSet<_> = batch.iter().collect();
                assert_eq!(distinct.len(), batch.len());
                let classes: std::collections::HashSet<_> = batch.iter().map(|&r| labels[r]).collect();
                assert_eq!(classes.len(), 8);
                assert!(batch.len() <= 64 && batch.len() >= 7 * 8 + 3);
                met.extend(classes);
            }
        }
        assert_eq!(met.len(), 30);
        // The same seed draws the same batches, whatever was drawn before.
        let mut one = BatchSampler::new(Sampling::Episodes { rows: 8 }, 64, false, &labels);
        one.draw(&mut Stream::new(19, "sampler"));
        let mut two = BatchSampler::new(Sampling::Episodes { rows: 8 }, 64, false, &labels);
        two.draw(&mut Stream::new(3, "sampler"));
        two.draw(&mut Stream::new(19, "sampler"));
        assert_eq!(one.order, two.order);
    }
}
