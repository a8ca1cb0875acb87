//! Optimizers: how parameters follow their gradients. Formulas and defaults are PyTorch's.

use serde::{Deserialize, Serialize};

use super::params::ParamSpec;
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{self, Kernel, Simd};
use crate::error::{Error, Result};

/// Which optimizer, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum Optimizer {
    /// Kingma and Ba 2015.
    Adam {
        /// Decay of the mean gradient, in `0..1`; 0.9.
        beta1: f64,
        /// Decay of the mean squared gradient, in `0..1`; 0.999.
        beta2: f64,
        /// Added to the denominator; 1e-8.
        eps: f64,
    },
    /// Stochastic gradient descent with Nesterov momentum.
    Sgd {
        /// In `0..1`; 0.9.
        momentum: f64,
    },
}

impl Default for Optimizer {
    fn default() -> Self {
        Optimizer::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }
}

impl Optimizer {
    /// Checks the ranges.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn check(&self) -> Result<()> {
        let fraction = |v: f64| (0.0..1.0).contains(&v);
        match *self {
            Optimizer::Adam { beta1, beta2, eps } if fraction(beta1) && fraction(beta2) && eps > 0.0 => Ok(()),
            Optimizer::Sgd { momentum } if fraction(momentum) => Ok(()),
            _ => Err(Error::setting("momentum and betas must be at least 0 and below 1, eps above 0")),
        }
    }
}

/// The state of an optimizer for one set of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptimizerState {
    /// Adam: mean gradient; SGD: momentum.
    pub first: Vec<f32>,
    /// Adam: mean squared gradient; SGD: empty.
    pub second: Vec<f32>,
}

impl OptimizerState {
    /// The state before the first step, for `n` values.
    pub fn new(optimizer: &Optimizer, n: usize) -> OptimizerState {
        let second = if matches!(optimizer, Optimizer::Adam { .. }) { n } else { 0 };
        OptimizerState { first: vec![0.0; n], second: vec![0.0; second] }
    }
}

/// One step of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The learning rate.
    pub rate: f64,
    /// Weight decay, for the parameters that have it.
    pub weight_decay: f64,
    /// The number of this step, counted from 1.
    pub step: u64,
}

/// Numbers of one step that are the same for all parameters.
struct Factors {
    optimizer: Optimizer,
    /// Learning rate, for Adam divided by the first bias correction.
    rate: f32,
    /// Adam: one over the square root of the second bias correction.
    correction: f32,
}

impl Update {
    /// Updates all trained parameters. `values` are those of `specs`, one tensor after the other, in any layout that
    /// `gradients` and `state` share; the gradient is the sum of `gradients`, in this order.
    pub fn apply(
        &self,
        specs: &[ParamSpec],
        values: &mut [f32],
        gradients: &[Vec<f32>],
        state: &mut OptimizerState,
        pool: &Pool,
    ) {
        let factors = self.factors();
        // One loop over all parameters; a thread that has less than a page of work costs more than it brings.
        let chunk = pool.chunk(values.len(), 16).max(2048);
        let parts = (chunks(values, chunk), chunks(&mut state.first, chunk), chunks(&mut state.second, chunk));
        pool.split(parts, |i, (values, first, second)| {
            let here = i * chunk..i * chunk + values.len();
            let mut start = 0;
            for spec in specs {
                let all = start..start + spec.len();
                start = all.end;
                let range = all.start.max(here.start)..all.end.min(here.end);
                if !spec.trained || range.is_empty() {
                    continue;
                }
                let decay = if spec.decay { self.weight_decay as f32 } else { 0.0 };
                let gain = spec.rate as f32;
                // In blocks that stay in the first-level cache.
                for start in range.clone().step_by(SUM_BLOCK) {
                    let end = (start + SUM_BLOCK).min(range.end);
                    let mut sum = [0.0f32; SUM_BLOCK];
                    let part = |g: usize| &gradients[g][start..end];
                    let gradient = match gradients.len() {
                        0 => return,
                        1 => part(0),
                        count => {
                            let sum = &mut sum[..end - start];
                            simd::dispatch(Sum { out: sum, a: part(0), b: part(1) });
                            (2..count).for_each(|g| sum.iter_mut().zip(part(g)).for_each(|(s, g)| *s += g));
                            &*sum
                        }
                    };
                    let inside = start - here.start..end - here.start;
                    let second = if second.is_empty() { &mut [][..] } else { &mut second[inside.clone()] };
                    let (values, first) = (&mut values[inside.clone()], &mut first[inside]);
                    simd::dispatch(Part { factors: &factors, decay, gain, values, gradients: gradient, first, second });
                }
            }
        });
    }

