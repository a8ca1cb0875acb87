//! Adversarially learned anomaly detection (ALAD; Zenati et al., ICDM 2018): an encoder E and a generator G against three
//! discriminators.
//!
//! With rows `x` and codes `z` of independent standard normals, the discriminators learn to distinguish the pairs
//! `(x, E(x))` from `(G(z), z)`, `(x, x)` from `(x, G(E(x)))`, and `(z, z)` from `(z, E(G(z)))`, each by cross-entropy; E
//! and G learn the opposite (the non-saturating form). A step draws codes, updates the discriminators, then E and G against
//! the new discriminators. Rows that `G(E(x))` does not reconstruct are unlike the training rows: see `head::Alad`, which
//! scores them by the hidden layer of the second discriminator.
//!
//! As in the paper: the three discriminators, their losses, spectral normalization of the discriminators (here by one power
//! iteration a step, see [`nets`]), and the score. As in the authors' code: Adam with a `beta1` of 0.5 (a smaller one in the
//! settings is kept), codes of 32 features, discriminators' layers of 128, one hidden layer in the discriminators of
//! reconstructions, and prediction with averages of the weights over the last thousand steps or so.
//!
//! Ours: all layers have ReLU and no dropout or batch normalization; the discriminator of `(x, z)` reads both from its first
//! layer on; the encoder is not normalized; and the learning rate is three times that of the settings, with their
//! schedule. `docs/decisions/0004-alad.md` has the measurements. Encoder and generator have the hidden layers of the
//! settings, the generator in reverse; the settings' latent features are not used.
//!
//! The five networks run on the CPU engine's own kernels: spectral normalization and chained gradients need more than a
//! [`Trainer`](crate::net::Trainer) offers. The trained network is run by any engine.

mod nets;
mod shard;

use self::nets::{Nets, XX, sizes};
use self::shard::Shard;
use super::checkpoint::{Checkpointer, Tensors};
use super::{Best, Epoch, LabeledRows, Member, Run, Select, Settings};
use crate::compute::pool::{Pool, chunks};
use crate::error::{Error, Kind, Result};
use crate::head::Head;
use crate::net::cpu::shard_rows;
use crate::net::{Engine, Graph, NetworkBuffers, Optimizer, Params, Update, autoencoder};
use crate::seed::Stream;

/// The largest `beta1` of Adam: a longer memory follows adversarial training too late.
const MOST_BETA1: f64 = 0.5;
/// The factor of the learning rate: of 0.3, 1, 3 and 10, the one that reconstructed validation rows best.
const RATE: f64 = 3.0;
/// The fraction of the averaged weights that a step keeps, after many steps.
const KEEP: f64 = 0.999;
/// The number of rows scored together.
const BLOCK: usize = 96;

/// The network that predicts: encoder, generator, and the row beside its reconstruction.
pub(super) fn graph(input: usize, settings: &Settings) -> Graph {
    autoencoder(input, &settings.hidden, sizes(settings).0)
}

/// The optimizer of all five networks.
fn optimizer(settings: &Settings) -> Optimizer {
    match settings.optimizer {
        Optimizer::Adam { beta1, beta2, eps } => Optimizer::Adam { beta1: beta1.min(MOST_BETA1), beta2, eps },
        other => other,
    }
}

/// The state of a run between two steps.
struct AladState {
    nets: Nets,
    /// The parameters for prediction: the averages of encoder and generator; the head has those of the discriminator of
    /// reconstructions.
    net: Params,
    head: Box<dyn Head>,
    step: u64,
    history: Vec<Epoch>,
    best: Option<Best>,
}

impl AladState {
    fn new(graph: &Graph, settings: &Settings, member: usize, pool: &Pool) -> Result<AladState> {
        let nets = Nets::new(graph.input, settings, &optimizer(settings), member, pool)?;
        let head = settings.head.build(0, graph.latent()?, &mut Stream::new(settings.seed, "alad/head"));
        let net = Params::new(graph.specs());
        let mut state = AladState { nets, net, head, step: 0, history: Vec::new(), best: None };
        state.take_averages();
        Ok(state)
    }

    /// Copies the averages to the network and head that predict.
    fn take_averages(&mut self) {
        let Nets { encoder, generator, discriminators } = &self.nets;
        let (first, second) = self.net.data.split_at_mut(encoder.average.data().len());
        first.copy_from_slice(&encoder.averaged().data);
        second.copy_from_slice(&generator.averaged().data);
        let discriminator = discriminators[XX].averaged();
        let params = self.head.params_mut();
        for i in 0..params.specs().len() {
            params.get_mut(i).copy_from_slice(discriminator.get(i));
        }
    }

    fn snapshot(&self, epoch: usize, loss: f64) -> Best {
        Best { epoch, loss, net: self.net.data.clone(), head: self.head.params().data.clone() }
    }

