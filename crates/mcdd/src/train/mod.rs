//! The training loop: a network and a head on the rows of a table.

mod alad;
mod checkpoint;
mod examples;
pub mod optim;
mod sampler;
mod settings;
mod shards;
mod stepper;

use std::path::PathBuf;
use std::thread::Scope;

use serde::{Deserialize, Serialize};

pub use examples::{Examples, ImageRows, LabeledRows};
pub use settings::{DataKind, IMAGE_NU, ImageSettings, OrOff, Preset, Select, Settings, SettingsBuilder};
pub use shards::Shards;

use self::checkpoint::Checkpointer;
use self::optim::{State, update};
use self::sampler::BatchSampler;
use self::stepper::Stepper;
use crate::compute::pool::Pool;
use crate::compute::{argmax, parallel_map};
use crate::error::{Error, Kind, Result};
use crate::head::{CenterUpdates, Head, Loop, LossBuffers};
use crate::net::cpu::Predictor;
use crate::net::{Graph, Params, mlp_with};
use crate::seed::Stream;

/// How training is run; nothing in here changes what comes out.
pub struct Run<'a> {
    /// Threads to use, at least 1.
    pub threads: usize,
    /// Where checkpoints go.
    pub checkpoint: Option<PathBuf>,
    /// Whether to go on from a checkpoint that is there.
    pub resume: bool,
    /// Who watches.
    pub callback: &'a dyn Callback,
}

/// Where a network's weights begin, if not at random; the settings of images name the file.
pub type Start<'a> = Option<&'a Params>;

impl Default for Run<'_> {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        Run { threads, checkpoint: None, resume: false, callback: &NoCallback }
    }
}

/// Sees training go by, and may stop it.
pub trait Callback: Sync {
    /// What was done to the data, before training begins.
    fn notices(&self, _notices: &[String]) {}
    /// Training begins: so many members, of at most so many epochs each.
    fn begin(&self, _members: usize, _epochs: usize) {}
    /// An epoch of a member is over.
    fn epoch(&self, _member: usize, _epoch: &Epoch) {}
    /// Asked after each step; `true` ends training with the best weights so far.
    fn stop(&self) -> bool {
        false
    }
}

/// A [`Callback`] that does nothing.
pub struct NoCallback;
impl Callback for NoCallback {}

/// What is known after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Counted from 0.
    pub epoch: usize,
    /// Mean loss over the training rows, during the epoch.
    pub loss: f64,
    /// Mean loss over the validation-out rows, after it.
    pub validation_loss: f64,
    /// Share of the validation-out rows that were put in their class; none where the method does not classify.
    pub validation_accuracy: Option<f64>,
}

/// A trained member of the ensemble.
pub struct Member {
    /// The network's parameters.
    pub net: Params,
    /// The head with its own.
    pub head: Box<dyn Head>,
    /// Epoch by epoch.
    pub history: Vec<Epoch>,
    /// Whose weights these are, counted from 0; none if training was stopped before the first was over.
    pub epoch: Option<usize>,
    /// Whether training was stopped by its validator.
    pub interrupted: bool,
}

