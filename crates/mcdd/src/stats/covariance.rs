//! Covariances of classes, with shrinkage.

use std::ops::Range;

use super::moments::{class_means, scatter_of};
use super::whitening::{MIN_VARIANCE, Whitening, dot, positive_variances};
use crate::compute::pool::Pool;

/// Rows with class labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labeled<'a> {
    /// The features, row-major.
    pub(crate) x: &'a [f32],
    /// The number of features per row.
    pub(crate) width: usize,
    /// The class of each row.
    pub(crate) labels: &'a [u32],
    /// The number of classes.
    pub(crate) classes: usize,
}

/// The means of a sample, from which covariances are computed.
pub(super) struct Moments<'a> {
    sample: &'a Labeled<'a>,
    /// The mean of each class.
    pub(super) means: Vec<f64>,
    /// The number of rows of each class.
    pub(super) counts: Vec<usize>,
    /// The means rounded to f32, as the rows are: the scatter of a constant feature is then exactly 0.
    centers: Vec<f32>,
}

impl<'a> Moments<'a> {
    /// Computes the means.
    pub(super) fn of(sample: &'a Labeled<'a>) -> Moments<'a> {
        let (means, counts) = class_means(sample.x, sample.width, sample.labels, sample.classes);
        let centers = means.iter().map(|&m| m as f32).collect();
        Moments { sample, means, counts, centers }
    }

    /// The difference of row `r` to the mean of its class.
    fn difference(&self, r: usize, out: &mut [f64]) {
        let (width, y) = (self.sample.width, self.sample.labels[r] as usize);
        let (x, c) = (&self.sample.x[r * width..(r + 1) * width], &self.centers[y * width..(y + 1) * width]);
        for ((o, &x), &c) in out.iter_mut().zip(x).zip(c) {
            *o = f64::from(x) - f64::from(c);
        }
    }

    /// The tied covariance.
    pub(super) fn tied(&self, shrinkage: Option<f64>, pool: &Pool) -> Vec<f64> {
        let (width, rows) = (self.sample.width, self.sample.labels.len());
        let fill = |here: Range<usize>, out: &mut [f64]| {
            here.zip(out.chunks_exact_mut(width)).for_each(|(r, out)| self.difference(r, out));
        };
        let mut covariance = scatter_of(rows, width, &fill, pool);
        covariance.iter_mut().for_each(|c| *c /= rows.max(1) as f64);
        let weight = shrinkage.unwrap_or_else(|| {
            let fourth = self.fourth_powers(|d| dot(d, d) * dot(d, d)).iter().sum();
            ledoit_wolf(&covariance, trace(&covariance, width), width, fourth, rows)
        });
        shrink(&mut covariance, width, weight);
        covariance
    }

    /// The sum of `of(difference)` over the rows of each class.
    fn fourth_powers(&self, of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.sample.classes];
        let mut d = vec![0.0; self.sample.width];
        for (r, &y) in self.sample.labels.iter().enumerate() {
            self.difference(r, &mut d);
            sums[y as usize] += of(&d);
        }
        sums
    }

    /// The variances within each class, and the pooled variances.
    fn variances(&self) -> (Vec<f64>, Vec<f64>) {
        let width = self.sample.width;
        let mut sums = vec![0.0; self.sample.classes * width];
        let mut d = vec![0.0; width];
        for (r, &y) in self.sample.labels.iter().enumerate() {
            self.difference(r, &mut d);
            let sums = &mut sums[y as usize * width..(y as usize + 1) * width];
            sums.iter_mut().zip(&d).for_each(|(s, d)| *s = d.mul_add(*d, *s));
        }
        let mut all = vec![0.0; width];
        for (sums, &n) in sums.chunks_exact_mut(width.max(1)).zip(&self.counts) {
            all.iter_mut().zip(&*sums).for_each(|(a, s)| *a += s / self.sample.labels.len().max(1) as f64);
            sums.iter_mut().for_each(|s| *s /= n.max(1) as f64);
        }
        (sums, all)
    }

    /// The whitening of each class's diagonal covariance.
    pub(super) fn diagonal(&self, shrinkage: Option<f64>) -> Vec<Whitening> {
        let width = self.sample.width;
        let (mut variances, all) = self.variances();
        let fourths = match shrinkage {
            None => self.fourth_powers(|d| d.iter().map(|d| d * d * d * d).sum()),
            Some(_) => vec![0.0; self.sample.classes],
        };
        let least = constant_feature_variances(&all);
        let classes = variances.chunks_exact_mut(width.max(1)).zip(&self.counts).zip(&fourths);
        classes
            .map(|((own, &n), &fourth)| {
                let trace: f64 = own.iter().sum();
                let weight = shrinkage.unwrap_or_else(|| ledoit_wolf(own, trace, width, fourth, n));
                own.iter_mut().for_each(|v| *v = (1.0 - weight) * *v + weight * trace / width as f64);
                if own.iter().all(|&v| v == 0.0) {
                    return Whitening::diagonal(&positive_variances(&all));
                }
                own.iter_mut().zip(&least).filter(|(v, _)| **v == 0.0).for_each(|(v, l)| *v = *l);
                Whitening::diagonal(own)
            })
            .collect()
    }

    /// The whitening of each class's full covariance.
    pub(super) fn full(&self, shrinkage: Option<f64>, pool: &Pool) -> Vec<Whitening> {
        let (width, labels) = (self.sample.width, self.sample.labels);
        let (_, all) = self.variances();
        let least = constant_feature_variances(&all);
        let fourths = match shrinkage {
            None => self.fourth_powers(|d| dot(d, d) * dot(d, d)),
            Some(_) => vec![0.0; self.sample.classes],
        };
        let mut order: Vec<usize> = (0..labels.len()).collect();
        order.sort_by_key(|&r| labels[r]);
        let mut tied = None;
        let mut from = 0;
        let mut found = Vec::with_capacity(self.sample.classes);
        for (&n, &fourth) in self.counts.iter().zip(&fourths) {
            let own = &order[from..from + n];
            from += n;
            let fill = |here: Range<usize>, out: &mut [f64]| {
                here.zip(out.chunks_exact_mut(width)).for_each(|(i, out)| self.difference(own[i], out));
            };
            let mut covariance = scatter_of(n, width, &fill, pool);
            covariance.iter_mut().for_each(|c| *c /= n.max(1) as f64);
            let trace = trace(&covariance, width);
            if trace == 0.0 {
                // All rows are equal: the tied covariance.
                let shared = || Whitening::full(&self.tied(shrinkage, pool), width);
                found.push(tied.get_or_insert_with(shared).clone());
                continue;
            }
            let weight = shrinkage.unwrap_or_else(|| ledoit_wolf(&covariance, trace, width, fourth, n));
            shrink(&mut covariance, width, weight);
            for (j, &least) in least.iter().enumerate() {
                let v = &mut covariance[j * width + j];
                *v = if *v == 0.0 { least } else { *v };
            }
            found.push(Whitening::full(&covariance, width));
        }
        found
    }
}

