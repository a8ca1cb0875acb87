//! Every method on every group of cells with every seed: in parallel, and resumed where it was stopped.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::results::{Cell, Results};
use super::{Method, Scenario, networks};
use crate::compute::parallel_map;
use crate::compute::pool::Pool;
use crate::error::{Error, Kind, Result};
use crate::model::{FitResult, Model, Predictions};
use crate::train::{Callback, Epoch, Run, Settings};

/// The data of a grid: which cells there are, and what each is trained and measured on.
pub trait Experiment: Sync {
    /// Checks, before the first cell, that cells can be computed.
    ///
    /// # Errors
    /// If none can be.
    fn check(&self) -> Result<()>;

    /// Checks, before the first cell, that a method can be trained on the data.
    ///
    /// # Errors
    /// If it cannot be.
    fn check_method(&self, _method: &Method) -> Result<()> {
        Ok(())
    }

    /// The number of folds; 1 for data with test rows of its own.
    fn folds(&self) -> usize;

    /// The cells of one method and one seed, in groups that are trained on the same rows.
    fn groups(&self) -> Vec<Group>;

    /// The rows of a group; `seed` assigns rows to folds.
    ///
    /// # Errors
    /// If there is nothing to train on or to test.
    fn trial(&self, group: &Group, seed: u64) -> Result<Box<dyn Trial + '_>>;

    /// Whether one network takes long. Then networks are trained one after the other on all threads, their epochs are
    /// reported, and a network that is stopped is resumed from its last epoch.
    fn long_running(&self) -> bool;
}

/// Cells whose network is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The tested fold, from 0.
    pub fold: usize,
    /// A name that is unique within the fold.
    pub name: String,
    /// The unknown classes or data sets, one per cell.
    pub ood: Vec<String>,
}

/// The rows of a [`Group`].
pub trait Trial {
    /// Trains a model.
    ///
    /// # Errors
    /// If the data or the settings cannot be used, or training diverges.
    fn fit(&self, settings: &Settings, run: &Run) -> Result<FitResult>;

    /// Predictions of the test rows, and which of them have the right class.
    ///
    /// # Errors
    /// If the model cannot read the rows.
    fn known(&self, model: &Model, pool: &Pool) -> Result<(Predictions, Vec<bool>)>;

    /// Predictions of the rows of one of [`Group::ood`].
    ///
    /// # Errors
    /// If the model cannot read the rows.
    fn unknown(&self, model: &Model, ood: &str, pool: &Pool) -> Result<Predictions>;
}

/// Methods x seeds x the cells of an experiment.
#[derive(Clone, Debug)]
pub struct Grid<E> {
    /// The data.
    pub experiment: E,
    /// The methods that are compared.
    pub methods: Vec<Method>,
    /// The number of seeds, 1 or more. A seed assigns rows to folds. The networks of each fold have a seed of their own,
    /// so that folds differ in all that is random.
    pub seeds: u64,
    /// Whether cells that failed are computed again.
    pub retry: bool,
}

/// Observes a grid, and may stop it.
pub trait GridCallback: Sync {
    /// Notices about the data, before a network is trained.
    fn notices(&self, _notices: &[String]) {}
    /// Called once, with the number of cells that were computed before and the number of all cells.
    fn begin(&self, done: usize, total: usize, results: &Results);
    /// An epoch is over; only if [`Experiment::long_running`].
    fn epoch(&self, _method: &str, _epoch: &Epoch, _epochs: usize) {}
    /// A cell is done.
    fn done(&self, cell: &Cell);
    /// Returns `true` to stop. Cells that are not complete are computed by the next run.
    fn stop(&self) -> bool;
}

/// The state of a grid after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// All cells.
    pub total: usize,
    /// Those with a result, from this run or before.
    pub done: usize,
    /// Those of them that failed.
    pub failed: usize,
}

/// Which cell of a grid.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CellKey {
    /// The method's name.
    pub method: String,
    /// The class or set that is unknown.
    pub ood: String,
    /// The tested fold, from 0.
    pub fold: usize,
    /// The seed.
    pub seed: u64,
}

/// A group with one seed, and the methods with the cells that are missing.
struct Task<'a> {
    seed: u64,
    group: &'a Group,
    missing: Vec<(&'a Method, Vec<&'a str>)>,
}

