//! Metrics of detection.

use mcdd::metrics;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::error::raise;

/// A metric: its key, name and positive class, its value, and the ends of its confidence interval if there is one.
type Row = (&'static str, &'static str, String, f64, Option<f64>, Option<f64>);

/// All metrics of known and unknown scores; `replicates` bootstrap replicates for intervals, 0 for none.
#[pyfunction]
pub(crate) fn detection(
    py: Python<'_>,
    known: PyReadonlyArray1<'_, f64>,
    unknown: PyReadonlyArray1<'_, f64>,
    replicates: usize,
    seed: u64,
) -> PyResult<(Vec<Row>, f64)> {
    let (known, unknown) = (known.as_slice()?, unknown.as_slice()?);
    py.detach(|| {
        let found = metrics::detection(known, unknown)?;
        let intervals = match replicates {
            0 => None,
            n => Some(metrics::bootstrap(known, unknown, n, seed, 0)?),
        };
        let ends = |i: usize| intervals.as_ref().map(|all| all.rows()[i]);
        let rows = found.rows().into_iter().enumerate().map(|(i, row)| {
            let interval = ends(i);
            let (low, high) = (interval.map(|i| i.low), interval.map(|i| i.high));
            (row.key, row.name, row.positive.to_string(), row.value, low, high)
        });
        Ok((rows.collect(), found.tie_fraction))
    })
    .map_err(raise)
}
