//! What happens to inputs before the first layer reads them: clipping, and a code in bins.

use crate::net::graph::Bin;

#[derive(Clone, Debug)]
pub(super) struct InputStage {
    /// The number of values of an input row.
    pub width: usize,
    /// The limit that inputs are clipped at.
    pub clip: Option<f32>,
    pub bins: Vec<Bin>,
}

impl InputStage {
    /// Whether the first layer reads something else than the input.
    pub(super) fn changes(&self) -> bool {
        self.clip.is_some() || !self.bins.is_empty()
    }

    /// The number of values that the first layer reads of a row.
    pub(super) fn outputs(&self) -> usize {
        self.width + self.bins.len()
    }

    /// The inputs as the first layer reads them.
    pub(super) fn forward<'a>(&self, x: &'a [f32], buffer: &'a mut Vec<f32>) -> &'a [f32] {
        if !self.changes() {
            return x;
        }
        let limit = self.clip.unwrap_or(f32::INFINITY);
        let outputs = self.outputs();
        let to = sized(buffer, x.len() / self.width * outputs);
        for (to, x) in to.chunks_exact_mut(outputs).zip(x.chunks_exact(self.width)) {
            let (values, codes) = to.split_at_mut(self.width);
            values.iter_mut().zip(x).for_each(|(to, x)| *to = x.clamp(-limit, limit));
            for (code, bin) in codes.iter_mut().zip(&self.bins) {
                *code = ((values[bin.feature] - bin.low) * bin.slope()).clamp(0.0, 1.0);
            }
        }
        to
    }

    /// From the gradient with respect to what the first layer reads that with respect to the inputs; `read` is what it read.
    pub(super) fn backward(&self, read: &[f32], gradient: &[f32], to: &mut [f32]) {
        let rows = gradient.chunks_exact(self.outputs()).zip(read.chunks_exact(self.outputs()));
        for (to, (gradient, read)) in to.chunks_exact_mut(self.width).zip(rows) {
            let (own, codes) = gradient.split_at(self.width);
            to.copy_from_slice(own);
            for ((g, bin), &code) in codes.iter().zip(&self.bins).zip(&read[self.width..]) {
                // A value outside of the bin does not move its code.
                if code > 0.0 && code < 1.0 {
                    to[bin.feature] += g * bin.slope();
                }
            }
            if let Some(limit) = self.clip {
                to.iter_mut().zip(read).filter(|(_, x)| x.abs() >= limit).for_each(|(d, _)| *d = 0.0);
            }
        }
    }
}

/// The first `n` values of a buffer that grows where it is too short.
pub(super) fn sized(buffer: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if buffer.len() < n {
        buffer.resize(n, 0.0);
    }
    &mut buffer[..n]
}