/// What the threads of a run share.
struct Shared<'a> {
    results: Mutex<&'a mut Results>,
    failure: Mutex<Option<Error>>,
    stopped: AtomicBool,
    folder: &'a Path,
    /// Threads of each network.
    threads: usize,
    callback: &'a dyn GridCallback,
}

impl Shared<'_> {
    fn fail(&self, e: Error) {
        if let Ok(mut failure) = self.failure.lock() {
            *failure = Some(e);
        }
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.callback.stop()
    }
}

impl<E: Experiment> Grid<E> {
    /// Checks the ranges, and that there is something to do.
    ///
    /// # Errors
    /// Names the first setting that is out of range.
    pub fn check(&self) -> Result<()> {
        self.experiment.check()?;
        self.methods.iter().try_for_each(|method| self.experiment.check_method(method))?;
        if !(1..=1000).contains(&self.seeds) {
            return Err(Error::setting(format!("`seeds` is {}", self.seeds)).hint("`seeds` must be 1 to 1,000"));
        }
        if self.methods.is_empty() || self.experiment.groups().iter().all(|g| g.ood.is_empty()) {
            return Err(Error::setting("there is nothing to do").hint("give `methods`, and classes or sets as `ood`"));
        }
        Ok(())
    }

    /// Computes the cells that are missing in `results`, on `threads` threads. The number of threads does not change the
    /// results.
    ///
    /// # Errors
    /// If the results cannot be written, or have other settings. A cell that fails is a result.
    pub fn run(
        &self,
        results: &mut Results,
        folder: &Path,
        threads: usize,
        callback: &dyn GridCallback,
    ) -> Result<Outcome> {
        self.check()?;
        self.methods.iter().try_for_each(|m| results.check(m))?;
        let groups = self.experiment.groups();
        let (tasks, before) = self.tasks(&groups, results)?;
        callback.begin(before.done, before.total, results);
        let long = self.experiment.long_running();
        let (parallel, threads) = if long { (1, threads) } else { (threads, 1) };
        let shared = Shared {
            results: Mutex::new(results),
            failure: Mutex::new(None),
            stopped: AtomicBool::new(false),
            folder,
            threads,
            callback,
        };
        parallel_map(tasks.len(), parallel, |i| {
            if shared.stopped() || !self.compute(&tasks[i], &shared) {
                shared.stopped.store(true, Ordering::Relaxed);
            }
        });
        let stopped = shared.stopped.load(Ordering::Relaxed);
        let results = shared.results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let failure = shared.failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The next run goes on from the checkpoints of a long training.
        if !(long && (stopped || failure.is_some())) {
            networks::clear(folder);
        }
        match failure {
            Some(e) => Err(e),
            None => self.count(&groups, results),
        }
    }

