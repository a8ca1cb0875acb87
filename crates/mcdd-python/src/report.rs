//! The report on a model, as a page.

use mcdd::report::model::{About, Report, ReportData};
use pyo3::prelude::*;

use crate::error::raise;
use crate::model::{Model, PyImages, Threads};
use crate::table::Table;

/// The table or the images of an argument.
fn data<'a>(rows: &'a Bound<'_, PyAny>) -> PyResult<ReportData<'a>> {
    Ok(match rows.cast::<PyImages>() {
        Ok(images) => ReportData::Images(&images.get().0),
        Err(_) => ReportData::Table(&rows.cast::<Table>()?.get().0),
    })
}

/// The page and the figures (names and SVG) of the report on a model, on known and unknown rows or images.
#[pyfunction]
#[pyo3(signature = (model, known, unknown, title, threads=None))]
pub(crate) fn report(
    py: Python<'_>,
    model: &Bound<'_, Model>,
    known: &Bound<'_, PyAny>,
    unknown: Vec<(String, Bound<'_, PyAny>)>,
    title: String,
    threads: Option<usize>,
) -> PyResult<(String, Vec<(&'static str, String)>)> {
    let model = &model.get().0;
    let threads = Threads::new(threads);
    let about = About { title, data: "the data that were given".into(), ..About::default() };
    let known = data(known)?;
    let sets: Vec<(&str, ReportData)> =
        unknown.iter().map(|(name, rows)| Ok((name.as_str(), data(rows)?))).collect::<PyResult<_>>()?;
    py.detach(|| {
        let report = Report::of_data(model, known, &sets, about, model.settings().seed, threads.pool())?;
        let figures = report.figures()?.into_iter().map(|(name, figure)| (name, figure.svg())).collect();
        Ok((report.page()?, figures))
    })
    .map_err(raise)
}
