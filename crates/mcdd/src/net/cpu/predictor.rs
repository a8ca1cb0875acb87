//! Networks that only predict, of rows or of images.

use super::engine::{RowPredictor, RowScratch};
use super::images::{ImageBuffers, ImagePredictor};
use crate::error::Result;
use crate::net::{Graph, Params};

/// A network that only predicts: cheap to share between threads, each with its own [`ForwardBuffers`].
#[derive(Clone, Debug)]
pub enum Predictor {
    /// Of the rows of a table.
    Rows(Box<RowPredictor>),
    /// Of images.
    Images(Box<ImagePredictor>),
}

/// Buffers of one thread that predicts.
#[derive(Clone, Debug, Default)]
pub struct ForwardBuffers {
    rows: RowScratch,
    images: ImageBuffers,
}

impl Predictor {
    /// Prepares `graph` with `params`.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that the engine cannot run.
    pub fn new(graph: &Graph, params: &Params) -> Result<Predictor> {
        Ok(if graph.is_image() {
            Predictor::Images(Box::new(ImagePredictor::new(graph, params)?))
        } else {
            Predictor::Rows(Box::new(RowPredictor::new(graph, params)?))
        })
    }

    /// The parameters it was made with.
    pub fn params(&self) -> &Params {
        match self {
            Predictor::Rows(net) => net.params(),
            Predictor::Images(net) => net.params(),
        }
    }

    /// The latent vectors of the rows or images in `x`, on the calling thread. None depends on the others.
    pub fn latents<'s>(&self, x: &[f32], scratch: &'s mut ForwardBuffers) -> &'s [f32] {
        match self {
            Predictor::Rows(net) => net.latents(x, &mut scratch.rows),
            Predictor::Images(net) => net.latents(x, &mut scratch.images),
        }
    }
}
