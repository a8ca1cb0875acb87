//! Training: a network and a head on the rows of a table or on images.

mod alad;
mod batches;
mod bins;
mod checkpoint;
mod examples;
mod lookahead;
pub mod optim;
mod sampler;
mod settings;
mod start;

use std::path::PathBuf;
use std::thread::Scope;

use serde::{Deserialize, Serialize};

pub use batches::{Batch, BatchLoss, HeadLoss};
pub use bins::{Graphs, Role};
pub use examples::{Examples, ImageRows, LabeledRows, SelectedRows};
pub use settings::{Augmentation, DataKind, IMAGE_NU, ImageSettings, OrOff, Preset, Select, Settings, SettingsBuilder};
pub(crate) use start::initial_weights;

use self::batches::BatchSource;
use self::checkpoint::Checkpointer;
use self::lookahead::Lookahead;
use self::sampler::BatchSampler;
use crate::compute::pool::Pool;
use crate::compute::{argmax, parallel_map};
use crate::data::MIN_CLASS_ROWS;
use crate::error::{Error, Kind, Result};
use crate::head::{CenterUpdates, Head, Loop, LossBuffers, Sampling};
use crate::net::{
    Engine, FrozenTrainer, Graph, Network, OptimizerState, Params, Trainer, TrainerOptions, Update, default_engine,
    mlp_with,
};
use crate::seed::Stream;

/// How training is run. The result does not depend on any of this but the engine.
pub struct Run<'a> {
    /// The number of threads, at least 1.
    pub threads: usize,
    /// The folder for checkpoints.
    pub checkpoint: Option<PathBuf>,
    /// Whether to resume from the checkpoints in the folder.
    pub resume: bool,
    /// Receives progress.
    pub callback: &'a dyn Callback,
    /// Runs and trains the networks.
    pub engine: &'a dyn Engine,
    /// The number of rows that each class needs, at least 1; training on a class with fewer is an error.
    pub min_class_rows: usize,
}

/// The initial weights of a network, if they are not random.
pub type Start<'a> = Option<&'a Params>;

impl Default for Run<'_> {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        Run {
            threads,
            checkpoint: None,
            resume: false,
            callback: &NoCallback,
            engine: default_engine(),
            min_class_rows: MIN_CLASS_ROWS,
        }
    }
}

/// Receives the progress of training, and may stop it.
pub trait Callback: Sync {
    /// Called before training with what was done to the data.
    fn notices(&self, _notices: &[String]) {}
    /// Called when training begins, with the number of members, the largest number of epochs of each, and the number of rows
    /// of an epoch.
    fn begin(&self, _members: usize, _epochs: usize, _rows: usize) {}
    /// Called after each step with the number of its rows.
    fn step(&self, _rows: usize) {}
    /// Called after each epoch of a member.
    fn epoch(&self, _member: usize, _epoch: &Epoch) {}
    /// Called after each step; `true` ends training with the best weights so far.
    fn stop(&self) -> bool {
        false
    }
}

/// A [`Callback`] that does nothing.
pub struct NoCallback;
impl Callback for NoCallback {}

/// The record of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Counted from 0.
    pub epoch: usize,
    /// Mean loss over the training rows, during the epoch.
    pub loss: f64,
    /// Mean loss over the validation rows, after the epoch.
    pub validation_loss: f64,
    /// Accuracy on the validation rows; none where the method does not classify.
    pub validation_accuracy: Option<f64>,
}

/// The rows of a member of the ensemble.
#[derive(Clone, Copy, Debug)]
pub struct MemberRows<'a> {
    /// The rows that it is trained on.
    pub train: Examples<'a>,
    /// The rows that it leaves out, for its validation loss.
    pub validation: Examples<'a>,
}

/// A trained member of the ensemble.
pub struct Member {
    /// Its number, from 0; members that were interrupted before their first epoch are missing.
    pub number: usize,
    /// The network's parameters.
    pub net: Params,
    /// The head with its parameters.
    pub head: Box<dyn Head>,
    /// The records of all epochs.
    pub history: Vec<Epoch>,
    /// The epoch whose weights these are, counted from 0; none if training was stopped during the first.
    pub epoch: Option<usize>,
    /// Whether the callback stopped training.
    pub interrupted: bool,
}

/// The network that a method is trained with, for images of this height, width and number of channels.
///
/// # Errors
/// If the settings are not for images, or the images are too small.
pub fn image_graph(image: [usize; 3], settings: &Settings) -> Result<Graph> {
    let Some(s) = &settings.image else { return Err(Error::setting("these settings are not for images")) };
    s.net.graph(image, s.latent)
}

