//! Models: training, prediction, explanation, and the file.

use std::path::PathBuf;

use mcdd::backbone::{BackboneOptions, ChannelOrder, NetworkFile};
use mcdd::compute::pool::Pool;
use mcdd::data::{
    Batch, ColumnKind, Form, ImageOptions, ImageShape, Images, Label, Labels, ReadOptions, Reader, SchemaColumn, Unseen,
};
use mcdd::detector::Detect;
use mcdd::files::write_beside;
use mcdd::model::{self, Refit};
use mcdd::train::Run;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray4, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::error::{self, raise};
use crate::progress::Progress;
use crate::settings::settings;
use crate::table::{Matrix, Table, record_batches, with_values};

/// The largest number of rows between two looks at signals while predicting.
const ROWS: usize = 1 << 15;

/// What is wanted of predictions besides class, confidence and p-value: it grows with the number of classes.
#[derive(Clone, Copy)]
struct Wanted {
    probabilities: bool,
    distances: bool,
}

impl Wanted {
    const NOTHING: Wanted = Wanted { probabilities: false, distances: false };

    /// Appends predictions without what is not wanted.
    fn append(self, all: &mut model::Predictions, mut part: model::Predictions) {
        if !self.probabilities {
            part.posterior = Vec::new();
        }
        if !self.distances {
            part.distance = Vec::new();
        }
        all.append(part);
    }
}

/// The threads of a call: those that are given, or all cores.
pub(crate) enum Threads {
    Shared,
    Own(Pool),
}

impl Threads {
    pub(crate) fn new(threads: Option<usize>) -> Threads {
        threads.map_or(Threads::Shared, |n| Threads::Own(Pool::new(n)))
    }

    pub(crate) fn pool(&self) -> &Pool {
        match self {
            Threads::Shared => Pool::shared(),
            Threads::Own(pool) => pool,
        }
    }
}

/// The arrays of predictions, by name. Fields that the model does not have are None.
pub(crate) fn arrays<'py>(py: Python<'py>, found: model::Predictions) -> PyResult<Bound<'py, PyDict>> {
    let (rows, classes) = (found.rows(), found.classes);
    let out = PyDict::new(py);
    let matrix = |values: Vec<f64>| -> PyResult<Option<Bound<'py, PyAny>>> {
        if values.is_empty() && rows > 0 {
            return Ok(None);
        }
        Ok(Some(PyArray1::from_vec(py, values).reshape([rows, classes])?.into_any()))
    };
    let class = (classes > 0).then(|| PyArray1::from_vec(py, found.class));
    out.set_item("class", class)?;
    out.set_item("confidence", PyArray1::from_vec(py, found.confidence))?;
    out.set_item("p_value", PyArray1::from_vec(py, found.p_value))?;
    out.set_item("probability", matrix(found.posterior)?)?;
    out.set_item("distance", matrix(found.distance)?)?;
    Ok(out)
}

/// A trained model.
#[pyclass(frozen, module = "mcdd._mcdd")]
pub(crate) struct Model(pub(crate) model::Model);

/// Images with labels, in memory.
#[pyclass(frozen, module = "mcdd._mcdd", name = "Images")]
pub(crate) struct PyImages(pub(crate) Images);

#[pymethods]
impl PyImages {
    /// Images from an array of bytes: images, rows, columns, channels.
    #[staticmethod]
    fn from_array(pixels: PyReadonlyArray4<'_, u8>) -> PyResult<PyImages> {
        let shape = pixels.shape();
        let shape = ImageShape { height: shape[1], width: shape[2], channels: shape[3] };
        Images::from_pixels::<&str>(pixels.as_slice()?, shape, None).map(PyImages).map_err(raise)
    }

    /// Images from files and folders, and notices about them. The name of a folder is the label of the images in it. All
    /// images get the `shape`, height, width and channels, if it is given; else at most that of a backbone's images.
    #[staticmethod]
    #[pyo3(signature = (paths, labels, shape, skip_bad, backbone=None))]
    fn read(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        labels: bool,
        shape: Option<(usize, usize, usize)>,
        skip_bad: bool,
        backbone: Option<PathBuf>,
    ) -> PyResult<(PyImages, Vec<String>)> {
        let label = if labels { Label::Auto } else { Label::None };
        let (size, mut channels, mut at_most) = (shape.map(|s| (s.0, s.1)), shape.map(|s| s.2), None);
        if let Some(path) = &backbone {
            let input = NetworkFile::read(path).and_then(|n| n.image_input().map_err(|e| e.at_file(path)));
            let (own, size) = input.map_err(raise)?;
            (channels, at_most) = (channels.or(Some(own)), size);
        }
        let options = ImageOptions { label, size, at_most, channels, skip_bad, ..ImageOptions::default() };
        let (images, notices) = py.detach(|| Images::read(&paths, &options)).map_err(raise)?;
        Ok((PyImages(images), notices.iter().map(|notice| error::text(notice)).collect()))
    }

