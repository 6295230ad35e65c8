//! Faults as Python exceptions: OSError for files, `specret.types.SpecretError` for the rest.

use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::prelude::*;

use crate::error::Error;
use crate::index::in_matches;

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        let hint = match &error {
            Error::Io { path, source } => {
                let errno = source.raw_os_error().unwrap_or(0);
                return PyOSError::new_err((errno, source.to_string(), path.clone()));
            }
            Error::Format { .. } => "build the index again: specret build-index",
            Error::Argument(_) => "",
            Error::Cancelled => return PyKeyboardInterrupt::new_err(()),
        };
        user_error(&error.to_string(), hint)
    }
}

/// `specret.types.SpecretError(message, hint)`.
pub fn user_error(message: &str, hint: &str) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("specret.types")
            .and_then(|types| types.getattr("SpecretError"))
            .and_then(|kind| kind.call1((message, hint)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

pub fn check_lengths(min_match: usize, max_match: usize) -> PyResult<()> {
    if min_match == 0 || min_match > max_match {
        let fault =
            format!("min_match {min_match}, max_match {max_match}, expected 1 <= min <= max");
        return Err(user_error(&fault, ""));
    }
    Ok(())
}

pub fn at_least_one(name: &str, value: usize) -> PyResult<()> {
    match value {
        0 => Err(user_error(&format!("{name} is 0, expected at least 1"), "")),
        _ => Ok(()),
    }
}

/// The weight of the escape in the index's own units.
pub fn escape_units(escape: f64) -> PyResult<u64> {
    if (0.0..=1000.0).contains(&escape) {
        return Ok(in_matches(escape));
    }
    Err(user_error(&format!("escape {escape}, expected 0 to 1000"), ""))
}