/// The network that a method is trained with on a table.
pub fn graph(input: usize, settings: &Settings) -> Graph {
    let clip = settings.clip.map(|c| c as f32);
    let with = |batch_norm| mlp_with(input, clip, &settings.hidden, settings.latent, batch_norm);
    match settings.head.trained_by() {
        Loop::ClosedForm => Graph { input, nodes: Vec::new() },
        Loop::Adversarial => alad::graph(input, settings),
        Loop::Gradients if settings.head.allows_bias() => with(settings.batch_norm),
        Loop::Gradients => with(false).without_bias(),
    }
}

/// Trains all members, in parallel where there are threads for it. The result does not depend on the number of threads.
/// `rows` has the rows of each member.
///
/// # Errors
/// If the loss is not finite, or a checkpoint cannot be written or read.
pub fn fit(
    graphs: &Graphs,
    settings: &Settings,
    classes: usize,
    rows: &[MemberRows],
    start: Start,
    run: &Run,
) -> Result<Vec<Member>> {
    settings.check()?;
    let most = rows.iter().map(|rows| rows.train.len()).max().unwrap_or(0);
    let settings = &Settings { epochs: settings.epochs_for(most), ..settings.clone() };
    if let Some(folder) = &run.checkpoint {
        checkpoint::prepare(folder, run.resume)?;
    }
    if settings.head.trained_by() == Loop::ClosedForm {
        return closed_form(&graphs.plain, settings, classes, rows[0], run);
    }
    run.callback.begin(settings.members, settings.epochs, most);
    let one = |member: usize, threads: usize| {
        // Members that have not begun are left out of an interrupted ensemble, except for the first.
        if member > 0 && run.callback.stop() {
            return Ok(None);
        }
        let rows @ MemberRows { train, validation } = rows[member];
        let graph = graphs.get(graphs.role(member, settings).binned);
        let settings = &bins::member_settings(member, settings);
        let checkpointer = match &run.checkpoint {
            Some(folder) => {
                let fingerprint = checkpoint::fingerprint(graph, settings, &[train, validation])?;
                Some(Checkpointer::new(folder, member, fingerprint))
            }
            None => None,
        };
        let pool = Pool::new(threads);
        match settings.head.trained_by() {
            Loop::Adversarial => {
                let (mut x, mut validation_x) = (Vec::new(), Vec::new());
                let (train, validation) = (train.rows(&mut x)?, validation.rows(&mut validation_x)?);
                alad::fit_member(graph, settings, train, validation, member, checkpointer, run, &pool)
            }
            _ => std::thread::scope(|scope| {
                fit_member(graph, settings, classes, rows, member, start, checkpointer, run, &pool, scope)
            }),
        }
        .map(Some)
    };
    // One thread for each member; the last ones, if there are fewer of them than threads, get several.
    let (count, threads) = (settings.members, run.threads.max(1));
    let rest = count % threads;
    let mut results = parallel_map(count - rest, threads, |m| one(m, 1));
    results.extend(parallel_map(rest, rest, |m| one(count - rest + m, threads / rest)));
    let mut members: Vec<Member> = results.into_iter().filter_map(Result::transpose).collect::<Result<_>>()?;
    // Members without a finished epoch are left out as well, if another has one.
    if members.iter().any(|m| !m.history.is_empty()) {
        members.retain(|m| !m.history.is_empty());
    }
    Ok(members)
}

/// Fits a head in closed form on the inputs. All members would be the same, so there is one, with one epoch.
fn closed_form(graph: &Graph, settings: &Settings, classes: usize, rows: MemberRows, run: &Run) -> Result<Vec<Member>> {
    let (mut x, mut validation_x) = (Vec::new(), Vec::new());
    let (train, validation) = (rows.train.rows(&mut x)?, rows.validation.rows(&mut validation_x)?);
    let mut head = settings.head.build(classes, graph.input, &mut Stream::new(settings.seed, "init/head/0"));
    head.update_centers(train.x, train.y, 0, &Pool::new(run.threads))?;
    let mut validator = Validator::default();
    // A sample of a large table is enough for the loss.
    let (width, every) = (graph.input, train.y.len().div_ceil(2048).max(1));
    let x: Vec<f32> = train.x.chunks_exact(width).step_by(every).flatten().copied().collect();
    let y: Vec<u32> = train.y.iter().step_by(every).copied().collect();
    run.callback.begin(1, 1, train.y.len());
    let (loss, _) = validator.evaluate(head.as_ref(), &x, &y);
    let (validation_loss, validation_accuracy) = validator.evaluate(head.as_ref(), validation.x, validation.y);
    let record = Epoch { epoch: 0, loss, validation_loss, validation_accuracy };
    run.callback.epoch(0, &record);
    let net = Params::new(graph.specs());
    Ok(vec![Member { number: 0, net, head, history: vec![record], epoch: Some(0), interrupted: false }])
}