    /// These images with labels: for each the number of its class, and the names of the classes.
    fn with_labels(&self, codes: PyReadonlyArray1<'_, u32>, names: Vec<String>) -> PyResult<PyImages> {
        let codes = codes.as_slice()?.to_vec();
        if codes.len() != self.0.rows() || codes.iter().any(|&code| code as usize >= names.len()) {
            let message = format!("{} labels for {} images", codes.len(), self.0.rows());
            return Err(error::DataError::new_err(message));
        }
        let mut images = self.0.clone();
        images.labels = Some(Labels { codes, names });
        Ok(PyImages(images))
    }

    fn __len__(&self) -> usize {
        self.0.rows()
    }

    /// The classes, if the images have labels.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.0.classes().to_vec()
    }

    /// The class of each image, as a number; None without labels.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<u32>>> {
        self.0.labels.as_ref().map(|labels| PyArray1::from_slice(py, &labels.codes))
    }

    /// Height, width and channels.
    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        (self.0.height, self.0.width, self.0.channels)
    }

    /// Where each image is from.
    #[getter]
    fn names(&self) -> Vec<String> {
        (0..self.0.rows()).map(|row| self.0.name(row)).collect()
    }
}

/// A frozen network: its file, layers, mean and deviation of the channels, whether these are blue, green, red, and whether a model
/// file contains it.
type BackboneGiven = (PathBuf, Vec<String>, Option<Vec<f32>>, Option<Vec<f32>>, Option<bool>, bool);

/// Trains on a table or on images. Returns the model and notices about the data.
#[pyfunction]
#[pyo3(signature = (data, settings_, threads=None, progress=None, min_class_rows=1, backbone=None))]
pub(crate) fn fit(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    settings_: &Bound<'_, PyDict>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    min_class_rows: usize,
    backbone: Option<BackboneGiven>,
) -> PyResult<(Model, Vec<String>)> {
    let settings = settings(settings_, data.cast::<PyImages>().is_ok() && backbone.is_none())?;
    let network = match backbone {
        Some((path, layers, mean, std, bgr, embed)) => {
            let order = bgr.map(|bgr| if bgr { ChannelOrder::Bgr } else { ChannelOrder::Rgb });
            let network = py.detach(|| NetworkFile::read(path)).map_err(raise)?;
            Some((network, BackboneOptions { layers, mean, std, order, embed }))
        }
        None => None,
    };
    let progress = Progress::new(progress);
    let mut run = Run { callback: &progress, min_class_rows, ..Run::default() };
    run.threads = threads.unwrap_or(run.threads);
    let fitted = if let Ok(table) = data.cast::<Table>() {
        let table = &table.get().0;
        py.detach(|| match &network {
            Some((network, options)) => model::Model::fit_with_backbone(table, network, options, &settings, &run),
            None => model::Model::fit_with(table, &settings, &run),
        })
    } else {
        let images = &data.cast::<PyImages>()?.get().0;
        py.detach(|| match &network {
            Some((network, options)) => {
                model::Model::fit_images_with_backbone(images, network, options, &settings, &run)
            }
            None => model::Model::fit_images(images, &settings, &run),
        })
    };
    drop(run);
    if let Some(stopped) = progress.into_error() {
        return Err(stopped);
    }
    let fitted = fitted.map_err(raise)?;
    Ok((Model(fitted.model), fitted.notices.iter().map(|notice| error::text(notice)).collect()))
}

impl Model {
    /// Predicts what is in `data`: a matrix, a table, a frame, or images.
    fn predictions(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        wanted: Wanted,
        threads: Option<usize>,
    ) -> PyResult<model::Predictions> {
        let threads = Threads::new(threads);
        let mut found = self.predict_with(py, data, wanted, threads.pool())?;
        if found.rows() == 0 && self.0.classifies() {
            found.classes = self.0.classes().len();
        }
        Ok(found)
    }

