//! Tables from arrays and data frames.

use std::ffi::CString;
use std::fmt::Display;

use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::DataType;
use mcdd::data::{self, Label, Labels, ReadOptions};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

use crate::error::{DataError, raise};

/// A matrix of single or double precision that is only read.
pub(crate) enum Matrix<'py> {
    Single(PyReadonlyArray2<'py, f32>),
    Double(PyReadonlyArray2<'py, f64>),
}

/// The values of a [`Matrix`] in row-major order, and its number of columns.
pub(crate) enum Values<'a> {
    Single(&'a [f32], usize),
    Double(&'a [f64], usize),
}

/// Calls `$body` with the values and the number of columns, whatever their precision.
macro_rules! with_values {
    ($values:expr, |$x:ident, $columns:ident| $body:expr) => {
        match $values {
            $crate::table::Values::Single($x, $columns) => $body,
            $crate::table::Values::Double($x, $columns) => $body,
        }
    };
}
pub(crate) use with_values;

impl<'py> Matrix<'py> {
    /// The matrix in an array.
    pub(crate) fn of(array: &Bound<'py, PyAny>) -> PyResult<Matrix<'py>> {
        if let Ok(array) = array.extract::<PyReadonlyArray2<f32>>() {
            return Ok(Matrix::Single(array));
        }
        match array.extract::<PyReadonlyArray2<f64>>() {
            Ok(array) => Ok(Matrix::Double(array)),
            Err(_) => Err(PyTypeError::new_err("expected a two-dimensional array of float32 or float64")),
        }
    }

    pub(crate) fn values(&self) -> PyResult<Values<'_>> {
        let contiguous = |_| PyValueError::new_err("the array must be C-contiguous");
        use numpy::PyUntypedArrayMethods as _;
        Ok(match self {
            Matrix::Single(array) => Values::Single(array.as_slice().map_err(contiguous)?, array.shape()[1]),
            Matrix::Double(array) => Values::Double(array.as_slice().map_err(contiguous)?, array.shape()[1]),
        })
    }
}

/// A table in memory, made from an array or a data frame.
#[pyclass(frozen, module = "mcdd._mcdd")]
pub(crate) struct Table(pub(crate) data::Table);

#[pymethods]
impl Table {
    /// A table from a two-dimensional array; its columns have no names.
    #[staticmethod]
    #[pyo3(signature = (x, keep=Vec::new()))]
    fn from_matrix(py: Python<'_>, x: &Bound<'_, PyAny>, keep: Vec<String>) -> PyResult<Table> {
        let matrix = Matrix::of(x)?;
        let values = matrix.values()?;
        py.detach(|| {
            let table = with_values!(values, |x, columns| data::Table::from_rows(x, columns, None::<&[&str]>));
            table.and_then(|table| table.keep_columns(&keep))
        })
        .map(Table)
        .map_err(raise)
    }

    /// A table from columns, each a name, values and whether they are categories. Values are a one-dimensional array of
    /// float32, float64, int64, uint64 or bool, or a list of strings and None.
    #[staticmethod]
    #[pyo3(signature = (columns, named, keep=Vec::new()))]
    fn from_columns(columns: &Bound<'_, PyList>, named: bool, keep: Vec<String>) -> PyResult<Table> {
        let mut builder = data::Table::builder();
        for column in columns.iter() {
            let (name, values, categories): (String, Bound<'_, PyAny>, bool) = column.extract()?;
            builder = append(builder, name, &values, categories)?;
        }
        let mut table = builder.build().and_then(|table| table.keep_columns(&keep)).map_err(raise)?;
        table.named = named;
        Ok(Table(table))
    }

    /// A table from an object with the method `__arrow_c_stream__`: a frame of polars, pyarrow or pandas.
    #[staticmethod]
    #[pyo3(signature = (frame, named, categorical=Vec::new(), keep=Vec::new()))]
    fn from_arrow(
        py: Python<'_>,
        frame: &Bound<'_, PyAny>,
        named: bool,
        categorical: Vec<String>,
        keep: Vec<String>,
    ) -> PyResult<Table> {
        let batches = record_batches(py, frame)?;
        // Columns that are declared as categories are categories, whatever they hold.
        let mut categorical = categorical;
        let fields = batches[0].schema();
        let declared = fields.fields().iter().filter(|field| matches!(field.data_type(), DataType::Dictionary(..)));
        categorical.extend(declared.map(|field| field.name().clone()));
        let options = ReadOptions { label: Label::None, categorical, keep, ..ReadOptions::default() };
        let mut table = py.detach(|| data::Table::from_record_batches(&batches, &options)).map_err(raise)?;
        table.named = named;
        Ok(Table(table))
    }

    /// This table with labels: for each row the number of its class, and the names of the classes.
    fn with_labels(&self, codes: PyReadonlyArray1<'_, u32>, names: Vec<String>) -> PyResult<Table> {
        let codes = codes.as_slice()?.to_vec();
        if codes.len() != self.0.rows() || codes.iter().any(|&code| code as usize >= names.len()) {
            return Err(PyValueError::new_err(format!("{} labels for {} rows", codes.len(), self.0.rows())));
        }
        let mut table = self.0.clone();
        table.labels = Some(Labels { codes, names });
        Ok(Table(table))
    }

    /// This table with groups: rows with equal numbers stay together when rows are split.
    fn with_groups(&self, groups: PyReadonlyArray1<'_, u32>) -> PyResult<Table> {
        self.0.clone().with_groups(groups.as_slice()?.to_vec()).map(Table).map_err(raise)
    }

    /// The number of rows.
    fn __len__(&self) -> usize {
        self.0.rows()
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.names.clone()
    }
}

/// Appends a column of values.
fn append(
    builder: data::TableBuilder,
    name: String,
    values: &Bound<'_, PyAny>,
    categories: bool,
) -> PyResult<data::TableBuilder> {
    macro_rules! array {
        ($($type:ty),*) => {
            $(if let Ok(array) = values.extract::<PyReadonlyArray1<$type>>() {
                let values = array.as_array();
                let built = match categories {
                    true => builder.categorical(name, values.iter()),
                    false => builder.column(name, values.iter()),
                };
                return built.map_err(raise);
            })*
        };
    }
    array!(f64, f32, i64, u64, bool);
    let texts: Vec<Option<String>> = values.extract()?;
    match categories {
        true => builder.categorical(name, &texts),
        false => builder.column(name, &texts),
    }
    .map_err(raise)
}

/// The record batches of an Arrow stream.
pub(crate) fn record_batches(py: Python<'_>, frame: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let capsule = frame.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let name = CString::from(c"arrow_array_stream");
    let pointer = capsule.pointer_checked(Some(&name))?.as_ptr().cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds an ArrowArrayStream (the Arrow PyCapsule interface). It is moved out, and what stays
    // behind is marked as released, so that the capsule's destructor does nothing.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer) };
    let invalid = |e: &dyn Display| DataError::new_err(format!("the Arrow stream cannot be read: {e}"));
    let reader = ArrowArrayStreamReader::try_new(stream).map_err(|e| invalid(&e))?;
    let schema = reader.schema();
    // Whoever makes the batches may need the interpreter.
    let mut batches = py.detach(|| reader.collect::<Result<Vec<_>, _>>()).map_err(|e| invalid(&e))?;
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    Ok(batches)
}
