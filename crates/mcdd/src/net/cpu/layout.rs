//! Parameters in the layout that the kernels of the CPU read.

use std::ops::Range;

use crate::net::OptimizerState;
use crate::net::params::{ParamSpec, Params, reverse_axes};

/// The tensors of [`Params`] in the same order, but with the axes of weights reversed: a linear layer's weight is
/// inputs x outputs, a convolution's height x width x inputs x outputs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuParams(Params);

/// Outputs, inputs and kernel positions of a weight; none for vectors, which need no other layout.
fn axes(spec: &ParamSpec) -> Option<[usize; 3]> {
    match spec.shape.as_slice() {
        &[outputs, inputs, ref kernel @ ..] => Some([outputs, inputs, kernel.iter().product()]),
        _ => None,
    }
}

impl CpuParams {
    /// Converts `params`.
    pub(crate) fn new(params: &Params) -> CpuParams {
        let mut converted = CpuParams(params.clone());
        converted.load(params);
        converted
    }

    /// Replaces all values by those of `params`, which has the same tensors.
    pub(crate) fn load(&mut self, params: &Params) {
        to_cpu(params, &params.data, &mut self.0.data);
    }

    /// Copies all values to `params`, which has the same tensors.
    pub(crate) fn store(&self, params: &mut Params) {
        self.convert_back(&self.0.data, &mut params.data);
    }

    /// Converts other values of this layout, such as gradients, to that of [`Params`].
    pub(crate) fn convert_back(&self, values: &[f32], to: &mut [f32]) {
        for (i, spec) in self.0.specs().iter().enumerate() {
            let (values, to) = (&values[self.0.range(i)], &mut to[self.0.range(i)]);
            match axes(spec) {
                Some([outputs, inputs, kernel]) => reverse_axes(values, [kernel, inputs, outputs], to),
                None => to.copy_from_slice(values),
            }
        }
    }

    /// The state of an optimizer in the layout of [`Params`].
    pub(crate) fn state_back(&self, state: &OptimizerState) -> OptimizerState {
        let mut back = state.clone();
        for (from, to) in [(&state.first, &mut back.first), (&state.second, &mut back.second)] {
            if !from.is_empty() {
                self.convert_back(from, to);
            }
        }
        back
    }

    /// The state of an optimizer, which is in the layout of [`Params`], in this layout.
    pub(crate) fn state(&self, state: &OptimizerState) -> OptimizerState {
        let mut here = state.clone();
        for (from, to) in [(&state.first, &mut here.first), (&state.second, &mut here.second)] {
            if !from.is_empty() {
                to_cpu(&self.0, from, to);
            }
        }
        here
    }

    /// The tensors; shapes are those of [`Params`].
    pub(crate) fn specs(&self) -> &[ParamSpec] {
        self.0.specs()
    }

    /// The tensors, and all values to change.
    pub(crate) fn specs_and_data(&mut self) -> (&[ParamSpec], &mut [f32]) {
        self.0.specs_and_data()
    }

    /// All values.
    pub(crate) fn data(&self) -> &[f32] {
        &self.0.data
    }

    /// All values, to change.
    pub(crate) fn data_mut(&mut self) -> &mut Vec<f32> {
        &mut self.0.data
    }

    /// Where tensor `i` is in [`CpuParams::data`].
    pub(crate) fn range(&self, i: usize) -> Range<usize> {
        self.0.range(i)
    }

    /// The values of tensor `i`.
    pub(crate) fn get(&self, i: usize) -> &[f32] {
        self.0.get(i)
    }

    /// The values of tensor `i`, to change.
    pub(crate) fn get_mut(&mut self, i: usize) -> &mut [f32] {
        self.0.get_mut(i)
    }
}

/// Converts values that are laid out as `params` says.
fn to_cpu(params: &Params, values: &[f32], to: &mut [f32]) {
    for (i, spec) in params.specs().iter().enumerate() {
        let (values, to) = (&values[params.range(i)], &mut to[params.range(i)]);
        match axes(spec) {
            Some(axes) => reverse_axes(values, axes, to),
            None => to.copy_from_slice(values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::small_resnet;
    use crate::seed::Stream;

    #[test]
    fn weights_are_converted_and_back() {
        let graph = small_resnet([8, 8, 3], 8, 1, Some(5)).unwrap();
        let params = graph.init(&mut Stream::new(1, "layout"));
        let converted = CpuParams::new(&params);
        let shape = &params.specs()[0].shape;
        let [outputs, inputs, height, width] = shape[..] else { panic!("{shape:?}") };
        for (o, i, k) in [(0, 0, 0), (3, 1, 5), (outputs - 1, inputs - 1, height * width - 1)] {
            let there = converted.get(0)[(k * inputs + i) * outputs + o];
            assert_eq!(there, params.get(0)[(o * inputs + i) * height * width + k]);
        }
        let mut back = Params::new(graph.specs());
        converted.store(&mut back);
        assert_eq!(back, params);
        let state = OptimizerState { first: params.data.clone(), second: Vec::new() };
        let here = converted.state(&state);
        assert_eq!((&here.first[..], converted.state_back(&here)), (converted.data(), state));
    }
}
