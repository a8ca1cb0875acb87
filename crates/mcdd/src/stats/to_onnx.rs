//! Gaussians as a graph of ONNX.

use super::gaussians::{Covariance, EMPTY_CLASS_DISTANCE, Gaussians};
use super::whitening::Whitening;
use crate::onnx::{Builder, Value, wide};

impl Gaussians {
    /// The squared distance of each row of `x`, `[rows, width]` in f64, to each class: `[rows, classes]`.
    pub(crate) fn distances_to_onnx(&self, graph: &mut Builder, x: Value) -> Value {
        let (width, classes) = (self.width(), self.classes());
        let means: Vec<&[f64]> = self.means().chunks_exact(width).collect();
        let distances = if let (Covariance::Tied, [shared]) = (self.covariance(), self.whitenings()) {
            // All classes from one whitened row, around the mean of a class that has rows.
            let origin = means.iter().zip(self.counts()).find(|(_, n)| **n > 0.0).map_or(means[0], |(mean, _)| mean);
            let white = whitened(shared, graph, x, origin);
            let difference = |mean: &&[f64]| -> Vec<f64> { mean.iter().zip(origin).map(|(m, o)| m - o).collect() };
            let points: Vec<f64> = means.iter().flat_map(|mean| shared.apply_wide(&difference(mean))).collect();
            graph.squared_distances(white, &points, width)
        } else {
            let own = means.iter().zip(self.whitenings()).map(|(mean, whitening)| {
                let white = whitened(whitening, graph, x, mean);
                graph.squares(white, true)
            });
            let own: Vec<Value> = own.collect();
            graph.concat(&own, 1)
        };
        if self.counts().iter().all(|&n| n > 0.0) {
            return distances;
        }
        let (kept, instead): (Vec<f64>, Vec<f64>) =
            self.counts().iter().map(|&n| if n > 0.0 { (1.0, 0.0) } else { (0.0, EMPTY_CLASS_DISTANCE) }).unzip();
        let [kept, instead] = [kept, instead].map(|values| graph.constant(&[1, classes], &values));
        let kept = graph.op("Mul", &[distances, kept]);
        graph.op("Add", &[kept, instead])
    }

    /// `log N(x | class)` without the constant, as [`Gaussians::log_densities`]: `[rows, classes]`.
    pub(crate) fn log_densities_to_onnx(&self, graph: &mut Builder, x: Value) -> Value {
        let distances = self.distances_to_onnx(graph, x);
        let last = self.whitenings().len() - 1;
        // An empty class has twice its distance, so that the half of it remains.
        let shift = |(k, &n): (usize, &f64)| match n > 0.0 {
            true => self.whitenings()[k.min(last)].log_det(),
            false => EMPTY_CLASS_DISTANCE,
        };
        let shifts: Vec<f64> = self.counts().iter().enumerate().map(shift).collect();
        let shifts = graph.constant(&[1, shifts.len()], &shifts);
        let sum = graph.op("Add", &[distances, shifts]);
        graph.scale(sum, -0.5)
    }
}

/// `W (x - center)`.
fn whitened(whitening: &Whitening, graph: &mut Builder, x: Value, center: &[f64]) -> Value {
    let width = center.len();
    let center = graph.constant(&[1, width], center);
    let scale = graph.constant(&[1, width], whitening.scale());
    let difference = graph.op("Sub", &[x, center]);
    let standardized = graph.op("Mul", &[difference, scale]);
    match whitening.matrix() {
        [] => standardized,
        matrix => graph.times(standardized, &wide(matrix), width),
    }
}