    /// The number of rows that are predicted at a time: fewer where there are many classes.
    fn rows_at_a_time(&self) -> usize {
        (4_000_000 / self.0.classes().len().max(1)).clamp(256, ROWS)
    }

    fn predict_with(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        wanted: Wanted,
        pool: &Pool,
    ) -> PyResult<model::Predictions> {
        if let Ok(table) = data.cast::<Table>() {
            let table = &table.get().0;
            let x = py.detach(|| self.0.schema().transform(table, None)).map_err(raise)?;
            return self.in_parts(py, &x, self.0.schema().width(), wanted, |x| {
                let mut out = model::Predictions::default();
                self.0.predict_rows(x, &mut out, pool).map(|()| out)
            });
        }
        if let Ok(images) = data.cast::<PyImages>() {
            let images = &images.get().0;
            return py.detach(|| self.0.predict_images(images)).map_err(raise);
        }
        if data.hasattr("__arrow_c_stream__")? {
            let mut reader = self.reader(data)?;
            let (mut all, mut batch) = (model::Predictions::default(), Batch::default());
            while py.detach(|| reader.next(self.rows_at_a_time(), &mut batch)).map_err(raise)? {
                let mut found = model::Predictions::default();
                py.detach(|| self.0.predict_rows(&batch.x, &mut found, pool)).map_err(raise)?;
                wanted.append(&mut all, found);
                py.check_signals()?;
            }
            return Ok(all);
        }
        let matrix = Matrix::of(data)?;
        with_values!(matrix.values()?, |x, columns| {
            let needed = self.0.schema().columns.len();
            if columns != needed {
                let message = format!("X has {columns} features, and the model was trained on {needed}");
                return Err(error::DataError::new_err(message));
            }
            self.in_parts(py, x, columns, wanted, |x| self.0.predict_matrix(x, pool))
        })
    }

    /// A reader of a data frame by the Arrow stream interface.
    fn reader(&self, frame: &Bound<'_, PyAny>) -> PyResult<Reader> {
        let options = ReadOptions { label: Label::None, ..ReadOptions::default() };
        self.0.schema().reader_from_record_batches(&record_batches(frame.py(), frame)?, &options).map_err(raise)
    }

    /// Predictions of what is in `data`, with the network's inputs; those of images are left out.
    pub(crate) fn predictions_and_inputs(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        threads: Option<usize>,
    ) -> PyResult<(model::Predictions, Vec<f32>)> {
        let threads = Threads::new(threads);
        let pool = threads.pool();
        if data.cast::<PyImages>().is_ok() {
            return Ok((self.predict_with(py, data, Wanted::NOTHING, pool)?, Vec::new()));
        }
        let (x, _) = self.inputs(py, data, pool)?;
        let found = self.in_parts(py, &x, self.0.graph().input, Wanted::NOTHING, |x| {
            let mut out = model::Predictions::default();
            self.0.predict_rows(x, &mut out, pool).map(|()| out)
        })?;
        Ok((found, x))
    }

    /// The network's inputs of what is in `data`, and the categories that training did not have.
    fn inputs(&self, py: Python<'_>, data: &Bound<'_, PyAny>, pool: &Pool) -> PyResult<(Vec<f32>, Vec<Unseen>)> {
        if let Ok(table) = data.cast::<Table>() {
            let table = &table.get().0;
            return py.detach(|| self.0.schema().transform_and_list(table, None)).map_err(raise);
        }
        if data.hasattr("__arrow_c_stream__")? {
            let mut reader = self.reader(data)?;
            let (mut x, mut unseen, mut batch) = (Vec::new(), Vec::new(), Batch::default());
            while py.detach(|| reader.next(ROWS, &mut batch)).map_err(raise)? {
                let before = x.len() / self.0.schema().width();
                unseen.extend(batch.unseen_cells.drain(..).map(|cell| Unseen { row: before + cell.row, ..cell }));
                x.append(&mut batch.x);
            }
            return Ok((x, unseen));
        }
        let matrix = Matrix::of(data)?;
        let x = with_values!(matrix.values()?, |x, _columns| py.detach(|| self.0.schema().encode_rows(x, pool)));
        Ok((x.map_err(raise)?, Vec::new()))
    }

