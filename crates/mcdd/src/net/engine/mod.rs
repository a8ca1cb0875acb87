//! The seam between a network and what runs it.
//!
//! An [`Engine`] turns a [`Graph`] with its [`Params`] into a [`Network`] that predicts, or into a [`Trainer`]. Heads,
//! detectors and models see these traits only. [`CpuEngine`](super::CpuEngine) is the engine of this crate. A network
//! that comes from elsewhere implements [`Network`] alone: it has no parameters here, and [`FrozenTrainer`] trains a head
//! on it.
//!
//! All calls are per batch or per block of rows, so dynamic dispatch costs nothing that can be measured.

mod buffers;
mod frozen;

use std::ops::Range;
use std::sync::Arc;

pub use buffers::NetworkBuffers;
pub use frozen::FrozenTrainer;

use super::graph::Graph;
use super::optimizer::{Optimizer, OptimizerState, Update};
use super::params::Params;
use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::onnx::{Builder, Value};

/// Runs and trains graphs.
pub trait Engine: Send + Sync {
    /// The network of `graph` with `params`, for prediction.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    fn network(&self, graph: &Graph, params: &Params) -> Result<Arc<dyn Network>>;

    /// A trainer of `graph` that starts from `params`.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot train, or a batch does not fit in memory.
    fn trainer(&self, graph: &Graph, params: &Params, options: &TrainerOptions) -> Result<Box<dyn Trainer>>;
}

/// A network for prediction. Threads share it, each with its own [`NetworkBuffers`].
///
/// # Examples
/// A network that is not a [`Graph`]:
///
/// ```
/// use mcdd::net::{Network, NetworkBuffers};
///
/// /// The sum and the difference of two numbers.
/// struct Foreign;
///
/// impl Network for Foreign {
///     fn input(&self) -> usize {
///         2
///     }
///
///     fn latent(&self) -> usize {
///         2
///     }
///
///     fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
///         let z = buffers.get::<Vec<f32>>();
///         z.clear();
///         z.extend(x.chunks_exact(2).flat_map(|x| [x[0] + x[1], x[0] - x[1]]));
///         z
///     }
/// }
///
/// assert_eq!(Foreign.latents(&[3.0, 1.0], &mut NetworkBuffers::default()), [4.0, 2.0]);
/// assert!(Foreign.params().specs().is_empty());
/// ```
pub trait Network: Send + Sync {
    /// The number of values of an input row.
    fn input(&self) -> usize;

    /// The number of latent features.
    fn latent(&self) -> usize;

    /// The latent vectors of the rows in `x`, one after the other, on the calling thread. A row's result is independent of
    /// the other rows in the batch.
    fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32];

    /// [`Network::latents`], and the outputs of the layer before the last if they are at hand after that.
    fn latents_and_hidden<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> (&'b [f32], Option<&'b [f32]>) {
        (self.latents(x, buffers), None)
    }

    /// Its parameters; empty for a network that is stored elsewhere.
    fn params(&self) -> &Params {
        static EMPTY: Params = Params::empty();
        &EMPTY
    }

    /// The number of layers whose outputs can be read. The output of the last one is the latent vector.
    fn layers(&self) -> usize {
        1
    }

    /// The network that ends with layer `layer`, counted from 0; its latent vector is the output of that layer.
    ///
    /// # Errors
    /// If there is no such layer before the last one.
    fn part(&self, layer: usize) -> Result<Arc<dyn Network>> {
        Err(Error::setting(format!("the output of layer {} of this network cannot be read", layer + 1)))
    }

    /// The same network, ready for gradients with respect to its input.
    ///
    /// # Errors
    /// If this network has no gradients.
    fn input_gradient(&self) -> Result<Arc<dyn InputGradient>> {
        Err(Error::setting("this network gives no gradient with respect to its input"))
    }

    /// Writes the network into a graph of ONNX; `x` are its inputs in f32, `[rows, inputs]`. Gives the output of each of its
    /// [`layers`](Network::layers), as rows of features.
    ///
    /// # Errors
    /// If it cannot be written.
    fn to_onnx(&self, _graph: &mut Builder, _x: Value) -> Result<Vec<Value>> {
        Err(Error::setting("this network cannot be written as ONNX"))
    }
}

/// Gradients with respect to the input of a [`Network`].
pub trait InputGradient: Send + Sync {
    /// The gradient with respect to the rows in `x` of a function whose gradient with respect to their latent vectors is
    /// `latent_gradient`, on the calling thread.
    fn input_gradient<'b>(&self, x: &[f32], latent_gradient: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32];
}

/// How a [`Trainer`] is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainerOptions {
    /// The largest number of rows of a batch.
    pub batch: usize,
    /// Whether the objective must see all rows of a batch at once.
    pub whole: bool,
    /// How the parameters follow their gradients.
    pub optimizer: Optimizer,
}

/// Trains one network. It keeps parameters, gradients and the state of the optimizer in a layout of its own; they are
/// converted to the layout of [`Params`] on request.
pub trait Trainer {
    /// The largest number of parts that a batch is cut into.
    fn parts(&self) -> usize;

    /// Forward, the objective, and backward for a batch of `rows` rows. Returns the loss of the batch. How a batch is cut
    /// into parts depends on its size alone, so results do not depend on the number of threads.
    fn step(&mut self, rows: usize, objective: &dyn TrainingObjective, pool: &Pool) -> f64;

    /// Moves the parameters along the gradient of the last step and updates the running statistics.
    fn update(&mut self, update: &Update, pool: &Pool);

    /// Replaces the values of all parameters.
    fn load(&mut self, params: &Params, pool: &Pool);

    /// Copies the values of all parameters to `params`.
    fn store(&self, params: &mut Params);

    /// Copies the gradient of the last step to `gradient`; values that are not trained get anything.
    fn gradient(&self, gradient: &mut Params);

    /// The state of the optimizer, in the layout of [`Params`].
    fn optimizer_state(&self) -> OptimizerState;

    /// Replaces the state of the optimizer by one from [`Trainer::optimizer_state`].
    fn set_optimizer_state(&mut self, state: &OptimizerState);
}

/// A batch, and what is minimized on it: the loss of a head. A [`Trainer`] calls it from several threads at once, for
/// different parts of the batch.
pub trait TrainingObjective: Sync {
    /// The inputs of these rows of the batch; `buffer` may be used to put them together.
    fn inputs<'b>(&'b self, rows: Range<usize>, buffer: &'b mut Vec<f32>) -> &'b [f32];

    /// The loss of part number `part` of the batch, which has these rows. `z` are their latent vectors; the gradient with
    /// respect to them goes to `dz`.
    fn loss(&self, part: usize, rows: Range<usize>, z: &[f32], dz: &mut [f32]) -> f64;
}