/// The variance of each feature where it is constant in a class, from the pooled variances.
fn constant_feature_variances(all: &[f64]) -> Vec<f64> {
    let known = positive_variances(all);
    known.iter().zip(all).map(|(&known, &own)| if own > 0.0 { MIN_VARIANCE * known } else { known }).collect()
}

fn trace(covariance: &[f64], width: usize) -> f64 {
    covariance.iter().step_by(width + 1).sum()
}

/// `(1 - weight) S + weight tr(S)/width I`.
fn shrink(covariance: &mut [f64], width: usize, weight: f64) {
    if weight == 0.0 {
        return;
    }
    let mean = trace(covariance, width) / width as f64;
    covariance.iter_mut().for_each(|c| *c *= 1.0 - weight);
    covariance.iter_mut().step_by(width + 1).for_each(|c| *c += weight * mean);
}

/// The weight of the identity after Ledoit and Wolf (A Well-Conditioned Estimator for Large-Dimensional Covariance
/// Matrices, Journal of Multivariate Analysis 2004): the squared error of the covariance divided by its squared distance
/// to a multiple of the identity. `fourth` is the sum over the rows of the squared norm of `d d^T`, whose mean is the
/// covariance. For a diagonal covariance all of these use the diagonal only.
fn ledoit_wolf(covariance: &[f64], trace: f64, width: usize, fourth: f64, rows: usize) -> f64 {
    let (width, rows) = (width as f64, rows.max(1) as f64);
    let squares: f64 = covariance.iter().map(|c| c * c).sum();
    let error = (fourth / rows - squares) / rows;
    let difference = squares - trace * trace / width;
    let error = error.min(difference);
    if error > 0.0 { error / difference } else { 0.0 }
}
