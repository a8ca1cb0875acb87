//! Every class left out in turn, every fold, every method, every seed; side by side, and on from where it was stopped.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::results::{About, Cell, Results};
use super::{Method, Part, Split};
use crate::data::cell::list;
use crate::data::sets::{Coverage, thousands};
use crate::data::{Column, Table};
use crate::detector::Detect;
use crate::error::{Error, Kind, Result};
use crate::model::Model;
use crate::train::{Callback, Epoch, Preset, Run, Select, Settings};

/// What the names of folders begin with in which networks are kept for the methods that share them.
const NETWORKS: &str = ".networks-";

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Grid {
    /// What is compared.
    pub methods: Vec<Method>,
    /// The classes that are left out, one at a time.
    pub classes: Vec<String>,
    /// Parts of the other classes' rows, 2 or more.
    pub folds: usize,
    /// How many of them are tested in turn, 1 to `folds`.
    pub tested: usize,
    /// Seeds 0 to one less, 1 or more. A seed deals the folds; the networks of each fold begin elsewhere, so that folds differ in
    /// all that is left to chance.
    pub seeds: u64,
    /// Whether cells that have failed are tried again.
    pub retry: bool,
}

/// Sees a grid go by, and may stop it.
pub trait Spectator: Sync {
    /// What was done to the data, before a network is trained.
    fn notices(&self, _notices: &[String]) {}
    /// So many cells are there already, of so many.
    fn begin(&self, done: usize, total: usize, results: &Results);
    /// An epoch of so many is over, where networks take long.
    fn epoch(&self, _method: &str, _epoch: &Epoch, _epochs: usize) {}
    /// One more is done.
    fn done(&self, cell: &Cell);
    /// `true` leaves the rest for another time; cells that are not done are forgotten.
    fn stop(&self) -> bool;
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Cells that were asked for.
    pub total: usize,
    /// Those that are there, in this run or before.
    pub done: usize,
    /// Those of them that failed.
    pub failed: usize,
}

impl About {
    /// Describes a table; `coverage` where it is one of the known sets.
    ///
    /// # Errors
    /// If it has no classes.
    pub fn new(table: &Table, title: &str, coverage: Option<&Coverage>) -> Result<About> {
        if table.classes().len() < 3 {
            return Err(Error::data(format!("there are {} classes", table.classes().len())).hint(
                "one class is left out and at least two must be left to tell apart: give data with three or more",
            ));
        }
        let (rows, columns, classes) = (table.rows(), table.columns.len(), table.classes().len());
        let whole = || format!("{} rows, {} features, {classes} classes", thousands(rows), thousands(columns));
        Ok(About {
            title: coverage.map_or(title, |c| c.set.title).to_owned(),
            set: coverage.map(|c| c.set.name.to_owned()),
            coverage: coverage.map_or_else(|| format!("{title}: {}", whole()), Coverage::to_string),
            classes: table.classes().iter().cloned().zip(table.class_sizes()).collect(),
            sha256: digest(table),
            net: None,
        })
    }
}

