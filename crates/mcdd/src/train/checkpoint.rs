//! Checkpoints: everything that a run needs to be resumed and to end in the same bytes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Best, Epoch, Examples, Preset, Select, Settings, TrainState};
use crate::compute::pool::Pool;
use crate::container::{Container, Values, hex};
use crate::detector::Detect;
use crate::error::{Error, Result};
use crate::files;
use crate::net::{Graph, Trainer};

const FORMAT: &str = "mcdd checkpoint 2";

/// Writes and reads the checkpoints of a member.
pub(super) struct Checkpointer {
    path: PathBuf,
    fingerprint: String,
    last: Instant,
    cost: Duration,
}

#[derive(Serialize, Deserialize)]
struct Text {
    fingerprint: String,
    step: u64,
    history: Vec<Epoch>,
    best: Option<usize>,
    done: bool,
}

/// A hash of the data and the settings of a run: a checkpoint of another run is refused.
pub(super) fn fingerprint(graph: &Graph, settings: &Settings, parts: &[Examples]) -> Result<String> {
    // The detector and the choice of an epoch come after training, and members are independent: another detector or
    // threshold, or more members, may resume from the same networks. The number of steps is already in the number of
    // epochs.
    let (detector, preset, select) = (Detect::default(), Preset::default(), Select::default());
    // The rows that a member leaves out are part of the data.
    let (members, steps, tpr, calibration_fraction, per_class) = (1, None, 0.5, None, false);
    let settings =
        Settings { detector, preset, select, members, steps, tpr, calibration_fraction, per_class, ..settings.clone() };
    let text = serde_json::to_string(&(env!("CARGO_PKG_VERSION"), graph, settings))
        .map_err(|e| Error::format(e.to_string()))?;
    let mut hash = Sha256::new();
    hash.update(text.as_bytes());
    for part in parts {
        part.hash(&mut hash)?;
    }
    Ok(hex(&hash.finalize()))
}

impl Checkpointer {
    pub(super) fn new(folder: &Path, member: usize, fingerprint: String) -> Checkpointer {
        Checkpointer { path: file(folder, member), fingerprint, last: Instant::now(), cost: Duration::ZERO }
    }

    /// Saves after an epoch, unless that would take more than about a twentieth of the time.
    pub(super) fn save(&mut self, run: &TrainState, trainer: &dyn Trainer, done: bool) -> Result<()> {
        if !self.is_due(done) {
            return Ok(());
        }
        let net_state = trainer.optimizer_state();
        let mut tensors: Tensors = vec![("net".into(), &run.net.data), ("head".into(), &run.head.params().data)];
        for (name, state) in [("net", &net_state), ("head", &run.head_state)] {
            tensors.push((format!("{name}.first"), &state.first));
            tensors.push((format!("{name}.second"), &state.second));
        }
        if let Some(slow) = &run.lookahead {
            tensors.push(("slow.net".into(), &slow.net));
            tensors.push(("slow.head".into(), &slow.head));
        }
        self.write(run.step, &run.history, run.best.as_ref(), done, tensors)
    }

    /// Loads the last checkpoint, if there is one. Returns whether the run was complete.
    pub(super) fn resume(&self, run: &mut TrainState, trainer: &mut dyn Trainer, pool: &Pool) -> Result<bool> {
        let Some(mut found) = self.read()? else { return Ok(false) };
        let mut net_state = trainer.optimizer_state();
        found.fill("net", &mut run.net.data)?;
        found.fill("head", &mut run.head.params_mut().data)?;
        for (name, state) in [("net", &mut net_state), ("head", &mut run.head_state)] {
            found.fill(&format!("{name}.first"), &mut state.first)?;
            found.fill(&format!("{name}.second"), &mut state.second)?;
        }
        if let Some(slow) = &mut run.lookahead {
            found.fill("slow.net", &mut slow.net)?;
            found.fill("slow.head", &mut slow.head)?;
        }
        trainer.load(&run.net, pool);
        trainer.set_optimizer_state(&net_state);
        run.best = found.best(|epoch, loss| run.snapshot(epoch, loss))?;
        run.step = found.step;
        run.history = found.history;
        Ok(found.done)
    }

