//! Principal components of features, which neighbors are searched among.
//!
//! The features are centered. Those of several layers ([`Training::parts`](super::Training::parts)) are divided by the square root
//! of the layer's total variance, so that no layer counts more because its numbers are larger, and those of layers before the last
//! multiplied by [`HIDDEN`]. Then rows are projected onto the eigenvectors of their covariance with the largest eigenvalues, which
//! keeps as much of the squared distances between rows as so many numbers can.

use super::{BLOCK, MAX_FEATURE, StateDict, Training, clamp_features};
use crate::compute::gemm::{Line, Panels, Then, ZERO, pack_transposed, product};
use crate::compute::pool::{Pool, chunks};
use crate::error::Result;
use crate::onnx::{Builder, Value, wide};
use crate::stats::{Eigen, moments};

/// The weight of layers before the last; half of that of the last in squared distances.
const HIDDEN: f64 = 0.7;

/// A projection onto principal components.
pub(super) struct Reduction {
    center: Vec<f32>,
    /// The eigenvectors, with the scales of the layers: `[components, width]`.
    matrix: Vec<f32>,
    /// The same, packed for matrix products.
    lines: Vec<Line>,
}

impl Reduction {
    /// Fits at most `components` of them, at least one.
    pub(super) fn fit(training: &Training, components: usize, pool: &Pool) -> Reduction {
        let (x, width) = (training.rows.features, training.rows.width());
        let center: Vec<f32> = moments::mean(x, width).into_iter().map(|v| v as f32).collect();
        let mut scatter = moments::scatter(x, width, &|_, c| c.copy_from_slice(&center), pool);
        let parts = if training.parts.is_empty() { &[width][..] } else { training.parts };
        let mut scales = Vec::with_capacity(width);
        for (i, &part) in parts.iter().enumerate() {
            let from = scales.len();
            let sum: f64 = (from..from + part).map(|j| scatter[j * width + j]).sum();
            let weight = if i + 1 < parts.len() { HIDDEN } else { 1.0 };
            let size = libm::sqrt(sum / training.rows.count as f64);
            let scale = if size > 0.0 { (weight / size).min(f64::from(MAX_FEATURE)) } else { 0.0 };
            scales.resize(from + part, scale);
        }
        for (row, a) in scatter.chunks_exact_mut(width).zip(&scales) {
            row.iter_mut().zip(&scales).for_each(|(v, b)| *v *= a * b);
        }
        let vectors = &Eigen::of(&scatter, width).vectors[..components.min(width) * width];
        let matrix = vectors.iter().zip(scales.iter().cycle()).map(|(v, scale)| (v * scale) as f32).collect();
        Reduction::new(center, matrix)
    }

    fn new(center: Vec<f32>, matrix: Vec<f32>) -> Reduction {
        let width = center.len();
        let count = matrix.len() / width;
        let mut lines = vec![ZERO; Panels::lines(width, count)];
        pack_transposed(&mut lines, &matrix, width, count, 0);
        Reduction { center, matrix, lines }
    }

    /// The number of components.
    pub(super) fn components(&self) -> usize {
        self.matrix.len() / self.center.len()
    }

