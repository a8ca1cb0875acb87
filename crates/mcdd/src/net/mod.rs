//! Networks as values ([`Graph`]), and the engine that runs them ([`cpu`]).

pub mod cpu;
mod densenet;
mod graph;
mod name;
mod params;
mod resnet;
mod shape;
mod weights;

pub use densenet::densenet;
pub use graph::{Graph, Layer, Node, autoencoder, mlp, mlp_with, xavier};
pub use name::NetName;
pub use params::{ParamSpec, Params};
pub use resnet::{resnet, small_resnet};
pub use shape::Shape;
pub use weights::Weights;