/// Of every name and value.
fn digest(table: &Table) -> String {
    let mut hash = Sha256::new();
    let mut text = |t: &str| hash.update([t.as_bytes(), b"\0"].concat());
    table.names.iter().chain(table.classes()).for_each(|t| text(t));
    for column in &table.columns {
        match column {
            Column::Number(values) => {
                for part in values.chunks(4096) {
                    hash.update(part.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
                }
            }
            Column::Text { codes, names } => {
                names.iter().for_each(|n| hash.update([n.as_bytes(), b"\0"].concat()));
                hash.update(codes.iter().flat_map(|c| c.to_le_bytes()).collect::<Vec<u8>>());
            }
        }
    }
    let labels = (0..table.rows()).map(|r| table.label(r).unwrap_or(u32::MAX));
    hash.update(labels.flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// One class left out, one fold, one seed, and the methods that are missing.
struct Task<'a> {
    seed: u64,
    fold: usize,
    class: &'a str,
    methods: Vec<&'a Method>,
}

/// What becomes of classes, given with their rows, that are small for so many folds; for users to know before they look at
/// results.
pub fn small_classes(classes: &[(String, usize)], folds: usize) -> Vec<String> {
    let named = |test: &dyn Fn(usize) -> bool| {
        let all = classes.iter().filter(|(_, n)| test(*n)).map(|(c, n)| format!("{c} ({n})"));
        list(&all.collect::<Vec<_>>())
    };
    let part = |part: Part| named(&|n| Part::of(n, folds) == part);
    let few = named(&|n| Part::of(n, folds) == Part::Tested && n < 10 * folds);
    let notices = [
        ("these classes have too few rows to be learned and are only shown as left out", part(Part::Unknown)),
        ("these classes have too few rows to be tested, all of them stay in training", part(Part::Learned)),
        ("these classes have fewer than ten test rows in a fold", few),
    ];
    let there = notices.into_iter().filter(|(_, which)| !which.is_empty());
    there.map(|(what, which)| format!("{what}: {which}")).collect()
}

impl Grid {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the first number that is outside its range.
    pub fn check(&self) -> Result<()> {
        let rules = [
            ((2..=1000).contains(&self.folds), "folds", self.folds, "2 to 1,000".to_owned()),
            ((1..=self.folds).contains(&self.tested), "tested folds", self.tested, format!("1 to {}", self.folds)),
            ((1..=1000).contains(&self.seeds), "seeds", self.seeds as usize, "1 to 1,000".to_owned()),
        ];
        if self.classes.is_empty() || self.methods.is_empty() {
            return Err(Error::setting("there is nothing to do").hint("give methods, and classes to leave out"));
        }
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, name, value, rule)) => {
                Err(Error::setting(format!("{name}: {value}")).hint(format!("give {rule}")))
            }
            None => Ok(()),
        }
    }

    /// Finds out before the first cell that none can be done.
    fn check_data(&self, table: &Table) -> Result<()> {
        let sizes = table.class_sizes();
        let possible = |class: &String| {
            let out = table.class_number(class).unwrap_or(usize::MAX);
            let others = || (0..sizes.len()).filter(|c| *c != out).map(|c| Part::of(sizes[c], self.folds));
            others().any(|p| p == Part::Tested) && others().filter(|p| *p != Part::Unknown).count() > 1
        };
        if self.classes.iter().any(possible) {
            return Ok(());
        }
        Err(Error::data(format!("classes are too small for {} folds: none of their rows could be tested", self.folds))
            .hint("give fewer --folds, or more rows; if these are no classes, check --label"))
    }

    /// Does what is missing in `results`, with `jobs` threads of one cell each. What comes out does not depend on them.
    ///
    /// # Errors
    /// If the results cannot be written, or are of other settings. A cell that fails is a result.
    pub fn run(
        &self,
        table: &Table,
        results: &mut Results,
        folder: &Path,
        jobs: usize,
        spectator: &dyn Spectator,
    ) -> Result<Outcome> {
        self.check()?;
        self.check_data(table)?;
        self.methods.iter().try_for_each(|m| results.check(m))?;
        let mut tasks = Vec::new();
        let (mut total, mut done) = (0, 0);
        for (seed, fold) in (0..self.seeds).flat_map(|s| (0..self.tested).map(move |f| (s, f))) {
            for class in &self.classes {
                let mut task = Task { seed, fold, class, methods: Vec::new() };
                for method in &self.methods {
                    let there = results.find(method, class, fold, seed)?;
                    total += 1;
                    match there {
                        Some(cell) if !self.retry || cell.error.is_none() => done += 1,
                        _ => task.methods.push(method),
                    }
                }
                tasks.extend(Some(task).filter(|t| !t.methods.is_empty()));
            }
        }
        spectator.begin(done, total, results);
        let shared = Mutex::new((results, None));
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, tasks.len().max(1)) {
                scope.spawn(|| {
                    while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if !self.work(task, table, folder, &shared, spectator) {
                            break;
                        }
                    }
                });
            }
        });
        clear(folder);
        let (results, failure) = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(e) = failure {
            return Err(e);
        }
        self.outcome(results, total)
    }

    /// Counts what is there.
    fn outcome(&self, results: &Results, total: usize) -> Result<Outcome> {
        let mut outcome = Outcome { total, ..Outcome::default() };
        for (seed, fold) in (0..self.seeds).flat_map(|s| (0..self.tested).map(move |f| (s, f))) {
            for (class, method) in self.classes.iter().flat_map(|c| self.methods.iter().map(move |m| (c, m))) {
                if let Some(cell) = results.find(method, class, fold, seed)? {
                    outcome.done += 1;
                    outcome.failed += usize::from(cell.error.is_some());
                }
            }
        }
        Ok(outcome)
    }

    /// The cells of a task, one after the other; `false` if there is nothing more to do for anybody.
    fn work(
        &self,
        task: &Task,
        table: &Table,
        folder: &Path,
        shared: &Mutex<(&mut Results, Option<Error>)>,
        spectator: &dyn Spectator,
    ) -> bool {
        let split = Split::new(table, task.class, task.fold, self.folds, task.seed);
        let networks = networks_folder(folder, task.seed, task.fold, task.class);
        let mut go_on = true;
        for method in &task.methods {
            // Where nothing can be written any more, nothing need be done.
            if spectator.stop() || shared.lock().map_or(true, |s| s.1.is_some()) {
                go_on = false;
                break;
            }
            let seed = task.seed * self.folds as u64 + task.fold as u64;
            let settings = Settings { seed, ..method.settings.clone() };
            let sharing = task.methods.iter().filter(|m| network(m) == network(method)).count() > 1;
            let checkpoint = sharing.then(|| networks.join(format!("{:x}", hash(&network(method)))));
            let mut seconds = [0.0; 2];
            let measured = match &split {
                Ok(split) => {
                    let run =
                        Run { threads: 1, checkpoint, resume: true, callback: &Stopper(spectator), ..Run::default() };
                    let cell = AssertUnwindSafe(|| measure(split, &settings, &run, &networks, &mut seconds));
                    catch_unwind(cell).unwrap_or_else(|why| Err(panicked(why.as_ref())))
                }
                Err(e) => Err(Error::data(e.to_string())),
            };
            let (measured, error) = match measured {
                // Stopped on the way.
                Ok(None) => {
                    go_on = false;
                    break;
                }
                Ok(some) => (some, None),
                // The machine failed, not the method.
                Err(e) if e.kind() == Kind::Io => {
                    if let Ok(mut shared) = shared.lock() {
                        shared.1 = Some(e);
                    }
                    go_on = false;
                    break;
                }
                Err(e) => (None, Some(e.to_string())),
            };
            let Ok(mut shared) = shared.lock() else { return false };
            let cell = Cell {
                data: shared.0.about().sha256.clone(),
                method: method.name.clone(),
                ood: task.class.to_owned(),
                fold: task.fold,
                folds: self.folds,
                seed: task.seed,
                measured,
                error,
                seconds: seconds.map(|s| (s * 1e3).round() / 1e3),
                settings,
                version: env!("CARGO_PKG_VERSION").to_owned(),
            };
            if let Err(e) = shared.0.add(cell.clone()) {
                shared.1 = Some(e);
                go_on = false;
                break;
            }
            drop(shared);
            spectator.done(&cell);
        }
        let _ = fs::remove_dir_all(&networks);
        go_on
    }
}

