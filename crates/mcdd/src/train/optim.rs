//! Optimizers and learning-rate schedules.

use serde::{Deserialize, Serialize};

use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{self, Kernel};
use crate::error::{Error, Result};
use crate::net::Params;

/// How parameters follow their gradients; formulas and defaults as in PyTorch.
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

/// How the learning rate changes over training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum Schedule {
    /// It does not.
    Constant,
    /// Down to 0 along half a cosine.
    #[default]
    Cosine,
    /// Times `factor` at each of these shares of the run.
    Steps {
        /// Shares in `0..1`, e.g. 0.5 and 0.75.
        at: Vec<f64>,
        /// E.g. 0.1.
        factor: f64,
    },
}

impl Schedule {
    /// The rate at `step` of `steps`, as a share of the first.
    pub fn at(&self, step: u64, steps: u64) -> f64 {
        let done = step as f64 / steps.max(1) as f64;
        match self {
            Schedule::Constant => 1.0,
            Schedule::Cosine => 0.5 * (1.0 + libm::cos(core::f64::consts::PI * done)),
            Schedule::Steps { at, factor } => at.iter().filter(|&&a| done >= a).fold(1.0, |r, _| r * factor),
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn check(&self) -> Result<()> {
        match self {
            Schedule::Steps { at, factor }
                if !(at.iter().all(|a| (0.0..1.0).contains(a)) && *factor > 0.0 && *factor <= 1.0) =>
            {
                Err(Error::setting(
                    "the schedule's steps must be shares between 0 and 1, its factor above 0 and at most 1",
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Optimizer {
    /// Checks the ranges.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn check(&self) -> Result<()> {
        let share = |v: f64| (0.0..1.0).contains(&v);
        match *self {
            Optimizer::Adam { beta1, beta2, eps } if share(beta1) && share(beta2) && eps > 0.0 => Ok(()),
            Optimizer::Sgd { momentum } if share(momentum) => Ok(()),
            _ => Err(Error::setting("momentum and betas must be at least 0 and below 1, eps above 0")),
        }
    }
}

/// What an optimizer remembers of one set of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Adam: mean gradient; SGD: momentum.
    pub first: Vec<f32>,
    /// Adam: mean squared gradient; SGD: empty.
    pub second: Vec<f32>,
}

impl State {
    /// The state before the first step.
    pub fn new(optimizer: &Optimizer, params: &Params) -> State {
        let n = params.data.len();
        let second = if matches!(optimizer, Optimizer::Adam { .. }) { n } else { 0 };
        State { first: vec![0.0; n], second: vec![0.0; second] }
    }
}

/// Numbers of one step that are the same for all parameters.
struct Rule {
    optimizer: Optimizer,
    /// Learning rate, for Adam divided by the first bias correction.
    rate: f32,
    /// Adam: one over the square root of the second bias correction.
    correction: f32,
}

/// One update of all trained parameters; `step` counts from 1, and the gradient is the sum of `gradients`, in order.
#[allow(clippy::too_many_arguments)]
pub fn update(
    optimizer: &Optimizer,
    rate: f64,
    weight_decay: f64,
    step: u64,
    params: &mut Params,
    gradients: &[Vec<f32>],
    state: &mut State,
    pool: &Pool,
) {
    let rule = match *optimizer {
        Optimizer::Adam { beta1, beta2, .. } => Rule {
            optimizer: *optimizer,
            rate: (rate / (1.0 - libm::pow(beta1, step as f64))) as f32,
            correction: (1.0 / libm::sqrt(1.0 - libm::pow(beta2, step as f64))) as f32,
        },
        Optimizer::Sgd { .. } => Rule { optimizer: *optimizer, rate: rate as f32, correction: 1.0 },
    };
    // One loop over all parameters; a thread that has less than a page of work costs more than it brings.
    let chunk = pool.chunk(params.data.len(), 16).max(2048);
    let (specs, values) = params.specs_and_data();
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
            let decay = if spec.decay { weight_decay as f32 } else { 0.0 };
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
                simd::dispatch(Part { rule: &rule, decay, values, gradients: gradient, first, second });
            }
        }
    });
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
    fn run(self) {
        self.out.iter_mut().zip(self.a).zip(self.b).for_each(|((o, a), b)| *o = a + b);
    }
}

struct Part<'a> {
    rule: &'a Rule,
    decay: f32,
    values: &'a mut [f32],
    gradients: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Kernel for Part<'_> {
    #[inline(always)]
    fn run(self) {
        let (rate, correction, decay) = (self.rule.rate, self.rule.correction, self.decay);
        let each = self.values.iter_mut().zip(self.gradients).zip(self.first);
        match self.rule.optimizer {
            Optimizer::Adam { beta1, beta2, eps } => {
                let (b1, b2, eps) = (beta1 as f32, beta2 as f32, eps as f32);
                let (c1, c2) = ((1.0 - beta1) as f32, (1.0 - beta2) as f32);
                for (((p, &g), m), v) in each.zip(self.second) {
                    let g = decay.mul_add(*p, g);
                    *m = b1.mul_add(*m, c1 * g);
                    *v = b2.mul_add(*v, c2 * g * g);
                    *p -= rate * *m / v.sqrt().mul_add(correction, eps);
                }
            }
            Optimizer::Sgd { momentum } => {
                let momentum = momentum as f32;
                for ((p, &g), m) in each {
                    let g = decay.mul_add(*p, g);
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
    use crate::net::ParamSpec;

    fn params(values: &[f32]) -> Params {
        let spec = |name: &str, n, decay, trained| ParamSpec {
            name: name.into(),
            shape: vec![n],
            transposed: false,
            decay,
            trained,
        };
        let mut p = Params::new(vec![
            spec("weight", values.len(), true, true),
            spec("bias", 1, false, true),
            spec("validation", 1, true, false),
        ]);
        p.data[..values.len()].copy_from_slice(values);
        p
    }

    /// Runs some steps on `loss = sum (p - 1)^2 / 2`, and the textbook formulas in f64 beside it.
    fn follow(optimizer: Optimizer, decay: f64, textbook: impl Fn(u64, f64, f64, &mut [f64; 2]) -> f64) {
        let start: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut p = params(&start);
        let mut state = State::new(&optimizer, &p);
        let mut expected: Vec<f64> = p.data.iter().map(|&v| f64::from(v)).collect();
        let mut memory = vec![[0.0; 2]; expected.len()];
        let pool = Pool::new(2);
        for step in 1..=5 {
            let gradients: Vec<f32> = p.data.iter().map(|v| v - 1.0).collect();
            // In two parts, as from two shards; halves are exact.
            let half: Vec<f32> = gradients.iter().map(|g| g / 2.0).collect();
            update(&optimizer, 0.01, decay, step, &mut p, &[half.clone(), half], &mut state, &pool);
            for (i, (v, memory)) in expected.iter_mut().zip(&mut memory).enumerate() {
                if i < 5001 {
                    let decayed = if i < 5000 { decay * *v } else { 0.0 };
                    *v -= textbook(step, *v - 1.0 + decayed, 0.01, memory);
                }
            }
        }
        for (got, e) in p.data.iter().zip(&expected) {
            assert!((f64::from(*got) - e).abs() < 2e-6, "{got} {e}");
        }
        assert_eq!(p.data[5001], 0.0, "a parameter that is not trained stays");
    }

    #[test]
    fn adam_is_the_textbooks() {
        follow(Optimizer::default(), 0.1, |t, g, rate, [m, v]| {
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            let (mh, vh) = (*m / (1.0 - 0.9f64.powi(t as i32)), *v / (1.0 - 0.999f64.powi(t as i32)));
            rate * mh / (vh.sqrt() + 1e-8)
        });
    }

    #[test]
    fn sgd_is_nesterovs_as_in_pytorch() {
        follow(Optimizer::Sgd { momentum: 0.9 }, 1e-2, |_, g, rate, [m, _]| {
            *m = 0.9 * *m + g;
            rate * (g + 0.9 * *m)
        });
    }

    #[test]
    fn schedules() {
        assert_eq!(Schedule::Constant.at(7, 10), 1.0);
        assert_eq!(Schedule::Cosine.at(0, 10), 1.0);
        assert!((Schedule::Cosine.at(5, 10) - 0.5).abs() < 1e-12 && Schedule::Cosine.at(10, 10) < 1e-12);
        let steps = Schedule::Steps { at: vec![0.5, 0.75], factor: 0.1 };
        assert_eq!(steps.at(4, 10), 1.0);
        assert!((steps.at(5, 10) - 0.1).abs() < 1e-12 && (steps.at(9, 10) - 0.01).abs() < 1e-12);
        assert!(Schedule::Steps { at: vec![1.5], factor: 0.1 }.check().is_err());
        assert!(Optimizer::Sgd { momentum: 1.0 }.check().is_err());
    }
}
