//! A graph of rows as fused steps.

use super::input::InputStage;
use crate::compute::gemm::Then;
use crate::error::{Error, Result};
use crate::net::graph::{Graph, Layer};

/// A fused step: a linear layer with the batch normalization and the ReLU that follow it, if they do.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub inputs: usize,
    pub outputs: usize,
    /// The number of the weight among the parameters; the same for the bias.
    pub weight: usize,
    pub bias: Option<usize>,
    /// The first parameter of the batch normalization.
    pub norm: Option<usize>,
    pub relu: bool,
    /// Zeros, used as the bias of a layer that has none.
    no_bias: Vec<f32>,
}

pub(super) fn unsupported(name: &str) -> Error {
    Error::format(format!("the CPU engine cannot run layer {name:?} at this position"))
}

/// A compiled graph: steps, each reading the output of the one before.
pub(super) struct CompiledSteps<'a> {
    pub input: InputStage,
    pub steps: Vec<Step>,
    /// The name of a last layer that concatenates the input and the output of the last step.
    pub concat: Option<&'a str>,
}

pub(super) fn compile(graph: &Graph) -> Result<CompiledSteps<'_>> {
    graph.widths()?;
    let mut steps: Vec<Step> = Vec::new();
    let mut concat = None;
    let mut input = InputStage { width: graph.input, clip: None, bins: Vec::new() };
    let mut parameter = 0;
    for (i, node) in graph.nodes.iter().enumerate() {
        let unsupported = || unsupported(&node.name);
        let inputs = if node.layer == Layer::Concat { &[0, i][..] } else { &[i][..] };
        if node.from != inputs || concat.is_some() {
            return Err(unsupported());
        }
        match node.layer {
            Layer::Linear { inputs, outputs, bias } => {
                let no_bias = if bias { Vec::new() } else { vec![0.0; outputs] };
                let at = parameter;
                parameter += 1 + usize::from(bias);
                let bias = bias.then_some(at + 1);
                steps.push(Step { inputs, outputs, weight: at, bias, norm: None, relu: false, no_bias });
            }
            Layer::BatchNorm { training, .. } => match steps.last_mut() {
                Some(step) if !step.relu && step.norm.is_none() && training.is_default() => {
                    step.norm = Some(parameter);
                    parameter += 4;
                }
                _ => return Err(unsupported()),
            },
            Layer::Clip { limit } if i == 0 => input.clip = Some(limit),
            Layer::Bins { ref bins } if i == usize::from(input.clip.is_some()) => input.bins.clone_from(bins),
            Layer::Clip { .. } | Layer::Bins { .. } => return Err(unsupported()),
            Layer::Relu => match steps.last_mut() {
                Some(step) if !step.relu => step.relu = true,
                _ => return Err(unsupported()),
            },
            Layer::Image { .. }
            | Layer::Conv2d { .. }
            | Layer::AvgPool { .. }
            | Layer::MaxPool { .. }
            | Layer::GlobalAvgPool
            | Layer::GlobalMaxPool
            | Layer::Gelu
            | Layer::Scale { .. }
            | Layer::Add => return Err(unsupported()),
            Layer::Concat if steps.is_empty() || input.changes() => return Err(unsupported()),
            Layer::Concat => concat = Some(&*node.name),
        }
    }
    if steps.is_empty() && !input.bins.is_empty() {
        return Err(unsupported("bins"));
    }
    Ok(CompiledSteps { input, steps, concat })
}

impl Step {
    /// What is applied to the product at once: `bias`, and a ReLU unless it follows batch normalization.
    pub(super) fn then<'a>(&'a self, bias: Option<&'a [f32]>) -> Then<'a> {
        let relu = self.relu && self.norm.is_none();
        match bias {
            None if !relu => Then::Keep,
            _ => {
                let bias = bias.unwrap_or(&self.no_bias);
                if relu { Then::BiasRelu(bias) } else { Then::Bias(bias) }
            }
        }
    }
}
