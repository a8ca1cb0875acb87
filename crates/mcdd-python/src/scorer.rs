//! Detectors on features and logits from any network.

use std::path::PathBuf;

use mcdd::detector::{DetectorConfig, Features, Training};
use mcdd::head::HeadConfig;
use mcdd::model::{self, Predictions, ScorerSettings};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::raise;
use crate::model::{Threads, arrays};

/// A fitted detector with its calibration.
#[pyclass(frozen, module = "mcdd._mcdd")]
pub(crate) struct Scorer(pub(crate) model::Scorer);

/// The rows of features and logits, of which one may be missing.
struct Rows<'py> {
    features: Option<PyReadonlyArray2<'py, f32>>,
    logits: Option<PyReadonlyArray2<'py, f64>>,
}

impl Rows<'_> {
    fn get(&self) -> PyResult<Features<'_>> {
        let counts = [self.features.as_ref().map(|f| f.shape()[0]), self.logits.as_ref().map(|l| l.shape()[0])];
        let count = match counts {
            [Some(a), Some(b)] if a != b => {
                return Err(PyValueError::new_err(format!("{a} rows of features, and {b} rows of logits")));
            }
            [Some(count), _] | [None, Some(count)] => count,
            [None, None] => return Err(PyValueError::new_err("give features, logits, or both")),
        };
        Ok(Features {
            count,
            features: self.features.as_ref().map_or(Ok(&[][..]), |f| f.as_slice())?,
            logits: self.logits.as_ref().map_or(Ok(&[][..]), |l| l.as_slice())?,
        })
    }
}

#[pymethods]
impl Scorer {
    /// Fits a detector on most of the rows, and calibrates it on the others.
    #[staticmethod]
    #[pyo3(signature = (detector, features, logits, labels, classes, tpr, calibration_fraction, seed, threads=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a private function")]
    fn fit(
        py: Python<'_>,
        detector: &str,
        features: Option<PyReadonlyArray2<'_, f32>>,
        logits: Option<PyReadonlyArray2<'_, f64>>,
        labels: Option<PyReadonlyArray1<'_, u32>>,
        classes: Vec<String>,
        tpr: f64,
        calibration_fraction: f64,
        seed: u64,
        threads: Option<usize>,
    ) -> PyResult<Scorer> {
        let detector = DetectorConfig::parse(detector).map_err(raise)?;
        let settings = ScorerSettings { tpr, calibration_fraction, seed, ..ScorerSettings::new(detector) };
        let rows = Rows { features, logits };
        let labels = labels.as_ref().map(|labels| labels.as_slice()).transpose()?;
        let training = Training { rows: rows.get()?, labels, classes: classes.len(), ..Training::default() };
        if labels.is_some_and(|labels| labels.len() != training.rows.count) {
            let rows = (training.rows.count, labels.map_or(0, <[u32]>::len));
            return Err(PyValueError::new_err(format!("{} rows of features, and {} labels", rows.0, rows.1)));
        }
        let threads = Threads::new(threads);
        py.detach(|| model::Scorer::fit(&training, &classes, &settings, threads.pool())).map(Scorer).map_err(raise)
    }

    /// Confidence and p-value of each row as arrays; class and probabilities where the detector classifies.
    #[pyo3(signature = (features, logits, threads=None))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        features: Option<PyReadonlyArray2<'_, f32>>,
        logits: Option<PyReadonlyArray2<'_, f64>>,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows = Rows { features, logits };
        let (rows, threads, mut out) = (rows.get()?, Threads::new(threads), Predictions::default());
        py.detach(|| self.0.predict(&rows, &mut out, threads.pool())).map_err(raise)?;
        arrays(py, out)
    }

    /// The lowest confidence of a known row at a true positive rate.
    #[pyo3(signature = (tpr=None))]
    fn threshold(&self, tpr: Option<f64>) -> PyResult<f64> {
        self.0.threshold_at(tpr).map(|threshold| threshold.confidence).map_err(raise)
    }

    /// Which of these confidences are known at a true positive rate.
    #[pyo3(signature = (confidence, tpr=None))]
    fn known<'py>(
        &self,
        py: Python<'py>,
        confidence: PyReadonlyArray1<'_, f64>,
        tpr: Option<f64>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let threshold = self.0.threshold_at(tpr).map_err(raise)?;
        let known: Vec<bool> = confidence.as_array().iter().map(|&c| threshold.known(c)).collect();
        Ok(PyArray1::from_vec(py, known))
    }

    /// The bytes of the detector file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_bytes().map_err(raise)?))
    }

    /// The detector in the bytes of a file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Scorer> {
        py.detach(|| model::Scorer::from_bytes(bytes)).map(Scorer).map_err(raise)
    }

    /// Writes the detector file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save(path)).map_err(raise)
    }

    /// Reads a detector file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Scorer> {
        py.detach(|| model::Scorer::load(path)).map(Scorer).map_err(raise)
    }

    /// The settings as JSON.
    #[getter]
    fn settings(&self) -> PyResult<String> {
        serde_json::to_string(self.0.settings()).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// The class names.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.0.classes().to_vec()
    }

    /// Whether it predicts classes.
    #[getter]
    fn classifies(&self) -> bool {
        self.0.classifies()
    }
}

/// Names, summaries and references of all detectors.
#[pyfunction]
pub(crate) fn detectors() -> Vec<(&'static str, &'static str, &'static str)> {
    DetectorConfig::all().iter().map(DetectorConfig::about).map(|a| (a.name, a.summary, a.reference)).collect()
}

/// Names, summaries and references of all methods.
#[pyfunction]
pub(crate) fn methods() -> Vec<(&'static str, &'static str, &'static str)> {
    HeadConfig::all().iter().map(HeadConfig::about).map(|a| (a.name, a.summary, a.reference)).collect()
}

/// What a detector needs: features, logits, labels.
#[pyfunction]
pub(crate) fn detector_needs(detector: &str) -> PyResult<(bool, bool, bool)> {
    let needs = DetectorConfig::parse(detector).map_err(raise)?.about().needs;
    Ok((needs.features, needs.logits, needs.labels))
}