    /// The groups with cells to compute, and the numbers of all cells and of those that need nothing.
    fn tasks<'a>(&'a self, groups: &'a [Group], results: &Results) -> Result<(Vec<Task<'a>>, Outcome)> {
        let (mut tasks, mut outcome) = (Vec::new(), Outcome::default());
        for (seed, group) in (0..self.seeds).flat_map(|s| groups.iter().map(move |g| (s, g))) {
            let mut missing = Vec::new();
            for method in &self.methods {
                let mut cells = Vec::new();
                for ood in &group.ood {
                    outcome.total += 1;
                    match results.find(method, ood, group.fold, seed)? {
                        Some(cell) if !self.retry || cell.error.is_none() => outcome.done += 1,
                        _ => cells.push(ood.as_str()),
                    }
                }
                missing.extend(Some((method, cells)).filter(|(_, cells)| !cells.is_empty()));
            }
            if !missing.is_empty() {
                tasks.push(Task { seed, group, missing });
            }
        }
        Ok((tasks, outcome))
    }

    /// Counts the cells with a result.
    fn count(&self, groups: &[Group], results: &Results) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for (seed, group) in (0..self.seeds).flat_map(|s| groups.iter().map(move |g| (s, g))) {
            for (method, ood) in self.methods.iter().flat_map(|m| group.ood.iter().map(move |o| (m, o))) {
                outcome.total += 1;
                if let Some(cell) = results.find(method, ood, group.fold, seed)? {
                    outcome.done += 1;
                    outcome.failed += usize::from(cell.error.is_some());
                }
            }
        }
        Ok(outcome)
    }

    /// Computes the cells of a task, one method after the other; `false` if the run is to stop.
    fn compute(&self, task: &Task, shared: &Shared) -> bool {
        let networks = networks::folder(shared.folder, task.seed, task.group.fold, &task.group.name);
        let trial = self.experiment.trial(task.group, task.seed);
        let long = self.experiment.long_running();
        let mut go_on = true;
        for (method, cells) in &task.missing {
            if shared.stopped() {
                go_on = false;
                break;
            }
            let settings = self.settings(method, task.group.fold, task.seed);
            let keep = long || task.missing.iter().filter(|(m, _)| networks::shared(m, method)).count() > 1;
            let checkpoint = keep.then(|| networks::checkpoint(&networks, method));
            let observer = Observer { callback: shared.callback, method, long };
            let run = Run { threads: shared.threads, checkpoint, resume: true, callback: &observer, ..Run::default() };
            let mut recorded = 0;
            let done = match &trial {
                Ok(trial) => catch_unwind(AssertUnwindSafe(|| {
                    if keep {
                        fs::create_dir_all(&networks).map_err(|e| Error::io(e, &networks))?;
                    }
                    measure(trial.as_ref(), &settings, &run, cells, |ood, measured, seconds| {
                        recorded += 1;
                        self.record(task, method, &settings, ood, measured, seconds, shared)
                    })
                }))
                .unwrap_or_else(|why| Err(panicked(why.as_ref()))),
                Err(e) => Err(Error::data(e.to_string())),
            };
            go_on = match done {
                Ok(complete) => complete,
                // The machine failed, not the method.
                Err(e) if e.kind() == Kind::Io => {
                    shared.fail(e);
                    false
                }
                // The network failed, and with it the cells that have no result yet.
                Err(e) => {
                    let record =
                        |ood: &&str| self.record(task, method, &settings, ood, Err(e.to_string()), [0.0; 2], shared);
                    match cells[recorded..].iter().try_for_each(record) {
                        Ok(()) => true,
                        Err(e) => {
                            shared.fail(e);
                            false
                        }
                    }
                }
            };
            if !go_on {
                break;
            }
        }
        if !long {
            let _ = fs::remove_dir_all(&networks);
        }
        go_on
    }

    /// The cells that have no result yet, for callers that compute each by [`Grid::cell`] and add it to the results.
    ///
    /// # Errors
    /// As [`Grid::run`].
    pub fn missing(&self, results: &Results) -> Result<Vec<CellKey>> {
        self.check()?;
        self.methods.iter().try_for_each(|m| results.check(m))?;
        let groups = self.experiment.groups();
        let mut cells = Vec::new();
        for task in self.tasks(&groups, results)?.0 {
            for (method, ood) in task.missing.iter().flat_map(|(m, cells)| cells.iter().map(move |ood| (m, ood))) {
                let (method, ood) = (method.name.clone(), (*ood).to_owned());
                cells.push(CellKey { method, ood, fold: task.group.fold, seed: task.seed });
            }
        }
        Ok(cells)
    }

    /// Computes one cell on the calling thread: what [`Grid::run`] computes, to the bit. `data` is the
    /// [`About::sha256`](super::results::About::sha256) of the data.
    ///
    /// # Errors
    /// If there is no such cell. A cell that fails is a result.
    pub fn cell(&self, key: &CellKey, data: &str) -> Result<Cell> {
        let unknown = || Error::setting(format!("there is no cell {key:?}"));
        let method = self.methods.iter().find(|m| m.name == key.method).ok_or_else(unknown)?;
        let groups = self.experiment.groups();
        let group = groups.iter().find(|g| g.fold == key.fold && g.ood.contains(&key.ood)).ok_or_else(unknown)?;
        let settings = self.settings(method, key.fold, key.seed);
        let run = Run { threads: 1, ..Run::default() };
        let mut found = None;
        let done = catch_unwind(AssertUnwindSafe(|| {
            let trial = self.experiment.trial(group, key.seed)?;
            measure(trial.as_ref(), &settings, &run, &[&key.ood], |_, measured, seconds| {
                found = Some((measured, seconds));
                Ok(())
            })
        }))
        .unwrap_or_else(|why| Err(panicked(why.as_ref())));
        let (measured, seconds) = match done {
            Ok(_) => found.ok_or_else(unknown)?,
            Err(e) => (Err(e.to_string()), [0.0; 2]),
        };
        Ok(self.new_cell(key.clone(), data, &settings, measured, seconds))
    }

    /// The settings of a method's networks in a fold.
    fn settings(&self, method: &Method, fold: usize, seed: u64) -> Settings {
        Settings { seed: seed * self.experiment.folds() as u64 + fold as u64, ..method.settings.clone() }
    }

    fn new_cell(
        &self,
        key: CellKey,
        data: &str,
        settings: &Settings,
        measured: std::result::Result<Scenario, String>,
        seconds: [f64; 2],
    ) -> Cell {
        let (measured, error) = match measured {
            Ok(measured) => (Some(measured), None),
            Err(e) => (None, Some(e)),
        };
        let CellKey { method, ood, fold, seed } = key;
        Cell {
            data: data.to_owned(),
            method,
            ood,
            fold,
            folds: self.experiment.folds(),
            seed,
            measured,
            error,
            seconds: seconds.map(|s| (s * 1e3).round() / 1e3),
            settings: settings.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Adds a cell to the results.
    #[allow(clippy::too_many_arguments)]
    fn record(
        &self,
        task: &Task,
        method: &Method,
        settings: &Settings,
        ood: &str,
        measured: std::result::Result<Scenario, String>,
        seconds: [f64; 2],
        shared: &Shared,
    ) -> Result<()> {
        let key = CellKey { method: method.name.clone(), ood: ood.to_owned(), fold: task.group.fold, seed: task.seed };
        let mut results = shared.results.lock().map_err(|_| Error::data("another thread failed"))?;
        let cell = self.new_cell(key, &results.about().sha256, settings, measured, seconds);
        results.add(cell.clone())?;
        drop(results);
        shared.callback.done(&cell);
        Ok(())
    }
}

/// Trains a network and measures each of its cells; `false` if it was stopped. The seconds of training count for the first
/// cell.
fn measure(
    trial: &dyn Trial,
    settings: &Settings,
    run: &Run,
    cells: &[&str],
    mut record: impl FnMut(&str, std::result::Result<Scenario, String>, [f64; 2]) -> Result<()>,
) -> Result<bool> {
    let start = Instant::now();
    let fitted = trial.fit(settings, run)?;
    let mut training = start.elapsed().as_secs_f64();
    if fitted.interrupted {
        return Ok(false);
    }
    let model = fitted.model;
    let pool = Pool::new(run.threads);
    let mut start = Instant::now();
    let (known, correct) = trial.known(&model, &pool)?;
    for ood in cells {
        let measured =
            trial.unknown(&model, ood, &pool).and_then(|unknown| Scenario::new(&model, &known, &correct, &unknown));
        let seconds = [training, start.elapsed().as_secs_f64()];
        match measured {
            Err(e) if e.kind() == Kind::Io => return Err(e),
            measured => record(ood, measured.map_err(|e| e.to_string()), seconds)?,
        }
        (training, start) = (0.0, Instant::now());
    }
    Ok(true)
}

fn panicked(why: &(dyn std::any::Any + Send)) -> Error {
    let text = why.downcast_ref::<String>().map(String::as_str).or_else(|| why.downcast_ref::<&str>().copied());
    Error::data(format!("the program failed here ({}); please report it", text.unwrap_or("no reason given")))
}

/// Forwards what training reports, and stops it when the grid is stopped.
struct Observer<'a> {
    callback: &'a dyn GridCallback,
    method: &'a Method,
    long: bool,
}

impl Callback for Observer<'_> {
    fn notices(&self, notices: &[String]) {
        self.callback.notices(notices);
    }

    fn epoch(&self, _member: usize, epoch: &Epoch) {
        if self.long {
            self.callback.epoch(&self.method.name, epoch, self.method.settings.epochs);
        }
    }

    fn stop(&self) -> bool {
        self.callback.stop()
    }
}