    /// The components of some rows.
    pub(super) fn apply<'a>(&self, rows: &[f32], buffers: &'a mut [Vec<f32>; 2]) -> &'a [f32] {
        let (width, components) = (self.center.len(), self.components());
        let [centered, out] = buffers;
        centered.clear();
        for x in rows.chunks_exact(width) {
            centered.extend(x.iter().zip(&self.center).map(|(x, c)| x - c));
        }
        out.clear();
        out.resize(rows.len() / width * components, 0.0);
        product(centered, Panels::new(&self.lines, width, components), out, Then::Keep);
        clamp_features(out);
        out
    }

    /// The components of many rows.
    pub(super) fn apply_all(&self, rows: &[f32], pool: &Pool) -> Vec<f32> {
        let (width, components) = (self.center.len(), self.components());
        let mut out = vec![0.0; rows.len() / width * components];
        pool.split(chunks(&mut out, BLOCK * components), |i, out| {
            let (from, count) = (i * BLOCK, out.len() / components);
            let mut buffers = <[Vec<f32>; 2]>::default();
            out.copy_from_slice(self.apply(&rows[from * width..(from + count) * width], &mut buffers));
        });
        out
    }

    /// Stores it.
    pub(super) fn save(&self, state: &mut StateDict) {
        let width = self.center.len();
        state.put_f32("center", &[width], &self.center);
        state.put_f32("components", &[self.components(), width], &self.matrix);
    }

    /// Loads it.
    ///
    /// # Errors
    /// If it is invalid.
    pub(super) fn load(state: &mut StateDict) -> Result<Reduction> {
        let shape @ [count, width] = state.shape("components")?;
        if count == 0 || count > width || width != state.width() {
            return Err(state.invalid("the components have an invalid shape"));
        }
        let center = state.take_f32("center", &[width])?;
        let matrix = state.take_f32("components", &shape)?;
        if center.iter().chain(&matrix).any(|v| v.abs() > 1.001 * MAX_FEATURE) {
            return Err(state.invalid("a component is out of range"));
        }
        Ok(Reduction::new(center, matrix))
    }

    /// [`Reduction::apply`] in a graph of ONNX.
    pub(super) fn to_onnx(&self, graph: &mut Builder, rows: Value) -> Value {
        let width = self.center.len();
        let center = graph.constant(&[1, width], &wide(&self.center));
        let centered = graph.op("Sub", &[rows, center]);
        let components = graph.times(centered, &wide(&self.matrix), width);
        graph.clamp(components, f64::from(MAX_FEATURE), f64::from(MAX_FEATURE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detector::Features;
    use crate::seed::Stream;

    /// Rows of two layers: three features, of which one is large, and two.
    fn rows(count: usize) -> Vec<f32> {
        let mut s = Stream::new(2, "layers");
        (0..count).flat_map(|_| [90.0, 2.0, 1.0, 0.01, 0.02].map(|scale| scale * s.normal() as f32 + 5.0)).collect()
    }

    fn fit(x: &[f32], parts: &[usize], components: usize) -> Reduction {
        let width = parts.iter().sum::<usize>();
        let rows = Features { count: x.len() / width, features: x, logits: &[] };
        Reduction::fit(&Training { rows, parts, ..Training::default() }, components, &Pool::new(2))
    }

    fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()
    }

    #[test]
    fn all_components_keep_the_distances_of_scaled_layers() {
        let x = rows(500);
        let found = fit(&x, &[3, 2], 9);
        assert_eq!(found.components(), 5);
        let reduced = found.apply_all(&x, &Pool::new(1));
        assert_eq!(reduced, found.apply_all(&x, &Pool::new(3)));
        let mean = moments::mean(&x, 5);
        let variance = |at: std::ops::Range<usize>| -> f64 {
            let squares = |row: &[f32]| at.clone().map(|j| (f64::from(row[j]) - mean[j]).powi(2)).sum::<f64>();
            x.chunks(5).map(squares).sum::<f64>() / 500.0
        };
        for (i, j) in [(0, 1), (2, 400), (7, 33)] {
            let pair = |x: &[f32], width: usize, from: usize, to: usize| {
                squared_distance(&x[i * width + from..i * width + to], &x[j * width + from..j * width + to])
            };
            let expected = HIDDEN * HIDDEN * pair(&x, 5, 0, 3) / variance(0..3) + pair(&x, 5, 3, 5) / variance(3..5);
            assert!((pair(&reduced, 5, 0, 5) - expected).abs() < 1e-5 * expected);
        }
        // Components are in the order of their variances, and fewer of them are the first.
        let variances: Vec<f64> =
            (0..5).map(|j| reduced.chunks(5).map(|row| f64::from(row[j]).powi(2)).sum::<f64>()).collect();
        assert!(variances.is_sorted_by(|a, b| a > b), "{variances:?}");
        let few = fit(&x, &[3, 2], 2).apply_all(&x, &Pool::new(1));
        assert!(few.chunks(2).zip(reduced.chunks(5)).all(|(few, all)| few == &all[..2]));
    }

    #[test]
    fn degenerate_rows_stay_finite() {
        for value in [0.0, 1e15, 1e-30] {
            let found = fit(&[value; 12], &[2, 1], 3);
            let far = found.apply_all(&[1e15, -1e15, 1e15, 0.0, 0.0, 0.0], &Pool::new(1));
            assert!(far.iter().all(|v| v.abs() <= MAX_FEATURE));
        }
    }
}
