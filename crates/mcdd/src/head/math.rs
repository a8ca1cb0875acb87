//! Functions that several heads share.

use crate::onnx::{Builder, Scores, Value, wide};

/// The posterior of each class from its logit, in place.
pub fn posterior(logits: &mut [f64]) {
    let largest = logits.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let mut sum = 0.0;
    for v in logits.iter_mut() {
        // The exponential of 0 is 1, without a call.
        *v = if *v == largest && largest.is_finite() { 1.0 } else { libm::exp(*v - largest) };
        sum += *v;
    }
    if !(sum.is_finite() && sum > 0.0) {
        // Logits that overflowed carry no information.
        let n = logits.len() as f64;
        logits.iter_mut().for_each(|v| *v = 1.0 / n);
        return;
    }
    for v in logits.iter_mut() {
        *v /= sum;
    }
}

/// `|a - b|^2` in f64, which keeps distances distinct far away and close to a mean.
#[inline]
pub(super) fn square_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    let add = |l: &mut f64, a: f32, b: f32| {
        let d = f64::from(a) - f64::from(b);
        *l += d * d;
    };
    let (a, rest_a) = a.as_chunks::<8>();
    let (b, rest_b) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for ((l, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            add(l, a, b);
        }
    }
    for ((l, &a), &b) in lanes.iter_mut().zip(rest_a).zip(rest_b) {
        add(l, a, b);
    }
    lanes.iter().sum()
}

/// The squared distances of `z` to the means `[classes, latent]`, with `-scale` times them as logits. Returns minus the
/// smallest distance as the confidence.
pub(super) fn nearest_mean(z: &[f32], means: &[f32], scale: f64, logits: &mut [f64], distances: &mut [f64]) -> f64 {
    let mut least = f64::INFINITY;
    for ((mean, logit), distance) in means.chunks_exact(z.len()).zip(logits).zip(distances) {
        *distance = square_f64(z, mean);
        *logit = -scale * *distance;
        least = least.min(*distance);
    }
    -least
}

/// [`nearest_mean`] in a graph of ONNX.
pub(super) fn nearest_mean_to_onnx(graph: &mut Builder, z: Value, means: &[f32], latent: usize, scale: f64) -> Scores {
    let distances = graph.squared_distances(z, &wide(means), latent);
    let logits = graph.scale(distances, -scale);
    let nearest = graph.reduce("ReduceMin", distances, false);
    Scores { confidence: graph.op("Neg", &[nearest]), logits: Some(logits) }
}

/// `a . b` in f64, so that no finite row overflows.
#[inline]
pub(super) fn dot_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for ((l, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *l += f64::from(a) * f64::from(b);
        }
    }
    lanes.iter().sum()
}