    /// Whether a checkpoint is worth its time now.
    fn is_due(&self, done: bool) -> bool {
        done || self.last.elapsed() >= 20 * self.cost
    }

    /// Writes what all training loops share, and the tensors of one of them, unless that would take too much time.
    pub(super) fn write<'a>(
        &mut self,
        step: u64,
        history: &[Epoch],
        best: Option<&'a Best>,
        done: bool,
        mut tensors: Tensors<'a>,
    ) -> Result<()> {
        if !self.is_due(done) {
            return Ok(());
        }
        let start = Instant::now();
        let fingerprint = self.fingerprint.clone();
        let text = Text { fingerprint, step, history: history.to_vec(), best: best.map(|b| b.epoch), done };
        let text = serde_json::to_string(&text).map_err(|e| Error::format(e.to_string()))?;
        if let Some(best) = best {
            tensors.push(("best.net".into(), &best.net));
            tensors.push(("best.head".into(), &best.head));
        }
        let mut container = Container { text, ..Default::default() };
        for (name, values) in tensors {
            container.put(name, &[values.len()], Values::F32(values.to_vec()));
        }
        container.write(&self.path, FORMAT)?;
        self.cost = start.elapsed();
        self.last = Instant::now();
        Ok(())
    }

    /// The last checkpoint, if there is one.
    pub(super) fn read(&self) -> Result<Option<Found>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let container = Container::read(&self.path, FORMAT)?;
        let text: Text = serde_json::from_str(&container.text).map_err(|e| damaged(&self.path, &e.to_string()))?;
        if text.fingerprint != self.fingerprint {
            return Err(Error::setting("the checkpoint belongs to another run: data, settings or version differ")
                .at_file(&self.path)
                .hint("give the data and settings of that run, or another folder for `checkpoint`"));
        }
        let Text { step, history, best, done, .. } = text;
        Ok(Some(Found { step, history, done, best, container, path: self.path.clone() }))
    }
}

/// Names and values.
pub(super) type Tensors<'a> = Vec<(String, &'a [f32])>;

/// A checkpoint that was read.
pub(super) struct Found {
    pub step: u64,
    pub history: Vec<Epoch>,
    pub done: bool,
    best: Option<usize>,
    container: Container,
    path: PathBuf,
}

impl Found {
    /// Overwrites `to` by a tensor of the same length.
    pub(super) fn fill(&mut self, name: &str, to: &mut Vec<f32>) -> Result<()> {
        *to = self.container.take_f32_unchecked(name, &[to.len()]).map_err(|e| e.at_file(&self.path))?;
        Ok(())
    }

    /// The best weights so far, if there are any; `like` gives some of the same shape.
    pub(super) fn best(&mut self, like: impl Fn(usize, f64) -> Best) -> Result<Option<Best>> {
        let Some(epoch) = self.best else { return Ok(None) };
        let record = self.history.get(epoch).ok_or_else(|| damaged(&self.path, "no such epoch"))?;
        let mut best = like(epoch, record.validation_loss);
        self.fill("best.net", &mut best.net)?;
        self.fill("best.head", &mut best.head)?;
        Ok(Some(best))
    }
}

fn damaged(path: &Path, why: &str) -> Error {
    Error::format(format!("the checkpoint is damaged ({why})")).at_file(path)
}

fn file(folder: &Path, member: usize) -> PathBuf {
    folder.join(format!("member-{member}.checkpoint"))
}

/// Creates the folder, and refuses one with checkpoints in it unless the run is to be resumed.
pub(super) fn prepare(folder: &Path, resume: bool) -> Result<()> {
    let io = |e| Error::io(e, folder);
    std::fs::create_dir_all(folder).map_err(io)?;
    files::remove_unfinished(folder)?;
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let name = name.to_string_lossy();
        if !resume && name.starts_with("member-") && name.ends_with(".checkpoint") {
            return Err(Error::setting("the folder holds the checkpoints of an earlier run")
                .at_file(folder)
                .hint("give `resume` to continue it, or another folder"));
        }
    }
    Ok(())
}
