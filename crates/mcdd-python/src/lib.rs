//! The private module `mcdd._mcdd`: what the Python package calls.
//!
//! A thin door: it turns arrays and frames into the library's tables, makes one call without holding the interpreter, and
//! turns the answer and the errors into Python's terms. The classes that users see are in `python/mcdd/`.

mod bench;
mod error;
mod metrics;
mod model;
mod monitor;
mod progress;
mod report;
mod scorer;
mod settings;
mod table;

use pyo3::prelude::*;

/// The compiled part of mcdd.
#[pymodule(gil_used = false)]
mod _mcdd {
    #[pymodule_export]
    use super::bench::Bench;
    #[pymodule_export]
    use super::error::{DataError, DivergedError, FormatError, McddError, SettingError};
    #[pymodule_export]
    use super::metrics::detection;
    #[pymodule_export]
    use super::model::{Model, PyImages, fit};
    #[pymodule_export]
    use super::monitor::Monitor;
    #[pymodule_export]
    use super::report::report;
    #[pymodule_export]
    use super::scorer::{Scorer, detector_needs, detectors, methods};
    #[pymodule_export]
    use super::settings::needs_labels;
    #[pymodule_export]
    use super::table::Table;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