/// The network that a method is trained with, for images of this height, width and number of channels.
///
/// # Errors
/// If the settings are none for images, or the images too small.
pub fn image_graph(image: [usize; 3], settings: &Settings) -> Result<Graph> {
    let Some(s) = &settings.image else { return Err(Error::setting("there is no network for images")) };
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

/// Trains all members, side by side where there are threads for it, with the same result as one after the other.
///
/// # Errors
/// If the loss stops being finite, or a checkpoint cannot be written or read.
pub fn fit(
    graph: &Graph,
    settings: &Settings,
    classes: usize,
    train: Examples,
    validation: Examples,
    start: Start,
    run: &Run,
) -> Result<Vec<Member>> {
    settings.check()?;
    let settings = &Settings { epochs: settings.epochs_for(train.len()), ..settings.clone() };
    if let Some(folder) = &run.checkpoint {
        checkpoint::prepare(folder, run.resume)?;
    }
    let fingerprint = match &run.checkpoint {
        Some(_) => checkpoint::fingerprint(graph, settings, &[train, validation])?,
        None => String::new(),
    };
    if settings.head.trained_by() == Loop::ClosedForm {
        return closed_form(graph, settings, classes, train.rows()?, validation.rows()?, run);
    }
    run.callback.begin(settings.members, settings.epochs);
    let one = |member: usize, threads: usize| {
        // A member that would only begin now is left out of an interrupted ensemble; the first must be there.
        if member > 0 && run.callback.stop() {
            return Ok(None);
        }
        let checkpointer = run.checkpoint.as_ref().map(|folder| Checkpointer::new(folder, member, fingerprint.clone()));
        let pool = Pool::new(threads);
        match settings.head.trained_by() {
            Loop::Adversarial => {
                alad::fit_member(graph, settings, train.rows()?, validation.rows()?, member, checkpointer, run, &pool)
            }
            _ => std::thread::scope(|scope| {
                fit_member(graph, settings, classes, train, validation, member, start, checkpointer, run, &pool, scope)
            }),
        }
        .map(Some)
    };
    // As many at a time as there are threads; the rest, or fewer members than threads, share them.
    let (count, threads) = (settings.members, run.threads.max(1));
    let rest = count % threads;
    let mut results = parallel_map(count - rest, threads, |m| one(m, 1));
    results.extend(parallel_map(rest, rest, |m| one(count - rest + m, threads / rest)));
    let mut members: Vec<Member> = results.into_iter().filter_map(Result::transpose).collect::<Result<_>>()?;
    // Nor does one that has not finished an epoch belong to it, as long as another has.
    if members.iter().any(|m| !m.history.is_empty()) {
        members.retain(|m| !m.history.is_empty());
    }
    Ok(members)
}

/// A head that one look at the inputs makes; all members would be the same. What there is to know goes down as one epoch.
fn closed_form(
    graph: &Graph,
    settings: &Settings,
    classes: usize,
    train: LabeledRows,
    validation: LabeledRows,
    run: &Run,
) -> Result<Vec<Member>> {
    let mut head = settings.head.build(classes, graph.input, &mut Stream::new(settings.seed, "init/head/0"));
    head.update_centers(train.x, train.y, 0, &Pool::new(run.threads))?;
    let mut validator = Validator::default();
    // Every so many rows of a large table will do for the loss.
    let (width, every) = (graph.input, train.y.len().div_ceil(2048).max(1));
    let x: Vec<f32> = train.x.chunks_exact(width).step_by(every).flatten().copied().collect();
    let y: Vec<u32> = train.y.iter().step_by(every).copied().collect();
    run.callback.begin(1, 1);
    let (loss, _) = validator.evaluate(head.as_ref(), &x, &y);
    let (validation_loss, validation_accuracy) = validator.evaluate(head.as_ref(), validation.x, validation.y);
    let record = Epoch { epoch: 0, loss, validation_loss, validation_accuracy };
    run.callback.epoch(0, &record);
    let net = Params::new(graph.specs());
    Ok(vec![Member { net, head, history: vec![record], epoch: Some(0), interrupted: false }])
}

/// Weights worth keeping.
struct Best {
    epoch: usize,
    loss: f64,
    net: Vec<f32>,
    head: Vec<f32>,
}

/// The state of a run between two steps.
struct TrainState {
    net: Params,
    head: Box<dyn Head>,
    states: (State, State),
    step: u64,
    history: Vec<Epoch>,
    best: Option<Best>,
}

/// The sum of what the shards have written, in their order.
fn total(parts: &[Vec<f32>], out: &mut [f32]) {
    out.fill(0.0);
    for part in parts {
        out.iter_mut().zip(part).for_each(|(o, &v)| *o += v);
    }
}

impl TrainState {
    /// Lets the head follow the latents of all training rows.
    fn update_centers(&mut self, graph: &Graph, train: Examples, epochs: usize, pool: &Pool) -> Result<()> {
        let z = train.latents(&Predictor::new(graph, &self.net)?, graph.latent()?, pool);
        self.head.update_centers(&z, train.y(), epochs, pool)
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
    train: Examples<'a>,
    validation: Examples,
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
    let states = (State::new(&settings.optimizer, &net), State::new(&settings.optimizer, head.params()));
    let mut p = TrainState { net, head, states, step: 0, history: Vec::new(), best: None };
    let mut done = false;
    if let Some(checkpointer) = checkpointer.as_ref().filter(|_| run.resume) {
        done = checkpointer.resume(&mut p)?;
        p.history.iter().for_each(|e| run.callback.epoch(member, e));
    }
    let batch = settings.batch.min(n);
    let mut sampler = BatchSampler::new(settings.head.sampling(), batch, graph.has_batch_norm(), train.y());
    let steps = (settings.epochs * sampler.steps()) as u64;
    let params = (&p.net, p.head.params());
    let mut stepper = Stepper::new(graph, settings, params, train, (member, batch), scope)?;
    stepper.load(&p.net, pool);
    let mut validator = Validator::default();
    let mut sums = vec![0.0f32; p.head.params().data.len()];
    let mut interrupted = false;
    if p.history.is_empty() && settings.head.center_updates() != CenterUpdates::Never {
        p.update_centers(graph, train, 0, pool)?;
    }

    'epochs: for epoch in p.history.len()..settings.epochs {
        if done || interrupted {
            break;
        }
        // The order depends on the epoch alone, so a resumed run needs nothing but its number.
        sampler.draw(&mut Stream::new(settings.seed, &format!("shuffle/{member}/{epoch}")));
        stepper.begin(epoch, &sampler)?;
        let (mut loss, mut seen) = (0.0, 0);
        for rows in sampler.batches() {
            let here = stepper.step(&p.net, p.head.as_ref(), train.y(), rows, pool);
            if !here.is_finite() {
                return Err(Error::new(
                    Kind::Diverged,
                    format!("the loss is not finite any more in epoch {}", epoch + 1),
                )
                .hint("lower --lr"));
            }
            loss += here * rows.len() as f64;
            seen += rows.len();
            let (rate, decay) = settings.rate(p.step, steps);
            p.step += 1;
            let o = &settings.optimizer;
            if let Some(gradients) = stepper.net_gradients() {
                update(o, rate, decay, p.step, &mut p.net, gradients, &mut p.states.0, pool);
            }
            let head = p.head.params_mut();
            update(o, rate, decay, p.step, head, stepper.head_gradients(), &mut p.states.1, pool);
            p.head.project();
            total(stepper.head_gradients(), &mut sums);
            p.head.update_statistics(&sums);
            stepper.update_running_stats(&mut p.net);
            stepper.load(&p.net, pool);
            if run.callback.stop() {
                interrupted = true;
                break;
            }
        }
        if settings.head.center_updates() == CenterUpdates::EachEpoch {
            p.update_centers(graph, train, epoch + 1, pool)?;
        }
        let (validation_loss, validation_accuracy) = validator.validate(graph, &p, validation, pool)?;
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
            checkpointer.save(&p, early || epoch + 1 == settings.epochs)?;
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
        return Err(Error::new(Kind::Diverged, "training ended in weights that are not finite").hint("lower --lr"));
    }
    Ok(Member { net: p.net, head: p.head, history: p.history, epoch: kept, interrupted })
}

/// Buffers for looking at the validation-out rows.
#[derive(Default)]
struct Validator {
    scratch: LossBuffers,
    gradient: Vec<f32>,
    ignored: Vec<f32>,
    logits: Vec<f64>,
    distances: Vec<f64>,
}

impl Validator {
    /// LabeledRows looked at together.
    const ROWS: usize = 510;

    /// Mean loss and accuracy on the validation-out rows.
    fn validate(
        &mut self,
        graph: &Graph,
        p: &TrainState,
        validation: Examples,
        pool: &Pool,
    ) -> Result<(f64, Option<f64>)> {
        let z = validation.latents(&Predictor::new(graph, &p.net)?, graph.latent()?, pool);
        Ok(self.evaluate(p.head.as_ref(), &z, validation.y()))
    }

    /// The same for rows whose latents are known.
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
        // A loss that overflowed is worse than any other.
        let accuracy = (head.classes() > 0).then(|| right as f64 / n as f64);
        (if loss.is_nan() { f64::MAX } else { loss.min(f64::MAX) }, accuracy)
    }
}