/// The weights of the best epoch so far.
struct Best {
    epoch: usize,
    loss: f64,
    net: Vec<f32>,
    head: Vec<f32>,
}

/// The state of a run between two epochs.
struct TrainState {
    net: Params,
    head: Box<dyn Head>,
    head_state: OptimizerState,
    step: u64,
    history: Vec<Epoch>,
    best: Option<Best>,
    lookahead: Option<Lookahead>,
}

impl TrainState {
    /// Updates the centers of the head by the latents of all training rows.
    fn update_centers(&mut self, net: &dyn Network, train: Examples, epochs: usize, pool: &Pool) -> Result<()> {
        self.head.update_centers(&train.latents(net, pool), train.y(), epochs, pool)
    }

    fn snapshot(&self, epoch: usize, loss: f64) -> Best {
        Best { epoch, loss, net: self.net.data.clone(), head: self.head.params().data.clone() }
    }
}

#[allow(clippy::too_many_arguments)]
fn fit_member<'a>(
    graph: &Graph,
    settings: &Settings,
    classes: usize,
    MemberRows { train, validation }: MemberRows<'a>,
    member: usize,
    start: Start,
    mut checkpointer: Option<Checkpointer>,
    run: &Run,
    pool: &Pool,
    scope: &'a Scope<'a, '_>,
) -> Result<Member> {
    let n = train.len();
    let net = match start {
        Some(params) => params.clone(),
        None => graph.init(&mut Stream::new(settings.seed, &format!("init/net/{member}"))),
    };
    let head =
        settings.head.build(classes, graph.latent()?, &mut Stream::new(settings.seed, &format!("init/head/{member}")));
    let head_state = OptimizerState::new(&settings.optimizer, head.params().data.len());
    let mut p = TrainState { net, head, head_state, step: 0, history: Vec::new(), best: None, lookahead: None };
    p.lookahead = settings.lookahead().then(|| Lookahead::new(&p));
    let batch = settings.batch.min(n);
    let mut trainer: Box<dyn Trainer> = if settings.frozen() {
        Box::new(FrozenTrainer::new(run.engine.network(graph, &p.net)?))
    } else {
        let whole = settings.head.sampling() != Sampling::Shuffled;
        run.engine.trainer(graph, &p.net, &TrainerOptions { batch, whole, optimizer: settings.optimizer })?
    };
    let mut done = false;
    if let Some(checkpointer) = checkpointer.as_ref().filter(|_| run.resume) {
        done = checkpointer.resume(&mut p, trainer.as_mut(), pool)?;
        p.history.iter().for_each(|e| run.callback.epoch(member, e));
    }
    let mut sampler = BatchSampler::new(settings.head.sampling(), batch, graph.has_batch_norm(), train.y());
    let steps = (settings.epochs * sampler.steps()) as u64;
    let mut source = BatchSource::new(settings, train, member, batch, scope)?;
    let mut head_loss = HeadLoss::new(p.head.as_ref(), trainer.parts());
    let mut validator = Validator::default();
    let mut interrupted = false;
    if p.history.is_empty() && settings.head.center_updates() != CenterUpdates::Never {
        let net = run.engine.network(graph, &p.net)?;
        p.update_centers(net.as_ref(), train, 0, pool)?;
    }

    'epochs: for epoch in p.history.len()..settings.epochs {
        if done || interrupted {
            break;
        }
        // The order depends on the number of the epoch alone, so a resumed run draws the same.
        sampler.draw(&mut Stream::new(settings.seed, &format!("shuffle/{member}/{epoch}")));
        source.begin(epoch, &sampler)?;
        let (mut loss, mut seen) = (0.0, 0);
        for rows in sampler.batches() {
            let batch_loss = match source.next(rows) {
                Some(batch) => trainer.step(rows.len(), &head_loss.on(p.head.as_ref(), batch), pool),
                None => f64::NAN,
            };
            if !batch_loss.is_finite() {
                let what = format!("the loss is not finite in epoch {}", epoch + 1);
                return Err(Error::new(Kind::Diverged, what).hint("lower `lr`"));
            }
            loss += batch_loss * rows.len() as f64;
            seen += rows.len();
            let (rate, weight_decay) = settings.rate(p.step, steps);
            p.step += 1;
            let update = Update { optimizer: settings.optimizer, rate, weight_decay, step: p.step };
            trainer.update(&update, pool);
            let gradient = head_loss.gradient();
            let (specs, values) = p.head.params_mut().specs_and_data();
            update.apply(specs, values, gradient, &mut p.head_state, pool);
            p.head.project();
            p.head.update_statistics(&gradient[0]);
            if let Some(mut lookahead) = p.lookahead.take() {
                lookahead.step(&mut p, trainer.as_mut(), steps, pool);
                p.lookahead = Some(lookahead);
            }
            run.callback.step(rows.len());
            if run.callback.stop() {
                interrupted = true;
                break;
            }
        }
        trainer.store(&mut p.net);
        let net = run.engine.network(graph, &p.net)?;
        if settings.head.center_updates() == CenterUpdates::EachEpoch {
            p.update_centers(net.as_ref(), train, epoch + 1, pool)?;
        }
        let z = validation.latents(net.as_ref(), pool);
        let (validation_loss, validation_accuracy) = validator.evaluate(p.head.as_ref(), &z, validation.y());
        if !interrupted {
            let record = Epoch { epoch, loss: loss / seen.max(1) as f64, validation_loss, validation_accuracy };
            p.history.push(record);
            run.callback.epoch(member, &record);
        }
        if p.best.as_ref().is_none_or(|b| validation_loss < b.loss) {
            p.best = Some(p.snapshot(epoch, validation_loss));
        }
        let since = p.best.as_ref().map_or(0, |b| epoch.saturating_sub(b.epoch));
        let early = settings.patience.is_some_and(|patience| since >= patience);
        if let Some(checkpointer) = checkpointer.as_mut().filter(|_| !interrupted) {
            checkpointer.save(&p, trainer.as_ref(), early || epoch + 1 == settings.epochs)?;
        }
        if early {
            break 'epochs;
        }
    }
    let mut kept = p.history.len().checked_sub(1);
    if let Some(best) = p.best.take().filter(|_| interrupted || settings.select == Select::Best) {
        p.net.data = best.net;
        p.head.params_mut().data = best.head;
        kept = Some(best.epoch).filter(|&e| e < p.history.len());
    }
    if p.net.data.iter().chain(&p.head.params().data).any(|v| !v.is_finite()) {
        return Err(Error::new(Kind::Diverged, "training ended in weights that are not finite").hint("lower `lr`"));
    }
    Ok(Member { number: member, net: p.net, head: p.head, history: p.history, epoch: kept, interrupted })
}