/// Where networks are kept for the methods that share them.
pub(super) fn networks_folder(folder: &Path, seed: u64, fold: usize, class: &str) -> PathBuf {
    folder.join(format!("{NETWORKS}{seed}-{fold}-{:x}", hash(class)))
}

/// Trains and measures; none if it was stopped.
fn measure(
    split: &Split,
    settings: &Settings,
    run: &Run,
    networks: &Path,
    seconds: &mut [f64; 2],
) -> Result<Option<super::Scenario>> {
    if run.checkpoint.is_some() {
        fs::create_dir_all(networks).map_err(|e| Error::io(e, networks))?;
    }
    let start = Instant::now();
    let fitted = Model::fit_with(&split.train, settings, run)?;
    seconds[0] = start.elapsed().as_secs_f64();
    if fitted.interrupted {
        return Ok(None);
    }
    let start = Instant::now();
    let scenario = split.measure(&fitted.model)?;
    seconds[1] = start.elapsed().as_secs_f64();
    Ok(Some(scenario))
}

fn panicked(why: &(dyn std::any::Any + Send)) -> Error {
    let text = why.downcast_ref::<String>().map(String::as_str).or_else(|| why.downcast_ref::<&str>().copied());
    Error::data(format!("the program failed here ({}); please report it", text.unwrap_or("no reason given")))
}

