//! The models that are served, and their replacement while requests are under way.
//!
//! The list is replaced as a whole. A request keeps the model that it began with. A file that cannot be read leaves the model
//! that was read from it before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use mcdd::files::Lock;
use mcdd::model::Model;
use mcdd::monitor::Monitor;

use crate::config::{Config, ModelLimits};
use crate::log::Log;
use crate::recent::Recent;

/// A model as it is served.
pub(crate) struct Served {
    pub name: String,
    /// Counts how often the file was read.
    pub version: u64,
    pub model: Model,
    pub limits: ModelLimits,
    /// What was seen of its rows. A new version with the same calibration shares it.
    watch: Arc<Mutex<Watch>>,
}

/// The rows that a model has predicted.
pub(crate) struct Watch {
    pub monitor: Option<Monitor>,
    pub recent: Recent,
    /// Rows and restarts of the state that was written last.
    saved: (u64, u64),
}

/// What changes with every change of a monitor.
fn progress(monitor: &Monitor) -> (u64, u64) {
    (monitor.rows(), monitor.restarts())
}

impl Served {
    pub(crate) fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds predicted rows.
    pub(crate) fn saw(&self, confidences: &[f64]) {
        let Ok(threshold) = self.model.threshold() else { return };
        let unknown = confidences.iter().filter(|&&c| !threshold.known(c)).count();
        let mut watch = self.watch();
        watch.recent.add(confidences.len() as u64, unknown as u64);
        if let Some(monitor) = &mut watch.monitor {
            confidences.iter().for_each(|&c| monitor.add(c));
        }
    }
}

/// What tells that a file has changed.
pub(crate) type Stamp = (Option<SystemTime>, u64);

/// A file, and what was last read from it.
struct Entry {
    path: PathBuf,
    stamp: Stamp,
    version: u64,
    served: Option<Arc<Served>>,
    /// Why the file could not be read.
    problem: Option<String>,
}

/// All models, by name.
pub(crate) struct Models {
    config: Config,
    log: Log,
    entries: Mutex<BTreeMap<String, Entry>>,
    served: RwLock<Arc<BTreeMap<String, Arc<Served>>>>,
    /// The states that this process writes, and no other one.
    locks: Mutex<BTreeMap<String, Lock>>,
}

pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    std::fs::metadata(path).ok().filter(|m| m.is_file()).map(|m| (m.modified().ok(), m.len()))
}

fn name_of(path: &Path) -> String {
    // It comes to terminals, in the log and in metrics.
    path.file_stem().map(|s| mcdd::error::plain(&s.to_string_lossy())).unwrap_or_default()
}

impl Models {
    /// Reads all models.
    ///
    /// # Errors
    /// If a file that was named cannot be read, two have one name, no model file is found, or another process writes a state.
    pub(crate) fn open(config: Config, log: Log) -> mcdd::Result<Models> {
        let (entries, served, locks) = (Mutex::default(), RwLock::default(), Mutex::default());
        let models = Models { config, log, entries, served, locks };
        for path in models.config.models.iter().filter(|path| !path.is_dir()) {
            // An error of a file that was named is one of the command.
            Model::load(path)?;
        }
        let files = models.files();
        for (i, file) in files.iter().enumerate() {
            if let Some(other) = files[..i].iter().find(|other| name_of(other) == name_of(file)) {
                return Err(mcdd::Error::setting(format!("{} has the same name", other.display()))
                    .at_file(file)
                    .hint("a model is called by the name of its file: rename one of them"));
            }
        }
        for file in files.iter().filter(|file| stamp(file).is_some()) {
            models.claim(&name_of(file))?;
        }
        models.refresh();
        if models.all().is_empty() {
            let at = models.config.models.first().cloned().unwrap_or_default();
            return Err(mcdd::Error::setting("no model file was found")
                .at_file(&at)
                .hint("give a file of `train`, or a folder of .mcdd files"));
        }
        for (name, _) in models.config.model_limits.iter().filter(|(name, _)| !models.all().contains_key(name)) {
            log.line("warning", &[("event", "limits of a model that is not there"), ("model", name)]);
        }
        Ok(models)
    }