    /// The mean reconstruction error of rows, with the weights that predict.
    fn validate(&self, engine: &dyn Engine, graph: &Graph, rows: LabeledRows, pool: &Pool) -> Result<f64> {
        let net = engine.network(graph, &self.net)?;
        let mut errors = vec![0.0; rows.y.len()];
        pool.split(chunks(&mut errors, BLOCK), |i, errors| {
            let x = &rows.x[i * BLOCK * graph.input..][..errors.len() * graph.input];
            let mut buffers = NetworkBuffers::default();
            let z = net.latents(x, &mut buffers);
            for (error, z) in errors.iter_mut().zip(z.chunks_exact(2 * graph.input)) {
                *error = -self.head.score(z, &mut [], &mut []);
            }
        });
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        // An error that overflowed counts as the worst.
        Ok(if mean.is_nan() { f64::MAX } else { mean.min(f64::MAX) })
    }

    /// Adds a finished epoch to the history.
    fn record(&mut self, loss: f64, validation_loss: f64) -> Epoch {
        let epoch = self.history.len();
        let record = Epoch { epoch, loss, validation_loss, validation_accuracy: None };
        self.history.push(record);
        if self.best.as_ref().is_none_or(|b| validation_loss < b.loss) {
            self.best = Some(self.snapshot(epoch, validation_loss));
        }
        record
    }

    /// Whether there was no better epoch for so long that training is to end.
    fn stale(&self, settings: &Settings) -> bool {
        let last = self.history.len().saturating_sub(1);
        let since = self.best.as_ref().map_or(0, |b| last.saturating_sub(b.epoch));
        settings.patience.is_some_and(|patience| since >= patience)
    }

    fn save(&mut self, checkpointer: &mut Checkpointer, done: bool) -> Result<()> {
        let mut tensors = Tensors::new();
        for (name, net) in self.nets.named() {
            let net = &*net;
            let parts = [
                ("raw", net.raw.data()),
                ("first", &net.state.first),
                ("second", &net.state.second),
                ("average", net.average.data()),
            ];
            tensors.extend(parts.into_iter().map(|(part, values)| (format!("{name}.{part}"), values)));
            tensors.extend(net.norms.iter().enumerate().map(|(i, n)| (format!("{name}.norm{i}"), &n.left[..])));
        }
        checkpointer.write(self.step, &self.history, self.best.as_ref(), done, tensors)
    }

    /// Loads the last checkpoint, if there is one. Returns whether the run was complete.
    fn resume(&mut self, checkpointer: &Checkpointer, pool: &Pool) -> Result<bool> {
        let Some(mut found) = checkpointer.read()? else { return Ok(false) };
        for (name, net) in self.nets.named() {
            found.fill(&format!("{name}.raw"), net.raw.data_mut())?;
            found.fill(&format!("{name}.first"), &mut net.state.first)?;
            found.fill(&format!("{name}.second"), &mut net.state.second)?;
            found.fill(&format!("{name}.average"), net.average.data_mut())?;
            for (i, norm) in net.norms.iter_mut().enumerate() {
                found.fill(&format!("{name}.norm{i}"), &mut norm.left)?;
            }
            net.restore(pool);
        }
        self.best = found.best(|epoch, loss| self.snapshot(epoch, loss))?;
        self.step = found.step;
        self.history = found.history;
        self.take_averages();
        Ok(found.done)
    }
}

/// Means over a batch.
struct StepLosses {
    discriminator_loss: f64,
    generator_loss: f64,
    /// The reconstruction error, in the features of the discriminator.
    error: f64,
}

/// Runs the steps; holds their buffers.
struct AladTrainer<'a> {
    data: LabeledRows<'a>,
    width: usize,
    code: usize,
    codes: Vec<f32>,
    shards: Vec<Shard>,
}

