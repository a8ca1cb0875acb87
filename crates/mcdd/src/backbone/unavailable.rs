//! In place of [`runtime`](super) where rten is not compiled in: every network is refused.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::onnx::read::File;

pub(super) type Shapes = HashMap<String, Vec<usize>>;

/// There is none.
pub(super) enum Runtime {}

fn unavailable() -> Error {
    Error::setting("this build of mcdd cannot run ONNX networks").hint("build it with the feature `backbone`")
}

pub(super) fn try_run(_file: &File, _dims: &[usize]) -> Result<Shapes> {
    Err(unavailable())
}

impl Runtime {
    pub(super) fn new(_file: &File, _dims: &[usize]) -> Result<Runtime> {
        Err(unavailable())
    }

    pub(super) fn run(
        &self,
        _rows: usize,
        _fill: impl Fn(usize, &mut [f32]) + Sync,
        _take: impl FnMut(usize, Option<&[&[f32]]>) + Send,
    ) {
        match *self {}
    }
}
