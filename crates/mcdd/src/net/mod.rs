//! Networks as values ([`Graph`]), their parameters ([`Params`]), and what runs and trains them ([`Engine`]).
//!
//! A graph is a list of layers. Parameters have PyTorch's names, shapes and layout; an engine packs them as it likes. Heads,
//! detectors and models see a [`Network`] and nothing of what runs it, so a network that is not a graph can take its place.
//!
//! # Examples
//! ```
//! use mcdd::net::{NetworkBuffers, default_engine, mlp};
//! use mcdd::seed::Stream;
//!
//! # fn main() -> mcdd::error::Result<()> {
//! let graph = mlp(4, &[16], 3);
//! let params = graph.init(&mut Stream::new(1, "init"));
//! assert_eq!((params.specs()[0].name.as_str(), &params.specs()[0].shape[..]), ("fc1.weight", &[16, 4][..]));
//!
//! let net = default_engine().network(&graph, &params)?;
//! let mut buffers = NetworkBuffers::default();
//! let both = net.latents(&[0.5, -1.0, 0.0, 2.0, 1.0, 1.0, 0.0, 0.0], &mut buffers).to_vec();
//! // A row's result is independent of the other rows in the batch.
//! assert_eq!(net.latents(&[1.0, 1.0, 0.0, 0.0], &mut buffers), &both[3..]);
//! # Ok(())
//! # }
//! ```

pub(crate) mod cnn;
pub(crate) mod cpu;
mod densenet;
pub(crate) mod engine;
mod graph;
mod mirror;
mod name;
pub(crate) mod optimizer;
mod params;
mod resnet;
mod shape;
mod to_onnx;
mod weights;

pub use cnn::cnn;
pub use cpu::CpuEngine;
pub use densenet::densenet;
pub use engine::{
    Engine, FrozenTrainer, InputGradient, Network, NetworkBuffers, Trainer, TrainerOptions, TrainingObjective,
};
pub use graph::{Bin, Graph, Layer, Node, NormTraining, autoencoder, mlp, mlp_with, xavier};
pub use mirror::with_flips;
pub use name::NetName;
pub use optimizer::{Optimizer, OptimizerState, Update};
pub use params::{ParamSpec, Params};
pub use resnet::{classic_resnet, resnet, small_resnet};
pub use shape::Shape;
pub use weights::Weights;

/// The engine that is used where none is given: [`CpuEngine`].
pub fn default_engine() -> &'static dyn Engine {
    &cpu::CpuEngine
}
