//! Benchmarks: each class left out in turn.

use std::path::{Path, PathBuf};

use mcdd::data;
use mcdd::protocol::results::{About, Cell, Results};
use mcdd::protocol::{CellKey, Experiment, Grid, GridCallback, LeaveOneOut, Method};
use mcdd::report::bench::{self, METRICS, Study};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::raise;
use crate::progress::Progress;
use crate::table::Table;

/// Methods, folds and seeds on a table with labels. Results are in a folder, as those of the command.
#[pyclass(frozen, module = "mcdd._mcdd")]
pub(crate) struct Bench {
    table: data::Table,
    about: About,
    methods: Vec<Method>,
    classes: Vec<String>,
    folds: usize,
    tested: usize,
    seeds: u64,
}

/// A line of the results: method, metric, mean and standard deviation, as fractions.
type Line = (String, &'static str, f64, Option<f64>);

/// A result as Python gets it.
struct Observer(Progress);

impl GridCallback for Observer {
    fn begin(&self, done: usize, total: usize, _: &Results) {
        self.0.begin_at(done, total);
    }

    fn done(&self, cell: &Cell) {
        self.0.tell(cell.measured.as_ref().map_or(f64::NAN, |m| m.detection.auroc));
    }

    fn stop(&self) -> bool {
        mcdd::train::Callback::stop(&self.0)
    }
}

impl Bench {
    fn grid(&self) -> Grid<LeaveOneOut<'_>> {
        let (classes, methods) = (self.classes.clone(), self.methods.clone());
        let experiment = LeaveOneOut { table: &self.table, classes, folds: self.folds, tested: self.tested };
        Grid { experiment, methods, seeds: self.seeds, retry: false }
    }

    fn open(&self, folder: &Path) -> mcdd::Result<Results> {
        Results::open(folder, &self.about, self.folds)
    }
}

#[pymethods]
impl Bench {
    #[new]
    fn new(
        table: &Bound<'_, Table>,
        title: &str,
        methods: Option<Vec<String>>,
        classes: Option<Vec<String>>,
        folds: usize,
        tested: Option<usize>,
        seeds: u64,
    ) -> PyResult<Bench> {
        let table = table.get().0.clone();
        let about = About::new(&table, title, None).map_err(raise)?;
        let names = methods.unwrap_or_else(|| vec![Method::default_group(about.classes.len()).to_owned()]);
        let methods = Method::list(&names).map_err(raise)?;
        let classes = classes.unwrap_or_else(|| table.classes().to_vec());
        let bench = Bench { table, about, methods, classes, folds, tested: tested.unwrap_or(folds), seeds };
        bench.grid().check().map_err(raise)?;
        Ok(bench)
    }

    /// Computes all cells that are missing in the folder, on `threads` threads.
    #[pyo3(signature = (folder, threads=None, progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
        let observer = Observer(Progress::new(progress));
        let done = py.detach(|| {
            let mut results = self.open(&folder)?;
            self.grid().run(&mut results, &folder, threads, &observer).map(drop)
        });
        match observer.0.into_error() {
            Some(stopped) => Err(stopped),
            None => done.map_err(raise),
        }
    }

    /// The cells without a result in the folder, each as JSON.
    fn missing(&self, folder: PathBuf) -> PyResult<Vec<String>> {
        let cells = self.open(&folder).and_then(|results| self.grid().missing(&results)).map_err(raise)?;
        cells.iter().map(|cell| serde_json::to_string(cell).map_err(|e| PyValueError::new_err(e.to_string()))).collect()
    }

    /// Computes one cell of [`Bench::missing`] on one thread; its result as JSON.
    fn cell(&self, py: Python<'_>, key: &str) -> PyResult<String> {
        let key: CellKey = serde_json::from_str(key).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let cell = py.detach(|| self.grid().cell(&key, &self.about.sha256)).map_err(raise)?;
        serde_json::to_string(&cell).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// Adds the result of a cell to the folder.
    fn add(&self, folder: PathBuf, cell: &str) -> PyResult<()> {
        let cell: Cell = serde_json::from_str(cell).map_err(|e| PyValueError::new_err(e.to_string()))?;
        self.open(&folder).and_then(|mut results| results.add(cell)).map_err(raise)
    }

    /// Writes tables and page into the folder. Returns the means of every method, and the errors of cells that failed.
    fn finish(&self, folder: PathBuf) -> PyResult<(Vec<Line>, Vec<String>)> {
        let mut results = self.open(&folder).map_err(raise)?;
        results.sort().map_err(raise)?;
        let cells: Vec<Cell> = results.cells().cloned().collect();
        let study = Study::new(&self.about, &cells);
        bench::write(&folder, &study).map_err(raise)?;
        let mut lines = Vec::new();
        for (method, metric) in study.methods.iter().flat_map(|m| METRICS.iter().map(move |metric| (m, metric))) {
            if let Some(stat) = study.mean(method, metric) {
                lines.push(((*method).to_owned(), metric.key, stat.mean / 100.0, stat.std.map(|s| s / 100.0)));
            }
        }
        Ok((lines, study.failures()))
    }

    /// The number of cells.
    fn __len__(&self) -> usize {
        let grid = self.grid();
        grid.experiment.groups().iter().map(|g| g.ood.len()).sum::<usize>() * self.methods.len() * self.seeds as usize
    }
}
