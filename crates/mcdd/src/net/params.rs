//! Named parameters in one flat buffer, so that optimizers, checkpoints and tests see one slice.

use crate::error::{Error, Result};

/// A parameter tensor: its name follows the path (`fc1.weight`), its shape is that of PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// The name.
    pub name: String,
    /// The shape in files.
    pub shape: Vec<usize>,
    /// Stored transposed in memory: a linear layer's weight is `[out, in]` in files and in x out here, a convolution's
    /// `[out, in, height, width]` in files and height x width x in x out here, as the kernels read it.
    pub transposed: bool,
    /// Whether weight decay applies.
    pub decay: bool,
    /// Whether training changes it.
    pub trained: bool,
}

impl ParamSpec {
    /// A trained parameter of a head, without decay.
    pub(crate) fn of_head(name: &str, shape: Vec<usize>) -> ParamSpec {
        ParamSpec { name: format!("head.{name}"), shape, transposed: false, decay: false, trained: true }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Outputs, inputs and places of the window, where it is stored transposed.
    fn axes(&self) -> Option<[usize; 3]> {
        match (self.transposed, self.shape.as_slice()) {
            (true, &[outputs, inputs, ref window @ ..]) => Some([outputs, inputs, window.iter().product()]),
            _ => None,
        }
    }

    /// Whether there are none.
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
    /// Zeros.
    pub fn new(specs: Vec<ParamSpec>) -> Params {
        let mut starts = Vec::with_capacity(specs.len());
        let mut total = 0;
        for spec in &specs {
            starts.push(total);
            total += spec.len();
        }
        Params { specs, starts, data: vec![0.0; total] }
    }

    /// The tensors.
    pub fn specs(&self) -> &[ParamSpec] {
        &self.specs
    }

    /// The tensors, and all values to change.
    pub(crate) fn specs_and_data(&mut self) -> (&[ParamSpec], &mut [f32]) {
        (&self.specs, &mut self.data)
    }

    /// Where tensor `i` lies in `data`.
    pub fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.starts[i]..self.starts[i] + self.specs[i].len()
    }

    /// The values of tensor `i`, as stored in memory.
    pub fn get(&self, i: usize) -> &[f32] {
        &self.data[self.range(i)]
    }

    /// The values of tensor `i`, to change.
    pub fn get_mut(&mut self, i: usize) -> &mut [f32] {
        let range = self.range(i);
        &mut self.data[range]
    }

    /// Tensor `i` as files have it.
    pub fn export(&self, i: usize) -> Vec<f32> {
        match self.specs[i].axes() {
            Some([outputs, inputs, taps]) => turn(self.get(i), [taps, inputs, outputs]),
            None => self.get(i).to_vec(),
        }
    }

    /// Sets tensor `i` from a file's values.
    pub fn import(&mut self, i: usize, values: &[f32]) -> Result<()> {
        let spec = &self.specs[i];
        if values.len() != spec.len() {
            return Err(Error::format(format!("tensor {} has {} values, not {}", spec.name, values.len(), spec.len())));
        }
        match spec.axes() {
            Some(axes) => self.get_mut(i).copy_from_slice(&turn(values, axes)),
            None => self.get_mut(i).copy_from_slice(values),
        }
        Ok(())
    }
}

/// An array of `a` x `b` x `c` as one of `c` x `b` x `a`.
fn turn(values: &[f32], [a, b, c]: [usize; 3]) -> Vec<f32> {
    let mut turned = Vec::with_capacity(values.len());
    for k in 0..c {
        for j in 0..b {
            turned.extend((0..a).map(|i| values[(i * b + j) * c + k]));
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_see_pytorchs_shape() {
        let weight =
            ParamSpec { name: "fc1.weight".into(), shape: vec![2, 3], transposed: true, decay: true, trained: true };
        let mut p = Params::new(vec![weight]);
        p.import(0, &[1., 2., 3., 4., 5., 6.]).unwrap();
        assert_eq!(p.get(0), [1., 4., 2., 5., 3., 6.]);
        assert_eq!(p.export(0), [1., 2., 3., 4., 5., 6.]);
        assert!(p.import(0, &[1.0]).is_err());
    }

    #[test]
    fn windows_lie_outermost_in_memory() {
        let shape = vec![2, 3, 2, 2];
        let spec = ParamSpec { name: "conv.weight".into(), shape, transposed: true, decay: true, trained: true };
        let mut p = Params::new(vec![spec]);
        let values: Vec<f32> = (0..24).map(|v| v as f32).collect();
        p.import(0, &values).unwrap();
        for (o, i, t) in (0..24).map(|n| (n / 12, n / 4 % 3, n % 4)) {
            assert_eq!(p.get(0)[(t * 3 + i) * 2 + o], values[(o * 3 + i) * 4 + t]);
        }
        assert_eq!(p.export(0), values);
    }
}
