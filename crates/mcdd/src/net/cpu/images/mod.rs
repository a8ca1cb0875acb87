//! Convolutional networks on the CPU: [`ImageEngine`] trains, [`ImagePredictor`] predicts.

mod backward;
mod conv;
mod engine;
mod forward;
mod kernel;
mod pixels;
mod plan;
mod predict;
mod winograd;

pub use engine::ImageEngine;
pub use predict::{ImageBuffers, ImagePredictor};

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
