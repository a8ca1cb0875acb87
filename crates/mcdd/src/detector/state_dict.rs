//! The state of a fitted detector: named tensors inside a file's container.

use crate::container::{Container, Values};
use crate::error::{Error, Result};

/// The tensors of one detector, as a part of a model file.
pub struct StateDict<'a> {
    container: &'a mut Container,
    prefix: String,
    width: usize,
    classes: usize,
}

impl<'a> StateDict<'a> {
    /// The tensors of `container` whose names begin with `prefix`.
    pub(crate) fn new(container: &'a mut Container, prefix: impl Into<String>) -> StateDict<'a> {
        StateDict { container, prefix: prefix.into(), width: 0, classes: 0 }
    }

    /// Sets the shape of the rows that the stored detector takes.
    pub(super) fn set_shape(&mut self, width: usize, classes: usize) {
        (self.width, self.classes) = (width, classes);
    }

    /// The number of features per row that the stored detector takes; 0 if it uses none.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of logits per row that the stored detector takes; 0 if it uses none.
    pub fn classes(&self) -> usize {
        self.classes
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Stores an f32 tensor.
    pub fn put_f32(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let name = self.name(name);
        self.container.put(name, shape, Values::F32(values.to_vec()));
    }

    /// Stores an f64 tensor.
    pub fn put_f64(&mut self, name: &str, shape: &[usize], values: &[f64]) {
        let name = self.name(name);
        self.container.put(name, shape, Values::F64(values.to_vec()));
    }

    /// Stores a tensor of 16-bit integers.
    pub fn put_u16(&mut self, name: &str, shape: &[usize], values: &[u16]) {
        let name = self.name(name);
        self.container.put(name, shape, Values::U16(values.to_vec()));
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.container.shape(&self.name(name)).is_ok()
    }

    /// The shape of a tensor that must have `N` dimensions.
    ///
    /// # Errors
    /// If the tensor is missing or has another number of dimensions.
    pub fn shape<const N: usize>(&self, name: &str) -> Result<[usize; N]> {
        let shape = self.container.shape(&self.name(name))?;
        <[usize; N]>::try_from(shape)
            .map_err(|_| self.invalid(&format!("tensor {name} has {} dimensions, not {N}", shape.len())))
    }

    /// Removes and returns an f32 tensor of the given shape, whose values are finite.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub fn take_f32(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let name = self.name(name);
        self.container.take_f32(&name, shape)
    }

    /// Removes and returns an f64 tensor of the given shape, whose values are finite.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub fn take_f64(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f64>> {
        let name = self.name(name);
        self.container.take_f64(&name, shape)
    }

    /// Removes and returns a tensor of 16-bit integers of the given shape.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub fn take_u16(&mut self, name: &str, shape: &[usize]) -> Result<Vec<u16>> {
        let name = self.name(name);
        self.container.take_u16(&name, shape)
    }

    /// The error for a state that no fit can have stored.
    pub fn invalid(&self, what: &str) -> Error {
        Error::format(format!("the stored detector is invalid: {what}")).hint("copy the file again, or fit again")
    }
}