    /// The files that are to be served now.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for path in &self.config.models {
            if path.is_dir() {
                let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
                let mut found: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "mcdd")).collect();
                found.sort();
                files.append(&mut found);
            } else {
                files.push(path.clone());
            }
        }
        files
    }

    /// The models by name.
    pub(crate) fn all(&self) -> Arc<BTreeMap<String, Arc<Served>>> {
        Arc::clone(&self.served.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Files that cannot be read, and why.
    pub(crate) fn problems(&self) -> Vec<(String, String)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().filter_map(|(name, e)| Some((name.clone(), e.problem.clone()?))).collect()
    }

    /// Looks for new, changed and removed files.
    pub(crate) fn refresh(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.files();
        let mut changed = false;
        for path in &files {
            let name = name_of(path);
            let entry = entries.entry(name.clone()).or_insert_with(|| Entry {
                path: path.clone(),
                stamp: (None, 0),
                version: 0,
                served: None,
                problem: None,
            });
            if entry.path != *path {
                continue;
            }
            let Some(now) = stamp(path) else {
                // A pipe, a folder, a link to nothing. One that is served stays until it is there again.
                if entry.served.is_none() && entry.problem.is_none() {
                    let error = mcdd::error::plain(&format!("{}: is not a file", path.display()));
                    self.log.line("error", &[("event", "not loaded"), ("model", &name), ("error", &error)]);
                    entry.problem = Some(error);
                }
                continue;
            };
            if entry.stamp == now {
                continue;
            }
            entry.stamp = now;
            match Model::load(path) {
                Ok(model) => {
                    entry.version += 1;
                    entry.problem = None;
                    // The same calibration: the monitor goes on.
                    let before = entry.served.as_ref().filter(|old| old.model.calibration() == model.calibration());
                    let watch = before
                        .map_or_else(|| Arc::new(Mutex::new(self.watch(&name, &model))), |old| Arc::clone(&old.watch));
                    let limits = self.config.limits_of(&name);
                    let served = Arc::new(Served { name: name.clone(), version: entry.version, model, limits, watch });
                    self.log.line(
                        "info",
                        &[("event", "loaded"), ("model", &name), ("version", &served.version.to_string())],
                    );
                    entry.served = Some(served);
                    changed = true;
                }
                Err(e) => {
                    let kept = if entry.served.is_some() { "the former version stays" } else { "not served" };
                    self.log.line(
                        "error",
                        &[("event", "not loaded"), ("model", &name), ("error", &e.to_string()), ("then", kept)],
                    );
                    entry.problem = Some(e.to_string());
                }
            }
        }
        // A file that left its folder is not served any more; one that was named stays.
        entries.retain(|name, entry| {
            let stays = files.contains(&entry.path);
            if !stays {
                self.locks.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
                self.log.line("info", &[("event", "removed"), ("model", name)]);
                changed = true;
            }
            stays
        });
        if changed {
            let list = entries.iter().filter_map(|(name, e)| Some((name.clone(), e.served.clone()?))).collect();
            *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(list);
        }
    }

    fn state_file(&self, name: &str) -> Option<PathBuf> {
        self.config.state.as_ref().map(|folder| folder.join(format!("{name}.json")))
    }

    /// Makes sure that no other process writes the state of a model.
    ///
    /// # Errors
    /// If one does.
    fn claim(&self, name: &str) -> mcdd::Result<()> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = self.state_file(name).filter(|_| !locks.contains_key(name)) {
            locks.insert(name.to_owned(), Lock::beside(&path, "state")?);
        }
        Ok(())
    }

    /// The monitor of a model: from its state, or a new one.
    fn watch(&self, name: &str, model: &Model) -> Watch {
        if let Err(e) = self.claim(name) {
            let fields = [("event", "state not kept"), ("model", name), ("error", &e.to_string())];
            self.log.line("error", &fields);
        }
        let calibration = model.calibration();
        let stored = || {
            self.state_file(name).filter(|path| path.exists()).and_then(|path| {
                Monitor::load(&path, calibration)
                    .map_err(|e| {
                        self.log.line(
                            "warning",
                            &[("event", "monitor begins anew"), ("model", name), ("error", &e.to_string())],
                        )
                    })
                    .ok()
            })
        };
        let monitor = stored().or_else(|| {
            Monitor::new(calibration, self.config.alpha)
                .map_err(|e| {
                    self.log.line("warning", &[("event", "no monitor"), ("model", name), ("error", &e.to_string())])
                })
                .ok()
        });
        let saved = monitor.as_ref().map_or((0, 0), progress);
        Watch { monitor, recent: Recent::default(), saved }
    }

    fn is_claimed(&self, name: &str) -> bool {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    /// Writes the states of the monitors that have changed since the last time.
    pub(crate) fn save(&self) {
        for (name, served) in self.all().iter() {
            let Some(path) = self.state_file(name).filter(|_| self.is_claimed(name)) else { continue };
            // Written from a copy, so that predictions do not wait for the disk.
            let copy = {
                let mut watch = served.watch();
                watch
                    .monitor
                    .as_ref()
                    .filter(|m| progress(m) != watch.saved)
                    .cloned()
                    .inspect(|m| watch.saved = progress(m))
            };
            if let Some(Err(e)) = copy.map(|monitor| monitor.save(&path)) {
                // Tried again the next time.
                served.watch().saved = (u64::MAX, 0);
                self.log.line("error", &[("event", "state not written"), ("model", name), ("error", &e.to_string())]);
            }
        }
    }
}