/// Buffers for the loss and accuracy on validation rows.
#[derive(Default)]
struct Validator {
    scratch: LossBuffers,
    gradient: Vec<f32>,
    ignored: Vec<f32>,
    logits: Vec<f64>,
    distances: Vec<f64>,
}

impl Validator {
    /// The number of rows of a block.
    const ROWS: usize = 510;

    /// Mean loss and accuracy of rows with the latents `z`.
    fn evaluate(&mut self, head: &dyn Head, z: &[f32], labels: &[u32]) -> (f64, Option<f64>) {
        let n = labels.len();
        let Some(latent) = z.len().checked_div(n) else { return (0.0, None) };
        self.ignored.resize(head.params().data.len(), 0.0);
        self.logits.resize(head.classes(), 0.0);
        self.distances.resize(head.classes(), 0.0);
        let (mut loss, mut right) = (0.0, 0usize);
        for (z, y) in z.chunks(Self::ROWS * latent).zip(labels.chunks(Self::ROWS)) {
            self.gradient.resize(z.len(), 0.0);
            loss += head.loss(z, y, n, &mut self.gradient, &mut self.ignored, &mut self.scratch);
            for (z, &y) in z.chunks_exact(latent).zip(y) {
                head.score(z, &mut self.logits, &mut self.distances);
                right += usize::from(!self.logits.is_empty() && argmax(&self.logits) == y as usize);
            }
        }
        // A loss that overflowed counts as the worst.
        let accuracy = (head.classes() > 0).then(|| right as f64 / n as f64);
        (if loss.is_nan() { f64::MAX } else { loss.min(f64::MAX) }, accuracy)
    }
}
