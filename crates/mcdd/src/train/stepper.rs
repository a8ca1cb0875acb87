//! One step of training: a batch through the network and the head, forward and back.

use std::thread::Scope;

use super::{BatchSampler, Examples, ImageRows, LabeledRows, Settings, Shards};
use crate::compute::pool::{Pool, chunks};
use crate::data::{Loader, Loading};
use crate::error::{Error, Result};
use crate::head::{Head, LossBuffers, Sampling};
use crate::net::cpu::{self, Engine, ImageEngine, Predictor};
use crate::net::{Graph, Params};

/// Takes batches; rows go through in shards, images all together, layer by layer.
#[allow(clippy::large_enum_variant)] // there is one of them in a run
pub(super) enum Stepper<'a> {
    Rows {
        engine: Engine,
        shards: Shards,
        data: LabeledRows<'a>,
    },
    Images(Box<ImageStepper>),
    /// A network that stays as it is.
    Frozen(Box<FrozenStepper>),
}

/// Images that a network as it is makes latents of; only the head learns.
pub(super) struct FrozenStepper {
    net: Predictor,
    width: usize,
    latent: usize,
    loader: Loader,
    head: [Vec<f32>; 1],
    scratch: LossBuffers,
}

impl FrozenStepper {
    fn step(&mut self, head: &dyn Head, labels: &[u32], pool: &Pool) -> f64 {
        let Some(batch) = self.loader.next_batch() else { return f64::NAN };
        let y: Vec<u32> = batch.index.iter().map(|&r| labels[r]).collect();
        let (mut z, mut dz) = (vec![0.0; y.len() * self.latent], vec![0.0; y.len() * self.latent]);
        let (net, width, latent, x) = (&self.net, self.width, self.latent, &batch.x);
        // One image at a time: each gives what it gives in any company.
        pool.split(chunks(&mut z, latent), |i, z| {
            z.copy_from_slice(net.latents(&x[i * width..(i + 1) * width], &mut cpu::ForwardBuffers::default()));
        });
        head.loss(&z, &y, y.len(), &mut dz, &mut self.head[0], &mut self.scratch)
    }
}

/// What images need; batches are made ready beside it.
pub(super) struct ImageStepper {
    engine: ImageEngine,
    loader: Loader,
    net: [Vec<f32>; 1],
    head: [Vec<f32>; 1],
    scratch: LossBuffers,
}

/// An error where a batch takes more memory than the system says that it can give.
fn check_memory(bytes: usize) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    let gigabytes = |bytes: usize| format!("{:.1} GB", bytes as f64 / 1e9);
    match free.map(|kilobytes| kilobytes.saturating_mul(1024)) {
        Some(free) if bytes > free => Err(Error::setting(format!(
            "a batch of these images takes {} of memory, and {} are free",
            gigabytes(bytes),
            gigabytes(free)
        ))
        .hint("give smaller images (--image-size 64x64), a smaller --batch, or a smaller --net")),
        _ => Ok(()),
    }
}

impl<'a> Stepper<'a> {
    /// For batches of up to `batch`; threads that make images ready live in `scope`.
    pub fn new(
        graph: &Graph,
        settings: &Settings,
        params: (&Params, &Params),
        train: Examples<'a>,
        (member, batch): (usize, usize),
        scope: &'a Scope<'a, '_>,
    ) -> Result<Stepper<'a>> {
        let (net, head) = params;
        Ok(match train {
            Examples::Rows(data) => {
                let whole = settings.head.sampling() != Sampling::Shuffled;
                let shards = Shards::new(net, head, batch, graph.input, whole);
                Stepper::Rows { engine: Engine::new(graph)?, shards, data }
            }
            Examples::Images(ImageRows { images, rows, spec, .. }) => {
                let augment = settings.image.as_ref().and_then(|i| i.augment);
                // Each member sees other crops; a thread is enough for any network.
                let seed = settings.seed.wrapping_add((member as u64) << 32);
                let loading = Loading { images, rows, spec, augment, seed, batch, threads: 1 };
                if settings.frozen() {
                    return Ok(Stepper::Frozen(Box::new(FrozenStepper {
                        net: Predictor::new(graph, net)?,
                        width: graph.input,
                        latent: graph.latent()?,
                        loader: Loader::start(scope, loading)?,
                        head: [vec![0.0; head.data.len()]],
                        scratch: LossBuffers::default(),
                    })));
                }
                let engine = ImageEngine::new(graph)?;
                check_memory(engine.bytes(batch.min(rows.len())))?;
                Stepper::Images(Box::new(ImageStepper {
                    engine,
                    loader: Loader::start(scope, loading)?,
                    net: [vec![0.0; net.data.len()]],
                    head: [vec![0.0; head.data.len()]],
                    scratch: LossBuffers::default(),
                }))
            }
        })
    }

    /// An epoch begins, whose batches are known.
    pub fn begin(&mut self, epoch: usize, sampler: &BatchSampler) -> Result<()> {
        match self {
            Stepper::Rows { .. } => Ok(()),
            Stepper::Images(s) => s.loader.epoch(epoch, sampler.batches()),
            Stepper::Frozen(s) => s.loader.epoch(epoch, sampler.batches()),
        }
    }

    /// The loss of the next batch, which has these rows, and all gradients of it.
    pub fn step(&mut self, net: &Params, head: &dyn Head, labels: &[u32], rows: &[usize], pool: &Pool) -> f64 {
        match self {
            Stepper::Rows { engine, shards, data } => shards.run(engine, net, head, *data, rows, pool),
            Stepper::Frozen(s) => s.step(head, labels, pool),
            Stepper::Images(s) => {
                let ImageStepper { engine, loader, net: [net_gradient], head: [head_gradient], scratch } = &mut **s;
                let Some(batch) = loader.next_batch() else { return f64::NAN };
                debug_assert_eq!(batch.index, rows);
                let y: Vec<u32> = rows.iter().map(|&r| labels[r]).collect();
                engine.forward(net, &batch.x, pool);
                let (z, dz) = engine.latents_and_gradient();
                let loss = head.loss(z, &y, y.len(), dz, head_gradient, scratch);
                engine.backward(net, &batch.x, net_gradient, pool);
                loss
            }
        }
    }

    /// The gradients of the network's parameters, to be added in this order; none where it stays as it is.
    pub fn net_gradients(&self) -> Option<&[Vec<f32>]> {
        match self {
            Stepper::Rows { shards, .. } => Some(shards.net_gradients()),
            Stepper::Images(s) => Some(&s.net),
            Stepper::Frozen(_) => None,
        }
    }

    /// The same for the head's.
    pub fn head_gradients(&self) -> &[Vec<f32>] {
        match self {
            Stepper::Rows { shards, .. } => shards.head_gradients(),
            Stepper::Images(s) => &s.head,
            Stepper::Frozen(s) => &s.head,
        }
    }

    /// Lets running statistics follow the last batch.
    pub fn update_running_stats(&self, net: &mut Params) {
        match self {
            Stepper::Rows { engine, shards, .. } => engine.update_running_stats(net, shards.net_gradients()),
            Stepper::Images(s) => s.engine.update_running_stats(net),
            Stepper::Frozen(_) => {}
        }
    }

    /// Takes over new parameters.
    pub fn load(&mut self, net: &Params, pool: &Pool) {
        match self {
            Stepper::Rows { engine, .. } => engine.load(net, pool),
            Stepper::Images(s) => s.engine.load(net, pool),
            Stepper::Frozen(_) => {}
        }
    }
}
