//! Grids that are stopped, resumed, and given foreign results.

use super::results::{About, Cell, Results};
use super::*;
use crate::data::{Column, Table, digits};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Stops after so many cells.
struct Patience {
    left: AtomicUsize,
    stopped: AtomicBool,
}

fn patience(cells: usize) -> Patience {
    Patience { left: AtomicUsize::new(cells), stopped: AtomicBool::new(false) }
}

impl GridCallback for Patience {
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

fn grid<'a>(table: &'a Table, names: &[&str]) -> Grid<LeaveOneOut<'a>> {
    let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
    let mut methods = Method::list(&names).unwrap();
    for m in &mut methods {
        (m.settings.epochs, m.settings.hidden, m.settings.latent) = (2, vec![8], 4);
    }
    let classes = ["0", "3"].map(str::to_owned).into();
    Grid { experiment: LeaveOneOut { table, classes, folds: 3, tested: 2 }, methods, seeds: 2, retry: false }
}

/// The file without times.
fn timeless(folder: &Path) -> String {
    let (about, mut cells) = results::load(folder).unwrap();
    cells.iter_mut().for_each(|c| c.seconds = [0.0; 2]);
    serde_json::to_string(&(about, cells)).unwrap()
}

/// Cells that a caller computes one by one, in any order, are those of a run.
#[test]
fn single_cells_are_those_of_a_run() {
    let table = table();
    let about = About::new(&table, "digits", None).unwrap();
    let grid = grid(&table, &["deep-mcdd", "softmax+msp"]);
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [run, single] = folders.each_ref().map(|f| f.path());
    let mut results = Results::open(run, &about, 3).unwrap();
    grid.run(&mut results, run, 2, &patience(usize::MAX)).unwrap();
    results.sort().unwrap();
    let mut results = Results::open(single, &about, 3).unwrap();
    let cells = grid.missing(&results).unwrap();
    assert_eq!(cells.len(), 2 * 2 * 2 * 2);
    for key in cells.iter().rev() {
        results.add(grid.cell(key, &about.sha256).unwrap()).unwrap();
    }
    assert!(grid.missing(&results).unwrap().is_empty());
    results.sort().unwrap();
    assert_eq!(timeless(single), timeless(run));
    let nowhere = CellKey { fold: 9, ..cells[0].clone() };
    assert!(grid.cell(&nowhere, &about.sha256).is_err());
}

#[test]
fn a_stopped_run_goes_on_to_the_same_result() {
    let table = table();
    let about = About::new(&table, "digits", None).unwrap();
    let chosen = "softmax:select=best+mahalanobis";
    let names = ["softmax+msp", "softmax+mahalanobis", "deep-mcdd", chosen, "fast", "best"];
    let run = |folder: &Path, jobs: usize, cells: usize| {
        let mut results = Results::open(folder, &about, 3).unwrap();
        let outcome = grid(&table, &names).run(&mut results, folder, jobs, &patience(cells)).unwrap();
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
        grid(&table, &[name]).run(&mut results, alone.path(), 2, &patience(1000)).unwrap();
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
    let mut grid = grid(&table, &["softmax", "deep-mcdd"]);
    grid.methods[1].settings.lr = 1e30;
    let mut results = Results::open(dir.path(), &about, 3).unwrap();
    let outcome = grid.run(&mut results, dir.path(), 2, &patience(1000)).unwrap();
    assert_eq!(outcome, Outcome { total: 16, done: 16, failed: 8 });
    let errors: Vec<&Cell> = results.cells().filter(|c| c.error.is_some()).collect();
    assert!(errors.len() == 8 && errors.iter().all(|c| c.method == "deep-mcdd" && c.measured.is_none()));
    // They stay, unless asked to be tried again.
    assert_eq!(grid.run(&mut results, dir.path(), 2, &patience(1)).unwrap().failed, 8);
    grid.retry = true;
    grid.methods[1].settings.lr = 1e-3;
    let e = grid.run(&mut results, dir.path(), 2, &patience(1)).unwrap_err();
    assert!(e.to_string().contains("other settings"), "{e}");
}

#[test]
fn of_many_that_open_a_new_folder_each_has_it_or_finds_it_in_use() {
    let table = table();
    let about = About::new(&table, "digits", None).unwrap();
    for _ in 0..200 {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new");
        let start = std::sync::Barrier::new(4);
        let open = || {
            start.wait();
            Results::open(&folder, &about, 3).map(drop)
        };
        let found = std::thread::scope(|s| [(); 4].map(|()| s.spawn(open)).map(|t| t.join().unwrap()));
        for e in found.into_iter().filter_map(Result::err) {
            assert!(e.to_string().contains("in use"), "{e}");
        }
    }
}

#[test]
fn foreign_results_are_refused() {
    let table = table();
    let about = About::new(&table, "digits", None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(results::FILE);
    let mut one = grid(&table, &["gda"]);
    (one.experiment.tested, one.seeds) = (1, 1);
    let mut results = Results::open(dir.path(), &about, 3).unwrap();
    one.run(&mut results, dir.path(), 1, &patience(9)).unwrap();
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
    // One class cannot be left out.
    assert!(About::new(&table.with_classes(|c| c == 0), "one", None).is_err());
}
