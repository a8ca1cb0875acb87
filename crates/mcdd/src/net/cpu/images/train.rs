//! Training of convolutional networks, a batch at a time.

use super::super::layout::CpuParams;
use super::engine::ImageEngine;
use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::net::engine::{Trainer, TrainerOptions, TrainingObjective};
use crate::net::graph::Graph;
use crate::net::optimizer::{OptimizerState, Update};
use crate::net::params::Params;

/// Trains a convolutional network.
pub(crate) struct ImageTrainer {
    engine: ImageEngine,
    params: CpuParams,
    state: OptimizerState,
    gradient: [Vec<f32>; 1],
    x: Vec<f32>,
}

impl ImageTrainer {
    pub(crate) fn new(graph: &Graph, params: &Params, options: &TrainerOptions) -> Result<ImageTrainer> {
        let mut engine = ImageEngine::new(graph)?;
        check_memory(engine.bytes(options.batch))?;
        let params = CpuParams::new(params);
        engine.load(&params, &Pool::new(1));
        let n = params.data().len();
        let state = OptimizerState::new(&options.optimizer, n);
        Ok(ImageTrainer { engine, params, state, gradient: [vec![0.0; n]], x: Vec::new() })
    }
}

/// An error where a batch takes more memory than is available.
fn check_memory(bytes: usize) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    let gigabytes = |bytes: usize| format!("{:.1} GB", bytes as f64 / 1e9);
    match free.map(|kilobytes| kilobytes.saturating_mul(1024)) {
        Some(free) if bytes > free => Err(Error::setting(format!(
            "a batch of these images takes {} of memory, and {} are available",
            gigabytes(bytes),
            gigabytes(free)
        ))
        .hint("give smaller images (`image_size`, e.g. 64x64), a smaller `batch`, or a smaller `net`")),
        _ => Ok(()),
    }
}

impl Trainer for ImageTrainer {
    fn parts(&self) -> usize {
        1
    }

    fn step(&mut self, rows: usize, objective: &dyn TrainingObjective, pool: &Pool) -> f64 {
        let x = objective.inputs(0..rows, &mut self.x);
        self.engine.forward(&self.params, x, pool);
        let (z, dz) = self.engine.latents_and_gradient();
        let loss = objective.loss(0, 0..rows, z, dz);
        self.engine.backward(&self.params, x, &mut self.gradient[0], pool);
        loss
    }

    fn update(&mut self, update: &Update, pool: &Pool) {
        let (specs, values) = self.params.specs_and_data();
        update.apply(specs, values, &self.gradient, &mut self.state, pool);
        self.engine.update_running_stats(&mut self.params);
        self.engine.load(&self.params, pool);
    }

    fn load(&mut self, params: &Params, pool: &Pool) {
        self.params.load(params);
        self.engine.load(&self.params, pool);
    }

    fn store(&self, params: &mut Params) {
        self.params.store(params);
    }

    fn gradient(&self, gradient: &mut Params) {
        self.params.convert_back(&self.gradient[0], &mut gradient.data);
    }

    fn optimizer_state(&self) -> OptimizerState {
        self.params.state_back(&self.state)
    }

    fn set_optimizer_state(&mut self, state: &OptimizerState) {
        self.state = self.params.state(state);
    }
}