/// Removes what networks were kept in, of this run and of runs that were killed.
pub(super) fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NETWORKS) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Stops training when the whole is stopped.
struct Stopper<'a>(&'a dyn Spectator);

impl Callback for Stopper<'_> {
    fn notices(&self, notices: &[String]) {
        self.0.notices(notices);
    }

    fn stop(&self) -> bool {
        self.0.stop()
    }
}

/// The settings that make a network: methods that differ in the rest share it.
pub(super) fn network(method: &Method) -> String {
    let (detector, preset) = (Detect::default(), Preset::Best);
    let shared = Settings { detector, preset, members: 1, select: Select::Last, ..method.settings.clone() };
    // Another version of the program makes another network.
    serde_json::to_string(&(env!("CARGO_PKG_VERSION"), shared)).unwrap_or_default()
}

pub(super) fn hash(text: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    text.hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::protocol::results;
    use std::sync::atomic::AtomicBool;

    /// Stops after so many cells.
    struct Patience {
        left: AtomicUsize,
        stopped: AtomicBool,
    }

    fn patience(cells: usize) -> Patience {
        Patience { left: AtomicUsize::new(cells), stopped: AtomicBool::new(false) }
    }

    impl Spectator for Patience {
        fn begin(&self, _: usize, _: usize, _: &Results) {}
        fn done(&self, _: &Cell) {
            if self.left.fetch_sub(1, Ordering::Relaxed) <= 1 {
                self.stopped.store(true, Ordering::Relaxed);
            }
        }
        fn stop(&self) -> bool {
            self.stopped.load(Ordering::Relaxed)
        }
    }

    fn table() -> Table {
        let all = digits();
        let few: Vec<usize> = (0..all.rows()).filter(|&r| all.label(r).is_some_and(|c| c < 4)).take(200).collect();
        let csv = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        all.select(&few).write_csv(csv.as_file()).unwrap();
        Table::read(&[csv.path().to_path_buf()], &crate::data::ReadOptions::default()).unwrap()
    }

    fn grid(names: &[&str]) -> Grid {
        let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
        let mut methods = Method::list(&names).unwrap();
        for m in &mut methods {
            (m.settings.epochs, m.settings.hidden, m.settings.latent) = (2, vec![8], 4);
        }
        let classes = ["0", "3"].map(str::to_owned).into();
        Grid { methods, classes, folds: 3, tested: 2, seeds: 2, retry: false }
    }

    /// The file without what a clock says.
    fn timeless(folder: &Path) -> String {
        let (about, mut cells) = results::load(folder).unwrap();
        cells.iter_mut().for_each(|c| c.seconds = [0.0; 2]);
        serde_json::to_string(&(about, cells)).unwrap()
    }

    #[test]
    fn a_stopped_run_goes_on_to_the_same_result() {
        let table = table();
        let about = About::new(&table, "digits", None).unwrap();
        let chosen = "softmax:select=best+mahalanobis";
        let names = ["softmax+msp", "softmax+mahalanobis", "deep-mcdd", chosen, "fast", "best"];
        let run = |folder: &Path, jobs: usize, cells: usize| {
            let mut results = Results::open(folder, &about, 3).unwrap();
            let outcome = grid(&names).run(&table, &mut results, folder, jobs, &patience(cells)).unwrap();
            results.sort().unwrap();
            outcome
        };
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let all = Outcome { total: 48, done: 48, failed: 0 };
        assert_eq!(run(whole.path(), 1, 1000), all);
        // Stopped again and again, with other threads, and with a line cut off.
        for (jobs, cells) in [(1, 3), (3, 8), (2, 1)] {
            let some = run(parts.path(), jobs, cells);
            assert!(some.done >= cells && some.done < 48, "{some:?}");
            let path = parts.path().join(results::FILE);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, &text[..text.len() - 20]).unwrap();
        }
        assert_eq!(run(parts.path(), 2, 1000), all);
        assert_eq!(timeless(whole.path()), timeless(parts.path()));
        let left: Vec<_> = fs::read_dir(parts.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "only the results and the lock are left: {left:?}");
        // What a network shared, and what it was trained for alone, are the same.
        let (_, cells) = results::load(whole.path()).unwrap();
        for name in ["softmax+mahalanobis", chosen] {
            let alone = tempfile::tempdir().unwrap();
            let mut results = Results::open(alone.path(), &about, 3).unwrap();
            grid(&[name]).run(&table, &mut results, alone.path(), 2, &patience(1000)).unwrap();
            for cell in results.cells() {
                let same =
                    |c: &&Cell| (&c.method, &c.ood, c.fold, c.seed) == (&cell.method, &cell.ood, cell.fold, cell.seed);
                assert_eq!(cells.iter().find(same).unwrap().measured, cell.measured);
            }
        }
    }

    #[test]
    fn failures_are_results() {
        let table = table();
        let about = About::new(&table, "digits", None).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut grid = grid(&["softmax", "deep-mcdd"]);
        grid.methods[1].settings.lr = 1e30;
        let mut results = Results::open(dir.path(), &about, 3).unwrap();
        let outcome = grid.run(&table, &mut results, dir.path(), 2, &patience(1000)).unwrap();
        assert_eq!(outcome, Outcome { total: 16, done: 16, failed: 8 });
        let errors: Vec<&Cell> = results.cells().filter(|c| c.error.is_some()).collect();
        assert!(errors.len() == 8 && errors.iter().all(|c| c.method == "deep-mcdd" && c.measured.is_none()));
        // They stay, unless asked to be tried again.
        assert_eq!(grid.run(&table, &mut results, dir.path(), 2, &patience(1)).unwrap().failed, 8);
        grid.retry = true;
        grid.methods[1].settings.lr = 1e-3;
        let e = grid.run(&table, &mut results, dir.path(), 2, &patience(1)).unwrap_err();
        assert!(e.to_string().contains("other settings"), "{e}");
    }

    #[test]
    fn foreign_results_are_refused() {
        let table = table();
        let about = About::new(&table, "digits", None).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(results::FILE);
        let mut one = grid(&["gda"]);
        (one.tested, one.seeds) = (1, 1);
        let mut results = Results::open(dir.path(), &about, 3).unwrap();
        one.run(&table, &mut results, dir.path(), 1, &patience(9)).unwrap();
        assert!(Results::open(dir.path(), &about, 3).err().unwrap().to_string().contains("in use"));
        drop(results);
        let refused = |about: &About, folds, what: &str| {
            let e = Results::open(dir.path(), about, folds).err().unwrap();
            assert!(e.to_string().contains(what) && e.hint_text().is_some(), "{e}");
        };
        refused(&about, 4, "3 folds");
        let mut other = table.clone();
        if let Column::Number(values) = &mut other.columns[5] {
            values[7] += 1.0;
        }
        refused(&About::new(&other, "digits", None).unwrap(), 3, "other data");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("\"fold\"", "\"fld\"", 1)).unwrap();
        refused(&about, 3, "line 2");
        fs::write(&path, format!("{text}{text}")).unwrap();
        refused(&about, 3, "out of place");
        fs::write(&path, "\u{0}\n").unwrap();
        refused(&about, 3, "line 1");
        fs::write(&path, text).unwrap();
        assert_eq!(Results::open(dir.path(), &about, 3).unwrap().cells().count(), 2);
        assert!(results::load(&dir.path().join("nowhere")).is_err());
        // Two classes cannot spare one.
        let (two, _) = table.leave_out("3").unwrap();
        let (two, _) = two.leave_out("2").unwrap();
        assert!(About::new(&two, "two", None).is_err());
    }
}
