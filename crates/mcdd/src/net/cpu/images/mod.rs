//! Convolutional networks on the CPU: [`ImageNetwork`] predicts, [`ImageTrainer`] trains.

mod act;
mod backward;
mod buffers;
mod conv;
mod engine;
mod forward;
mod geometry;
mod kernel;
mod lanes;
mod pixels;
mod plan;
mod pooling;
mod predict;
mod train;
mod winograd;

pub(crate) use predict::ImageNetwork;
pub(crate) use train::ImageTrainer;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
