//! Multi-layer perceptrons on the CPU: [`RowNetwork`] predicts, [`RowTrainer`] trains.

mod compile;
mod engine;
mod input;
mod predict;
mod train;

pub(crate) use engine::{Pairs, Pass, RowEngine};
pub(crate) use predict::RowNetwork;
pub(crate) use train::{RowTrainer, shard_rows};
