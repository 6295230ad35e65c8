//! Long work: in a thread of its own, so that an interrupt is heard.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::format::Width;
use crate::{build, legacy};

/// Build the suffix file of a token file. An interrupt returns at once; what was begun is dropped.
#[pyfunction]
pub fn build_suffix(
    py: Python<'_>,
    tokens_path: PathBuf,
    token_width: u64,
    offsets: PyReadonlyArray1<'_, u64>,
    vocab_size: u64,
    out_path: PathBuf,
) -> PyResult<()> {
    let width = Width::of(token_width)?;
    let bounds = offsets.as_array().to_vec();
    interruptible(py, move |cancel| {
        let plan = build::Plan {
            tokens_path: &tokens_path,
            width,
            bounds: &bounds,
            vocab_size,
            out_path: &out_path,
        };
        build::build(&plan, cancel)
    })
}

/// The bytes of one chunk of an index file of REST's `draftretriever`.
#[pyfunction]
pub fn legacy_chunk<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, u32>,
    token_width: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let (ids, width) = (ids.as_array().to_vec(), Width::of(token_width)?);
    let bytes = interruptible(py, move |_| legacy::chunk_bytes(&ids, width))?;
    Ok(PyBytes::new(py, &bytes))
}

/// Run `job` in a thread of its own and watch for signals meanwhile.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    job: impl FnOnce(&AtomicBool) -> crate::error::Result<T> + Send + 'static,
) -> PyResult<T> {
    let cancel = Arc::new(AtomicBool::new(false));
    let (seen, (done, mut result)) = (Arc::clone(&cancel), channel());
    std::thread::spawn(move || {
        // Nobody listens any more after an interrupt, and then the result is not wanted.
        done.send(job(&seen)).ok();
    });
    loop {
        let news;
        (result, news) = py.detach(move || {
            let news = result.recv_timeout(Duration::from_millis(50));
            (result, news)
        });
        match news {
            Ok(outcome) => return Ok(outcome?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the build's thread died"));
            }
        }
        if let Err(signal) = py.check_signals() {
            cancel.store(true, Ordering::Relaxed);
            return Err(signal);
        }
    }
}
