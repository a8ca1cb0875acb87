//! The CPU engine and its kernels. Rows of a table are cut into shards that go through the network side by side
//! ([`rows`]); images go through it all together, layer by layer ([`images`]).

mod images;
mod layout;
mod norm;
mod rows;

use std::sync::Arc;

pub(crate) use layout::CpuParams;
pub(crate) use rows::{Pairs, Pass, RowEngine, shard_rows};

use self::images::{ImageNetwork, ImageTrainer};
use self::rows::{RowNetwork, RowTrainer};
use super::engine::{Engine, Network, Trainer, TrainerOptions};
use super::graph::Graph;
use super::params::Params;
use crate::error::{Error, Result};

/// Runs and trains graphs on the CPU. Results do not depend on the number of threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuEngine;

impl Engine for CpuEngine {
    fn network(&self, graph: &Graph, params: &Params) -> Result<Arc<dyn Network>> {
        Ok(match graph.is_image() {
            true => Arc::new(ImageNetwork::new(graph, params)?),
            false => Arc::new(RowNetwork::new(graph, params)?),
        })
    }

    fn trainer(&self, graph: &Graph, params: &Params, options: &TrainerOptions) -> Result<Box<dyn Trainer>> {
        Ok(match graph.is_image() {
            true => Box::new(ImageTrainer::new(graph, params, options)?),
            false => Box::new(RowTrainer::new(graph, params, options)?),
        })
    }
}

/// The part of a network that ends with layer `layer`: its nodes come first, and so do its parameters.
fn part(graph: &Graph, params: &Params, layer: usize) -> Result<(Graph, Params)> {
    let Some(&end) = graph.layer_ends().get(layer) else {
        return Err(Error::setting(format!("the network has no layer {}", layer + 1)));
    };
    let part = Graph { input: graph.input, nodes: graph.nodes[..end].to_vec() };
    let mut first = Params::new(part.specs());
    let n = first.data.len();
    first.data.copy_from_slice(&params.data[..n]);
    Ok((part, first))
}

#[cfg(test)]
mod tests;
