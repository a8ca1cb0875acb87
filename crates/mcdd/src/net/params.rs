//! Named parameters in one flat buffer, so that optimizers, checkpoints and tests see one slice.

use crate::error::{Error, Result};

/// A parameter tensor. Its name follows the path (`fc1.weight`); its shape and the order of its values are PyTorch's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// The name.
    pub name: String,
    /// The shape, e.g. `[outputs, inputs]` for the weight of a linear layer.
    pub shape: Vec<usize>,
    /// Whether weight decay applies.
    pub decay: bool,
    /// Whether training changes it.
    pub trained: bool,
    /// The factor of its gradient when it is updated; 1 for most.
    pub rate: u32,
}

impl ParamSpec {
    /// A trained parameter of a head, without decay.
    pub(crate) fn of_head(name: &str, shape: Vec<usize>) -> ParamSpec {
        ParamSpec { name: format!("head.{name}"), shape, decay: false, trained: true, rate: 1 }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Parameters and their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    specs: Vec<ParamSpec>,
    starts: Vec<usize>,
    /// All values, one tensor after the other.
    pub data: Vec<f32>,
}

impl Params {
    /// Parameters whose values are 0.
    pub fn new(specs: Vec<ParamSpec>) -> Params {
        let mut starts = Vec::with_capacity(specs.len());
        let mut total = 0;
        for spec in &specs {
            starts.push(total);
            total += spec.len();
        }
        Params { specs, starts, data: vec![0.0; total] }
    }

    /// No parameters at all.
    pub const fn empty() -> Params {
        Params { specs: Vec::new(), starts: Vec::new(), data: Vec::new() }
    }

    /// The tensors.
    pub fn specs(&self) -> &[ParamSpec] {
        &self.specs
    }

    /// The tensors, and all values to change.
    pub(crate) fn specs_and_data(&mut self) -> (&[ParamSpec], &mut [f32]) {
        (&self.specs, &mut self.data)
    }

    /// Where tensor `i` is in `data`.
    pub fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.starts[i]..self.starts[i] + self.specs[i].len()
    }

    /// The values of tensor `i`.
    pub fn get(&self, i: usize) -> &[f32] {
        &self.data[self.range(i)]
    }

    /// The values of tensor `i`, to change.
    pub fn get_mut(&mut self, i: usize) -> &mut [f32] {
        let range = self.range(i);
        &mut self.data[range]
    }

    /// Replaces the values of tensor `i`.
    ///
    /// # Errors
    /// If their number is wrong.
    pub fn set(&mut self, i: usize, values: &[f32]) -> Result<()> {
        let spec = &self.specs[i];
        if values.len() != spec.len() {
            return Err(Error::format(format!("tensor {} has {} values, not {}", spec.name, values.len(), spec.len())));
        }
        self.get_mut(i).copy_from_slice(values);
        Ok(())
    }
}

/// Copies an array of shape `[a, b, c]` to one of shape `[c, b, a]`.
pub(crate) fn reverse_axes(values: &[f32], [a, b, c]: [usize; 3], to: &mut [f32]) {
    let mut to = to.iter_mut();
    for k in 0..c {
        for j in 0..b {
            (0..a).zip(&mut to).for_each(|(i, to)| *to = values[(i * b + j) * c + k]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_replaced_by_as_many() {
        let weight = ParamSpec { name: "fc1.weight".into(), shape: vec![2, 3], decay: true, trained: true, rate: 1 };
        let mut p = Params::new(vec![weight.clone(), weight]);
        p.set(1, &[1., 2., 3., 4., 5., 6.]).unwrap();
        assert_eq!(p.data, [0., 0., 0., 0., 0., 0., 1., 2., 3., 4., 5., 6.]);
        assert!(p.set(1, &[1.0]).is_err());
        assert!(Params::empty().data.is_empty() && Params::empty() == Params::new(Vec::new()));
    }

    #[test]
    fn axes_are_reversed_and_back() {
        let values: Vec<f32> = (0..24).map(|v| v as f32).collect();
        let (mut reversed, mut again) = (vec![0.0; 24], vec![0.0; 24]);
        reverse_axes(&values, [2, 3, 4], &mut reversed);
        for (a, b, c) in (0..24).map(|n| (n / 12, n / 4 % 3, n % 4)) {
            assert_eq!(reversed[(c * 3 + b) * 2 + a], values[(a * 3 + b) * 4 + c]);
        }
        reverse_axes(&reversed, [4, 3, 2], &mut again);
        assert_eq!(again, values);
    }
}
