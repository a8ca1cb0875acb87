//! Networks as values ([`Graph`]), and the engine that runs them ([`cpu`]).

pub mod cpu;
mod graph;
mod params;

pub use graph::{Graph, Layer, Node, autoencoder, mlp, mlp_with, xavier};
pub use params::{ParamSpec, Params};