    fn factors(&self) -> Factors {
        let Update { optimizer, rate, step, .. } = *self;
        match optimizer {
            Optimizer::Adam { beta1, beta2, .. } => Factors {
                optimizer,
                rate: (rate / (1.0 - libm::pow(beta1, step as f64))) as f32,
                correction: (1.0 / libm::sqrt(1.0 - libm::pow(beta2, step as f64))) as f32,
            },
            Optimizer::Sgd { .. } => Factors { optimizer, rate: rate as f32, correction: 1.0 },
        }
    }
}

/// Parameters whose gradients are summed up at a time.
const SUM_BLOCK: usize = 1024;

struct Sum<'a> {
    out: &'a mut [f32],
    a: &'a [f32],
    b: &'a [f32],
}

impl Kernel for Sum<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.out.iter_mut().zip(self.a).zip(self.b).for_each(|((o, a), b)| *o = a + b);
    }
}

struct Part<'a> {
    factors: &'a Factors,
    decay: f32,
    /// The factor of the gradient.
    gain: f32,
    values: &'a mut [f32],
    gradients: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Kernel for Part<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (rate, correction, decay, gain) = (self.factors.rate, self.factors.correction, self.decay, self.gain);
        let each = self.values.iter_mut().zip(self.gradients).zip(self.first);
        match self.factors.optimizer {
            Optimizer::Adam { beta1, beta2, eps } => {
                let (b1, b2, eps) = (beta1 as f32, beta2 as f32, eps as f32);
                let (c1, c2) = ((1.0 - beta1) as f32, (1.0 - beta2) as f32);
                for (((p, &g), m), v) in each.zip(self.second) {
                    let g = decay.mul_add(*p, g * gain);
                    *m = b1.mul_add(*m, c1 * g);
                    *v = b2.mul_add(*v, c2 * g * g);
                    *p -= rate * *m / v.sqrt().mul_add(correction, eps);
                }
            }
            Optimizer::Sgd { momentum } => {
                let momentum = momentum as f32;
                for ((p, &g), m) in each {
                    let g = decay.mul_add(*p, g * gain);
                    *m = momentum.mul_add(*m, g);
                    *p -= rate * momentum.mul_add(*m, g);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{ParamSpec, Params};

    fn params(values: &[f32]) -> Params {
        let spec = |name: &str, n, decay, trained| ParamSpec {
            name: name.into(),
            shape: vec![n],
            decay,
            trained,
            rate: if name == "bias" { 3 } else { 1 },
        };
        let mut p = Params::new(vec![
            spec("weight", values.len(), true, true),
            spec("bias", 1, false, true),
            spec("fixed", 1, true, false),
        ]);
        p.data[..values.len()].copy_from_slice(values);
        p
    }

    /// Runs some steps on `loss = sum (p - 1)^2 / 2`, and the textbook formulas in f64 beside it.
    fn follow(optimizer: Optimizer, decay: f64, textbook: impl Fn(u64, f64, f64, &mut [f64; 2]) -> f64) {
        let start: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut p = params(&start);
        let mut state = OptimizerState::new(&optimizer, p.data.len());
        let mut expected: Vec<f64> = p.data.iter().map(|&v| f64::from(v)).collect();
        let mut memory = vec![[0.0; 2]; expected.len()];
        let pool = Pool::new(2);
        for step in 1..=5 {
            let gradients: Vec<f32> = p.data.iter().map(|v| v - 1.0).collect();
            // In two parts, as from two shards; halves are exact.
            let half: Vec<f32> = gradients.iter().map(|g| g / 2.0).collect();
            let update = Update { optimizer, rate: 0.01, weight_decay: decay, step };
            let (specs, values) = p.specs_and_data();
            update.apply(specs, values, &[half.clone(), half], &mut state, &pool);
            for (i, (v, memory)) in expected.iter_mut().zip(&mut memory).enumerate() {
                if i < 5001 {
                    let decayed = if i < 5000 { decay * *v } else { 0.0 };
                    let gain = if i < 5000 { 1.0 } else { 3.0 };
                    *v -= textbook(step, (*v - 1.0) * gain + decayed, 0.01, memory);
                }
            }
        }
        for (got, e) in p.data.iter().zip(&expected) {
            assert!((f64::from(*got) - e).abs() < 2e-6, "{got} {e}");
        }
        assert_eq!(p.data[5001], 0.0, "a parameter that is not trained stays");
    }

    #[test]
    fn adam_matches_the_formulas() {
        follow(Optimizer::default(), 0.1, |t, g, rate, [m, v]| {
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            let (mh, vh) = (*m / (1.0 - 0.9f64.powi(t as i32)), *v / (1.0 - 0.999f64.powi(t as i32)));
            rate * mh / (vh.sqrt() + 1e-8)
        });
    }

    #[test]
    fn sgd_has_nesterov_momentum_as_in_pytorch() {
        follow(Optimizer::Sgd { momentum: 0.9 }, 1e-2, |_, g, rate, [m, _]| {
            *m = 0.9 * *m + g;
            rate * (g + 0.9 * *m)
        });
    }
}
