//! What a detector keeps: named tensors inside a file's container.

use crate::container::{Container, Values};
use crate::error::{Error, Result};

/// The part of a container that belongs to one detector.
pub struct Store<'a> {
    container: &'a mut Container,
    prefix: String,
    shape: [usize; 2],
}

impl<'a> Store<'a> {
    /// The tensors of `container` whose names begin with `prefix`.
    pub fn new(container: &'a mut Container, prefix: impl Into<String>) -> Store<'a> {
        Store { container, prefix: prefix.into(), shape: [0, 0] }
    }

    /// Says what rows the stored detector will be given.
    pub(super) fn expect(&mut self, width: usize, classes: usize) {
        self.shape = [width, classes];
    }

    /// Features of each row that the stored detector will be given; 0 if it looks at none.
    pub fn width(&self) -> usize {
        self.shape[0]
    }

    /// Logits of each row that the stored detector will be given; 0 if it looks at none.
    pub fn classes(&self) -> usize {
        self.shape[1]
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Keeps 32-bit numbers.
    pub fn put_f32(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let name = self.name(name);
        self.container.put(name, shape, Values::F32(values.to_vec()));
    }

    /// Keeps 64-bit numbers.
    pub fn put_f64(&mut self, name: &str, shape: &[usize], values: &[f64]) {
        let name = self.name(name);
        self.container.put(name, shape, Values::F64(values.to_vec()));
    }

    /// The shape of a tensor that must have `N` dimensions.
    ///
    /// # Errors
    /// If it is missing or has another number of them.
    pub fn shape<const N: usize>(&self, name: &str) -> Result<[usize; N]> {
        let shape = self.container.shape(&self.name(name))?;
        <[usize; N]>::try_from(shape)
            .map_err(|_| self.wrong(&format!("tensor {name} has {} dimensions, not {N}", shape.len())))
    }

    /// Takes out finite 32-bit numbers of a given shape.
    ///
    /// # Errors
    /// If there are none.
    pub fn take_f32(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let name = self.name(name);
        self.container.take_f32(&name, shape)
    }

    /// Takes out finite 64-bit numbers of a given shape.
    ///
    /// # Errors
    /// If there are none.
    pub fn take_f64(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f64>> {
        let name = self.name(name);
        self.container.take_f64(&name, shape)
    }

    /// The error for what makes no sense together.
    pub fn wrong(&self, what: &str) -> Error {
        Error::format(format!("the detector makes no sense: {what}")).hint("copy the file again, or fit again")
    }
}
