//! Errors and notices in Python's terms.

use std::io;

use mcdd::error::{Error, Kind, plain_lines, rename_settings};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    mcdd,
    McddError,
    PyValueError,
    "An error of mcdd. `file`, `row` (from 1), `column` and `hint` tell where and what to do; each may be None."
);
pyo3::create_exception!(mcdd, DataError, McddError, "The data cannot be used.");
pyo3::create_exception!(mcdd, SettingError, McddError, "A setting is out of range, or does not fit the others.");
pyo3::create_exception!(mcdd, FormatError, McddError, "A file is damaged, or not an mcdd model file.");
pyo3::create_exception!(mcdd, DivergedError, McddError, "Training produced numbers that are not finite.");

/// `lr=` for `lr`, `method="softmax"` for `method=softmax`; names that differ in Python are translated.
fn rename(setting: &str) -> Option<String> {
    let (name, value) = setting.split_once('=').map_or((setting, None), |(name, value)| (name, Some(value)));
    let name = match name {
        "seed" => "random_state",
        "label" => return Some("y".into()),
        "group" => return Some("groups".into()),
        "drop" => return Some("X.drop(columns=…)".into()),
        name => name,
    };
    Some(match value {
        Some(value) if value.parse::<f64>().is_ok() => format!("{name}={value}"),
        Some(value) => format!("{name}=\"{value}\""),
        None => format!("{name}="),
    })
}

/// A message of the library in Python's terms.
pub(crate) fn text(text: &str) -> String {
    let text =
        rename_settings(text, rename).replace("see the list of methods", "see mcdd.methods() and mcdd.detectors()");
    plain_lines(&text)
}

/// The exception for an error of the library.
pub(crate) fn raise(error: Error) -> PyErr {
    let hint = error.hint_text().map(text);
    let mut message = error.message_with(rename);
    if let Some(hint) = &hint {
        message = format!("{message} ({hint})");
    }
    let exception = match error.kind() {
        Kind::Io => {
            let code = std::error::Error::source(&error)
                .and_then(|source| source.downcast_ref::<io::Error>())
                .and_then(io::Error::raw_os_error);
            return match (code, error.file()) {
                // Python chooses the subclass by the code: FileNotFoundError, PermissionError, …
                (Some(code), Some(file)) => {
                    PyOSError::new_err((code, error.message().to_owned(), file.display().to_string()))
                }
                _ => PyOSError::new_err(message),
            };
        }
        Kind::Setting => SettingError::new_err(message),
        Kind::Format => FormatError::new_err(message),
        Kind::Diverged => DivergedError::new_err(message),
        _ => DataError::new_err(message),
    };
    Python::attach(|py| {
        let value = exception.value(py);
        let file = error.file().map(|file| file.display().to_string());
        // Setting attributes of a new exception does not fail.
        let _ = value.setattr("file", file);
        let _ = value.setattr("row", error.row());
        let _ = value.setattr("column", error.column());
        let _ = value.setattr("hint", hint);
    });
    exception
}
