//! The report on a model, as a page.

use mcdd::report::model::{About, Report, TrainingData};
use pyo3::prelude::*;

use crate::error::raise;
use crate::model::{Model, PyImages, Threads};
use crate::table::Table;

/// The page and the figures (names and SVG) of the report on a model: on tables of known and unknown rows, or on its calibration
/// rows.
#[pyfunction]
#[pyo3(signature = (model, known, unknown, title, on_calibration_rows, threads=None))]
pub(crate) fn report(
    py: Python<'_>,
    model: &Bound<'_, Model>,
    known: &Bound<'_, PyAny>,
    unknown: Vec<(String, Py<Table>)>,
    title: String,
    on_calibration_rows: bool,
    threads: Option<usize>,
) -> PyResult<(String, Vec<(&'static str, String)>)> {
    let model = &model.get().0;
    let threads = Threads::new(threads);
    let pool = threads.pool();
    let about = About { title, data: "the rows that were given".into(), on_calibration_rows, ..About::default() };
    let contents = |report: mcdd::Result<Report>| {
        let report = report?;
        let figures = report.figures()?.into_iter().map(|(name, figure)| (name, figure.svg())).collect();
        Ok((report.page()?, figures))
    };
    let found = if let Ok(images) = known.cast::<PyImages>() {
        let images = &images.get().0;
        py.detach(|| contents(Report::of_calibration_rows(model, TrainingData::Images(images), about, pool)))
    } else {
        let known = &known.cast::<Table>()?.get().0;
        let unknown: Vec<(&str, &mcdd::data::Table)> =
            unknown.iter().map(|(name, table)| (name.as_str(), &table.get().0)).collect();
        py.detach(|| {
            contents(match on_calibration_rows {
                true => Report::of_calibration_rows(model, TrainingData::Table(known), about, pool),
                false => Report::of_tables(model, known, &unknown, about, model.settings().seed, pool),
            })
        })
    };
    found.map_err(raise)
}