    /// Predicts rows of `width` values part by part, and looks at signals in between.
    fn in_parts<T: Sync>(
        &self,
        py: Python<'_>,
        x: &[T],
        width: usize,
        wanted: Wanted,
        predict: impl Fn(&[T]) -> mcdd::Result<model::Predictions> + Sync + Send,
    ) -> PyResult<model::Predictions> {
        let mut all = model::Predictions::default();
        let rows = self.rows_at_a_time();
        for (part, x) in x.chunks(rows * width.max(1)).enumerate() {
            let found = py.detach(|| predict(x)).map_err(|e| raise(e.after_rows((part * rows) as u64)))?;
            wanted.append(&mut all, found);
            py.check_signals()?;
        }
        Ok(all)
    }
}

#[pymethods]
impl Model {
    /// Class, confidence and p-value of each row, and if wanted probabilities and distances, as arrays.
    #[pyo3(signature = (data, threads=None, probabilities=false, distances=false))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        threads: Option<usize>,
        probabilities: bool,
        distances: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        arrays(py, self.predictions(py, data, Wanted { probabilities, distances }, threads)?)
    }

    /// Which classes are plausible for each row, as a matrix: the true one is among them for a fraction of known rows.
    #[pyo3(signature = (data, coverage, threads=None))]
    fn plausible<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        coverage: f64,
        threads: Option<usize>,
    ) -> PyResult<(Bound<'py, PyDict>, Option<Bound<'py, PyAny>>)> {
        let wanted = Wanted { probabilities: true, ..Wanted::NOTHING };
        let found = self.predictions(py, data, wanted, threads)?;
        let shape = [found.rows(), found.classes];
        let sets = self.0.plausible_classes(&found, coverage).map_err(raise)?;
        let sets = sets.map(|sets| PyArray1::from_vec(py, sets).reshape(shape)).transpose()?;
        Ok((arrays(py, found)?, sets.map(Bound::into_any)))
    }

    /// For each row the columns that explain its confidence: tuples of the row, the column, its value, the expected value,
    /// the distance in standard deviations, the gain in confidence, and a note.
    #[pyo3(signature = (data, most, threads=None))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        most: usize,
        threads: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let threads = Threads::new(threads);
        let pool = threads.pool();
        let (x, unseen) = self.inputs(py, data, pool)?;
        let mut out = Vec::new();
        for (row, x) in x.chunks_exact(self.0.schema().width()).enumerate() {
            let of_row = Unseen::of_row(&unseen, row);
            let found = py.detach(|| self.0.explain(x, of_row, most, pool)).map_err(raise)?;
            for c in found.columns {
                out.push((row, c.column, c.value, c.expected, c.deviations, c.gain, c.note).into_pyobject(py)?);
            }
            py.check_signals()?;
        }
        Ok(out)
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

    /// A model with the same networks and another detector, threshold or calibration by class. `data` is what it was trained on.
    #[pyo3(signature = (data, detector=None, tpr=None, per_class=None, threads=None))]
    fn refit(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        detector: Option<&str>,
        tpr: Option<f64>,
        per_class: Option<bool>,
        threads: Option<usize>,
    ) -> PyResult<Model> {
        let detector = detector.map(Detect::parse).transpose().map_err(raise)?;
        let changes = Refit { detector, tpr, per_class };
        let threads = Threads::new(threads);
        let pool = threads.pool();
        let refitted = if let Ok(table) = data.cast::<Table>() {
            let table = &table.get().0;
            py.detach(|| self.0.refit_with(table, &changes, pool))
        } else {
            let images = &data.cast::<PyImages>()?.get().0;
            py.detach(|| self.0.refit_images(images, &changes, pool))
        };
        refitted.map(Model).map_err(raise)
    }

    /// A copy whose threshold and p-values come from other known rows.
    #[pyo3(signature = (data, threads=None))]
    fn calibrate(&self, py: Python<'_>, data: &Bound<'_, PyAny>, threads: Option<usize>) -> PyResult<Model> {
        let threads = Threads::new(threads);
        let pool = threads.pool();
        let mut copy = py.detach(|| model::Model::from_bytes(&self.0.to_bytes()?)).map_err(raise)?;
        let calibrated = if let Ok(table) = data.cast::<Table>() {
            let table = &table.get().0;
            py.detach(|| copy.calibrate(table, pool))
        } else {
            let images = &data.cast::<PyImages>()?.get().0;
            py.detach(|| copy.calibrate_images(images, pool))
        };
        calibrated.map(|()| Model(copy)).map_err(raise)
    }

    /// The bytes of the model file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &py.detach(|| self.0.to_bytes()).map_err(raise)?))
    }

    /// The model in the bytes of a file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Model> {
        py.detach(|| model::Model::from_bytes(bytes)).map(Model).map_err(raise)
    }

    /// Writes the model file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save(path)).map_err(raise)
    }

    /// The bytes of an ONNX file, which is written to `path` if it is given. The threshold is that for `tpr`, fixed or the default
    /// of an input.
    fn to_onnx<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathBuf>,
        core: bool,
        tpr: f64,
        fixed: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let options = model::OnnxOptions { core, tpr: Some(tpr), fixed };
        let bytes = py.detach(|| -> mcdd::Result<Vec<u8>> {
            let bytes = self.0.to_onnx(&options)?;
            if let Some(path) = &path {
                write_beside(path, |file| file.write_all(&bytes).map_err(|e| mcdd::Error::io(e, path)))?;
            }
            Ok(bytes)
        });
        Ok(PyBytes::new(py, &bytes.map_err(raise)?))
    }

    /// Reads a model file.
    #[staticmethod]
    #[pyo3(signature = (path, backbone=None))]
    fn load(py: Python<'_>, path: PathBuf, backbone: Option<PathBuf>) -> PyResult<Model> {
        py.detach(|| model::Model::load_with(path, backbone.as_deref())).map(Model).map_err(raise)
    }

    /// The name and the layers of the backbone; None without one.
    #[getter]
    fn backbone(&self) -> Option<(String, Vec<String>)> {
        self.0.backbone().map(|spec| (spec.name.clone(), spec.layers.clone()))
    }

    /// The class names.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.0.classes().to_vec()
    }

    /// The names of the columns that it was trained on.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.schema().columns.iter().map(|column| column.name.clone()).collect()
    }

    /// Whether all columns that it uses are plain numbers.
    #[getter]
    fn numeric(&self) -> bool {
        let plain = |c: &SchemaColumn| c.form.is_none() && !matches!(c.kind, ColumnKind::Categorical { .. });
        self.0.schema().columns.iter().all(plain)
    }

    /// For each column of dates and times whether its cells have a time zone.
    #[getter]
    fn time_zones(&self) -> Vec<(String, bool)> {
        let zone = |column: &SchemaColumn| match &column.form {
            Some(Form::Time(form)) => Some((column.name.clone(), form.zone)),
            _ => None,
        };
        self.0.schema().columns.iter().filter_map(zone).collect()
    }

    /// Whether columns are matched by name.
    #[getter]
    fn named(&self) -> bool {
        self.0.schema().named
    }

    /// Height, width and channels of the images that it reads; None for tables.
    #[getter]
    fn image_shape(&self) -> Option<(usize, usize, usize)> {
        self.0.schema().image.as_ref().map(|spec| (spec.height, spec.width, spec.channels))
    }

    /// Whether it predicts classes.
    #[getter]
    fn classifies(&self) -> bool {
        self.0.classifies()
    }

    /// Whether it has distances to the classes.
    #[getter]
    fn has_distances(&self) -> bool {
        self.0.has_distances()
    }

    /// Warnings about the model.
    #[getter]
    fn findings(&self) -> Vec<String> {
        self.0.findings().iter().map(|finding| error::text(finding)).collect()
    }

    /// The number of rows that it was trained on.
    #[getter]
    fn training_rows(&self) -> usize {
        self.0.training_rows()
    }

    /// The confidences of the calibration rows, in ascending order.
    #[getter]
    fn calibration_scores<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, self.0.calibration().scores())
    }

    /// The accuracy on the calibration rows; None if it does not classify.
    #[getter]
    fn validation_accuracy(&self) -> Option<f64> {
        self.0.validation_accuracy()
    }

    /// The settings as JSON.
    #[getter]
    fn settings(&self) -> PyResult<String> {
        serde_json::to_string(self.0.settings()).map_err(|e| PyTypeError::new_err(e.to_string()))
    }

    /// The version of mcdd that trained it.
    #[getter]
    fn version(&self) -> &str {
        self.0.version()
    }
}
