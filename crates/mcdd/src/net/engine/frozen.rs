//! A trainer for a network that stays as it is: only the head learns.

use std::sync::Arc;

use super::{Network, NetworkBuffers, Trainer, TrainingObjective};
use crate::compute::pool::{Pool, chunks};
use crate::net::optimizer::{OptimizerState, Update};
use crate::net::params::Params;

/// Computes latent vectors with a network of any kind and changes nothing in it.
pub struct FrozenTrainer {
    net: Arc<dyn Network>,
    x: Vec<f32>,
    z: Vec<f32>,
    dz: Vec<f32>,
}

impl FrozenTrainer {
    /// A trainer that leaves `net` unchanged.
    pub fn new(net: Arc<dyn Network>) -> FrozenTrainer {
        FrozenTrainer { net, x: Vec::new(), z: Vec::new(), dz: Vec::new() }
    }
}

impl Trainer for FrozenTrainer {
    fn parts(&self) -> usize {
        1
    }

    fn step(&mut self, rows: usize, objective: &dyn TrainingObjective, pool: &Pool) -> f64 {
        let (net, input, latent) = (&self.net, self.net.input(), self.net.latent());
        let x = objective.inputs(0..rows, &mut self.x);
        self.z.resize(rows * latent, 0.0);
        self.dz.resize(rows * latent, 0.0);
        let each = rows.div_ceil(pool.threads()).max(1);
        pool.split(chunks(&mut self.z, each * latent), |i, z| {
            let x = &x[i * each * input..][..z.len() / latent * input];
            z.copy_from_slice(net.latents(x, &mut NetworkBuffers::default()));
        });
        objective.loss(0, 0..rows, &self.z, &mut self.dz)
    }

    fn update(&mut self, _: &Update, _: &Pool) {}

    fn load(&mut self, _: &Params, _: &Pool) {}

    fn store(&self, _: &mut Params) {}

    fn gradient(&self, gradient: &mut Params) {
        gradient.data.fill(0.0);
    }

    fn optimizer_state(&self) -> OptimizerState {
        OptimizerState::default()
    }

    fn set_optimizer_state(&mut self, _: &OptimizerState) {}
}