impl<'a> AladTrainer<'a> {
    fn new(data: LabeledRows<'a>, batch: usize, width: usize, code: usize, nets: &Nets) -> AladTrainer<'a> {
        let count = batch.div_ceil(shard_rows(batch));
        AladTrainer { data, width, code, codes: Vec::new(), shards: vec![Shard::new(nets); count] }
    }

    /// One step of all networks on these rows, with new codes: first the discriminators, then encoder and generator.
    fn step(
        &mut self,
        nets: &mut Nets,
        rows: &[usize],
        seed: &mut Stream,
        update: &Update,
        keep: f64,
        pool: &Pool,
    ) -> StepLosses {
        let (width, code, data) = (self.width, self.code, self.data);
        self.codes.clear();
        self.codes.extend((0..rows.len() * code).map(|_| seed.normal() as f32));
        // How a batch is cut depends on its size alone, and gradients are added in order, so the number of threads changes
        // no bit.
        let (codes, size) = (&self.codes, shard_rows(rows.len()));
        let shards = &mut self.shards[..rows.len().div_ceil(size)];
        let before = &*nets;
        pool.split(chunks(shards, 1), |i, shards| {
            let mine = i * size..rows.len().min((i + 1) * size);
            for s in shards {
                s.x.clear();
                rows[mine.clone()].iter().for_each(|&r| s.x.extend(&data.x[r * width..(r + 1) * width]));
                s.z.clear();
                s.z.extend(&codes[mine.start * code..mine.end * code]);
                s.forward(before, width);
                s.train_discriminators(before, rows.len(), width, code);
            }
        });
        for (k, discriminator) in nets.discriminators.iter_mut().enumerate() {
            discriminator.update(shards.iter().map(|s| &s.discriminator_gradients[k]), update, keep, pool);
        }
        let updated = &*nets;
        pool.split(chunks(shards, 1), |_, shards| {
            shards.iter_mut().for_each(|s| s.train_generator(updated, rows.len(), width, code));
        });
        nets.encoder.update(shards.iter().flat_map(|s| &s.encoder), update, keep, pool);
        nets.generator.update(shards.iter().flat_map(|s| &s.generator), update, keep, pool);
        let sum = |f: fn(&Shard) -> f64| shards.iter().map(f).sum::<f64>();
        StepLosses {
            discriminator_loss: sum(|s| s.discriminator_loss),
            generator_loss: sum(|s| s.generator_loss),
            error: sum(|s| s.error),
        }
    }
}

/// Trains one member; `graph` must be what [`graph`] gives.
#[allow(clippy::too_many_arguments)]
pub(super) fn fit_member(
    graph: &Graph,
    settings: &Settings,
    train: LabeledRows,
    validation: LabeledRows,
    member: usize,
    mut checkpointer: Option<Checkpointer>,
    run: &Run,
    pool: &Pool,
) -> Result<Member> {
    let mut state = AladState::new(graph, settings, member, pool)?;
    let mut done = false;
    if let Some(checkpointer) = checkpointer.as_ref().filter(|_| run.resume) {
        done = state.resume(checkpointer, pool)?;
        state.history.iter().for_each(|e| run.callback.epoch(member, e));
    }
    let batch = settings.batch.min(train.y.len()).max(1);
    let mut trainer = AladTrainer::new(train, batch, graph.input, sizes(settings).0, &state.nets);
    let mut interrupted = false;
    while !done && state.history.len() < settings.epochs {
        let loss = epoch(&mut state, &mut trainer, settings, member, batch, run, pool)?;
        state.take_averages();
        let Some(loss) = loss else {
            interrupted = true;
            break;
        };
        let validation_loss = state.validate(run.engine, graph, validation, pool)?;
        run.callback.epoch(member, &state.record(loss, validation_loss));
        done = state.stale(settings) || state.history.len() == settings.epochs;
        if let Some(checkpointer) = &mut checkpointer {
            state.save(checkpointer, done)?;
        }
    }
    let mut kept = state.history.len().checked_sub(1);
    // A run that was stopped keeps its last weights: the errors of early epochs are small because the discriminator that
    // measures them has not learned much yet.
    if let Some(best) = state.best.take().filter(|_| settings.select == Select::Best) {
        state.net.data = best.net;
        state.head.params_mut().data = best.head;
        kept = Some(best.epoch);
    }
    if state.net.data.iter().chain(&state.head.params().data).any(|v| !v.is_finite()) {
        return Err(Error::new(Kind::Diverged, "training ended in weights that are not finite").hint("lower `lr`"));
    }
    Ok(Member { number: member, net: state.net, head: state.head, history: state.history, epoch: kept, interrupted })
}

/// One pass over the rows. Returns their mean reconstruction error, or none if the callback has stopped it.
fn epoch(
    state: &mut AladState,
    trainer: &mut AladTrainer,
    settings: &Settings,
    member: usize,
    batch: usize,
    run: &Run,
    pool: &Pool,
) -> Result<Option<f64>> {
    let (n, epoch) = (trainer.data.y.len(), state.history.len());
    let steps = (settings.epochs * n.div_ceil(batch)) as u64;
    let optimizer = optimizer(settings);
    // Order and codes depend on the number of the epoch alone, so a resumed run draws the same.
    let mut order: Vec<usize> = (0..n).collect();
    Stream::new(settings.seed, &format!("shuffle/{member}/{epoch}")).shuffle(&mut order);
    let mut codes = Stream::new(settings.seed, &format!("alad/codes/{member}/{epoch}"));
    let mut loss = 0.0;
    for rows in order.chunks(batch) {
        let rate = RATE * settings.lr * settings.schedule.at(state.step, steps);
        state.step += 1;
        // The first averages change fast, or they would long be close to the initial weights.
        let keep = KEEP.min((1 + state.step) as f64 / (10 + state.step) as f64);
        let update = Update { optimizer, rate, weight_decay: settings.weight_decay, step: state.step };
        let here = trainer.step(&mut state.nets, rows, &mut codes, &update, keep, pool);
        if !(here.discriminator_loss + here.generator_loss + here.error).is_finite() {
            let what = format!("the loss is not finite in epoch {}", epoch + 1);
            return Err(Error::new(Kind::Diverged, what).hint("lower `lr`"));
        }
        loss += here.error * rows.len() as f64;
        if run.callback.stop() {
            return Ok(None);
        }
    }
    Ok(Some(loss / n as f64))
}

#[cfg(test)]
mod tests;
