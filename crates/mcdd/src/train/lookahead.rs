//! Averaging of weights while they are trained (Zhang et al. 2019, *Lookahead Optimizer*).
//!
//! Every few steps, slow weights move towards the trained ones, and the trained ones continue from there. As in Jordan 2024, the
//! slow weights follow at once in the beginning and hardly any more at the end, so the last ones are a mean over the end of the
//! run.

use super::TrainState;
use crate::compute::pool::Pool;
use crate::net::Trainer;

/// The number of steps between two updates of the slow weights.
const EVERY: u64 = 5;
/// What the slow weights keep of themselves at the end of the run, per step.
const KEEP: f64 = 0.95;

/// The slow weights of the network and of the head.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lookahead {
    pub net: Vec<f32>,
    pub head: Vec<f32>,
}

impl Lookahead {
    /// Begins with the initial weights.
    pub(super) fn new(run: &TrainState) -> Lookahead {
        Lookahead { net: run.net.data.clone(), head: run.head.params().data.clone() }
    }

    /// After a step of `steps`: moves the weights, if it is time. After the last step they are the slow ones.
    pub(super) fn step(&mut self, run: &mut TrainState, trainer: &mut dyn Trainer, steps: u64, pool: &Pool) {
        let last = run.step == steps;
        if !run.step.is_multiple_of(EVERY) && !last {
            return;
        }
        let done = run.step as f64 / steps as f64;
        let keep = if last { 1.0 } else { KEEP.powi(EVERY as i32) * done * done * done };
        let follow = (1.0 - keep) as f32;
        trainer.store(&mut run.net);
        for (slow, fast) in [(&mut self.net, &mut run.net.data), (&mut self.head, &mut run.head.params_mut().data)] {
            for (slow, fast) in slow.iter_mut().zip(fast.iter_mut()) {
                *slow = follow.mul_add(*fast - *slow, *slow);
                *fast = *slow;
            }
        }
        trainer.load(&run.net, pool);
    }
}
