//! Monitors of streams of rows.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mcdd::model::Calibration;
use mcdd::monitor;
use mcdd::report::monitor as pages;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{DataError, raise};
use crate::model::Model;
use crate::scorer::Scorer;

/// Evidence that a stream of rows has changed.
#[pyclass(frozen, module = "mcdd._mcdd")]
pub(crate) struct Monitor {
    calibration: Calibration,
    state: Mutex<monitor::Monitor>,
}

/// The calibration of a model or of a detector.
fn calibration(of: &Bound<'_, PyAny>) -> PyResult<Calibration> {
    Ok(match of.cast::<Model>() {
        Ok(model) => model.get().0.calibration().clone(),
        Err(_) => of.cast::<Scorer>()?.get().0.calibration().clone(),
    })
}

impl Monitor {
    fn lock(&self) -> MutexGuard<'_, monitor::Monitor> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Monitor {
    /// A monitor for the rows of a model or a detector.
    #[new]
    fn new(of: &Bound<'_, PyAny>, alpha: f64) -> PyResult<Monitor> {
        let calibration = calibration(of)?;
        let state = monitor::Monitor::new(&calibration, alpha).map_err(raise)?;
        Ok(Monitor { calibration, state: Mutex::new(state) })
    }

    /// Reads a state.
    #[staticmethod]
    fn load(py: Python<'_>, of: &Bound<'_, PyAny>, path: PathBuf) -> PyResult<Monitor> {
        let calibration = calibration(of)?;
        let state = py.detach(|| monitor::Monitor::load(&path, &calibration)).map_err(raise)?;
        Ok(Monitor { calibration, state: Mutex::new(state) })
    }

    /// Also watches classes and columns, against reference rows.
    #[pyo3(signature = (model, data, threads=None))]
    fn watch_parts(
        &self,
        py: Python<'_>,
        model: &Bound<'_, Model>,
        data: &Bound<'_, PyAny>,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let model = model.get();
        let (found, x) = model.predictions_and_inputs(py, data, threads)?;
        let (schema, classes) = (model.0.schema(), model.0.classes());
        py.detach(|| self.lock().watch_parts(schema, classes, &x, &found)).map_err(raise)
    }

    /// Adds rows: all of them, or none if there is an error.
    #[pyo3(signature = (model, data, threads=None))]
    fn add_rows(
        &self,
        py: Python<'_>,
        model: &Bound<'_, Model>,
        data: &Bound<'_, PyAny>,
        threads: Option<usize>,
    ) -> PyResult<()> {
        let model = model.get();
        let (found, x) = model.predictions_and_inputs(py, data, threads)?;
        let (schema, classes) = (model.0.schema(), model.0.classes());
        py.detach(|| self.lock().add_rows(schema, classes, &x, &found));
        Ok(())
    }

    /// Adds rows by their confidences.
    fn add_scores(&self, py: Python<'_>, scores: PyReadonlyArray1<'_, f64>) -> PyResult<()> {
        let scores = scores.as_slice()?;
        if let Some(row) = scores.iter().position(|s| !s.is_finite()) {
            return Err(DataError::new_err(format!("row {}: the confidence is {}", row + 1, scores[row])));
        }
        py.detach(|| {
            let mut state = self.lock();
            scores.iter().for_each(|&s| state.add(s));
        });
        Ok(())
    }

    /// Adds rows by their p-values.
    fn add_p_values(&self, py: Python<'_>, p_values: PyReadonlyArray1<'_, f64>) -> PyResult<()> {
        let p_values = p_values.as_slice()?;
        let confidence =
            |(row, &p): (usize, &f64)| self.calibration.confidence_at(p).map_err(|e| raise(e.at_row(row as u64 + 1)));
        let scores: Vec<f64> = p_values.iter().enumerate().map(confidence).collect::<PyResult<_>>()?;
        py.detach(|| {
            let mut state = self.lock();
            scores.iter().for_each(|&s| state.add(s));
        });
        Ok(())
    }

    /// Starts again after an alarm.
    fn restart(&self) {
        self.lock().restart();
    }

    /// Writes the state.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            // Written from a copy, so that other threads do not wait for the disk.
            let copy = self.lock().clone();
            copy.save(&path)
        })
        .map_err(raise)
    }

    /// The state in numbers, as JSON.
    #[getter]
    fn about(&self) -> PyResult<String> {
        serde_json::to_string(&self.lock().about()).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// The evidence against "the rows are like the calibration rows".
    #[getter]
    fn evidence(&self) -> f64 {
        self.lock().evidence()
    }

    /// The row at which the alarm was raised, from 1.
    #[getter]
    fn alarm(&self) -> Option<u64> {
        self.lock().alarm()
    }

    /// The number of rows so far.
    #[getter]
    fn rows(&self) -> u64 {
        self.lock().rows()
    }

    /// The highest evidence over time: the last row of each point, and the common logarithm of the evidence.
    #[getter]
    fn history<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<f64>>) {
        let state = self.lock();
        let points = state.history();
        (PyArray1::from_iter(py, points.iter().map(|p| p.row)), PyArray1::from_iter(py, points.iter().map(|p| p.log10)))
    }

    /// The page and its figure as SVG.
    fn report(&self, py: Python<'_>, name: &str) -> PyResult<(String, String)> {
        py.detach(|| {
            let state = self.lock().clone();
            Ok((pages::page(&state, name)?, pages::figure(&state, name)?.svg()))
        })
        .map_err(raise)
    }
}
