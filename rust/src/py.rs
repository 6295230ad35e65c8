//! The Python face: numpy in, numpy out, the interpreter released while work is done.
//!
//! Arguments are checked here; ids that no token can have end a context, for they never match.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::build;
use crate::continuations::Tree;
use crate::error::Error;
use crate::format::Width;
use crate::index::{self, Index, Rule};
use crate::legacy::{self, Buffers, Legacy};
use crate::live;

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
fn user_error(message: &str, hint: &str) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("specret.types")
            .and_then(|types| types.getattr("SpecretError"))
            .and_then(|kind| kind.call1((message, hint)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// A draft tree: N nodes, `parents[i] < i`, -1 is the root.
#[pyclass(frozen, module = "specret._suffix")]
struct TreeArrays {
    #[pyo3(get)]
    tokens: Py<PyArray1<i64>>,
    #[pyo3(get)]
    parents: Py<PyArray1<i32>>,
    #[pyo3(get)]
    prob: Py<PyArray1<f32>>,
    #[pyo3(get)]
    match_len: Py<PyArray1<f32>>,
    #[pyo3(get)]
    count: Py<PyArray1<f32>>,
    #[pyo3(get)]
    origin: Py<PyArray1<i64>>,
}

#[pymethods]
impl TreeArrays {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.tokens.bind(py).len()
    }
}

impl TreeArrays {
    fn of(py: Python<'_>, tree: Tree) -> TreeArrays {
        TreeArrays {
            tokens: PyArray1::from_vec(py, tree.tokens).unbind(),
            parents: PyArray1::from_vec(py, tree.parents).unbind(),
            prob: PyArray1::from_vec(py, tree.prob).unbind(),
            match_len: PyArray1::from_vec(py, tree.match_len).unbind(),
            count: PyArray1::from_vec(py, tree.count).unbind(),
            origin: PyArray1::from_vec(py, tree.origin).unbind(),
        }
    }
}

/// Token ids from Python: int64 (what specret uses everywhere) or uint32.
#[derive(FromPyObject)]
enum Ids<'py> {
    Wide(PyReadonlyArray1<'py, i64>),
    Narrow(PyReadonlyArray1<'py, u32>),
}

impl Ids<'_> {
    /// All of them.
    fn all(&self) -> PyResult<Vec<u32>> {
        match self {
            Ids::Narrow(ids) => Ok(ids.as_array().to_vec()),
            Ids::Wide(ids) => {
                let ids = ids.as_array();
                let checked = ids.iter().map(|&id| {
                    u32::try_from(id)
                        .map_err(|_| user_error(&format!("id {id}, expected 0 to 2^32 - 1"), ""))
                });
                checked.collect()
            }
        }
    }

    /// The last `most`, as far back as all are in the vocabulary.
    fn tail(&self, most: usize, vocab_size: u64) -> Vec<u32> {
        let known = |id: &Option<u32>| id.is_some_and(|id| u64::from(id) < vocab_size);
        let mut tail: Vec<u32> = match self {
            Ids::Narrow(ids) => {
                let ids = ids.as_array();
                ids.iter().rev().take(most).map(|&id| Some(id)).take_while(known).flatten().collect()
            }
            Ids::Wide(ids) => {
                let ids = ids.as_array();
                let ids = ids.iter().rev().take(most).map(|&id| u32::try_from(id).ok());
                ids.take_while(known).flatten().collect()
            }
        };
        tail.reverse();
        tail
    }
}

fn check_lengths(min_match: usize, max_match: usize) -> PyResult<()> {
    if min_match == 0 || min_match > max_match {
        let fault = format!("min_match {min_match}, max_match {max_match}, expected 1 <= min <= max");
        return Err(user_error(&fault, ""));
    }
    Ok(())
}

fn at_least_one(name: &str, value: usize) -> PyResult<()> {
    match value {
        0 => Err(user_error(&format!("{name} is 0, expected at least 1"), "")),
        _ => Ok(()),
    }
}

/// Suffix index of a corpus, memory-mapped. Threads may share it.
#[pyclass(frozen, module = "specret._suffix")]
struct SuffixIndex(Index);

#[pymethods]
impl SuffixIndex {
    #[staticmethod]
    fn open(
        py: Python<'_>,
        tokens_path: PathBuf,
        token_width: u64,
        suffix_path: PathBuf,
        vocab_size: u64,
    ) -> PyResult<SuffixIndex> {
        let width = Width::of(token_width)?;
        let index = py.detach(|| Index::open(&tokens_path, width, &suffix_path, vocab_size))?;
        Ok(SuffixIndex(index))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn documents(&self) -> u64 {
        self.0.documents()
    }

    #[getter]
    fn vocab_size(&self) -> u64 {
        self.0.vocab_size()
    }

    #[pyo3(signature = (context, *, max_nodes, max_depth, rule="blend", min_match=1, max_match=16,
                        levels=4, samples=500))]
    #[allow(clippy::too_many_arguments)] // keyword-only options of one Python call
    fn draft(
        &self,
        py: Python<'_>,
        context: Ids<'_>,
        max_nodes: usize,
        max_depth: u32,
        rule: &str,
        min_match: usize,
        max_match: usize,
        levels: usize,
        samples: usize,
    ) -> PyResult<TreeArrays> {
        let rule = match rule {
            "blend" => Rule::Blend,
            "rest" => Rule::Rest,
            _ => return Err(user_error(&format!("rule {rule:?}, expected blend or rest"), "")),
        };
        check_lengths(min_match, max_match)?;
        at_least_one("levels", levels)?;
        at_least_one("samples", samples)?;
        let search =
            index::Search { rule, min_match, max_match, levels, samples, max_nodes, max_depth };
        let context = context.tail(max_match, self.0.vocab_size());
        Ok(TreeArrays::of(py, py.detach(|| self.0.draft(&context, &search))))
    }

    #[pyo3(signature = (positions, weights, *, max_nodes, max_depth, skip=0))]
    fn tree(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray1<'_, i64>,
        weights: PyReadonlyArray1<'_, f32>,
        max_nodes: usize,
        max_depth: u32,
        skip: u32,
    ) -> PyResult<TreeArrays> {
        let (positions, weights) = (positions.as_array().to_vec(), weights.as_array().to_vec());
        if positions.len() != weights.len() {
            let fault = format!("{} positions, {} weights", positions.len(), weights.len());
            return Err(user_error(&fault, ""));
        }
        if let Some(weight) = weights.iter().find(|w| !w.is_finite() || **w < 0.0) {
            return Err(user_error(&format!("weight {weight}, expected 0 or more"), ""));
        }
        let tree = || self.0.tree(&positions, &weights, skip, max_nodes, max_depth);
        Ok(TreeArrays::of(py, py.detach(tree)))
    }
}

/// Index of a text that grows. Threads may share it.
#[pyclass(frozen, module = "specret._suffix")]
struct LiveIndex {
    vocab_size: u64,
    text: RwLock<live::LiveIndex>,
}

impl LiveIndex {
    fn change<R: Send>(&self, py: Python<'_>, f: impl FnOnce(&mut live::LiveIndex) -> R + Send) -> R {
        py.detach(|| f(&mut self.text.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn read<R: Send>(&self, py: Python<'_>, f: impl FnOnce(&live::LiveIndex) -> R + Send) -> R {
        py.detach(|| f(&self.text.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl LiveIndex {
    #[new]
    fn new(vocab_size: u64) -> LiveIndex {
        LiveIndex { vocab_size, text: RwLock::new(live::LiveIndex::new(vocab_size)) }
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.read(py, live::LiveIndex::len)
    }

    #[getter]
    fn vocab_size(&self) -> u64 {
        self.vocab_size
    }

    fn clear(&self, py: Python<'_>) {
        self.change(py, live::LiveIndex::clear);
    }

    fn new_document(&self, py: Python<'_>) {
        self.change(py, live::LiveIndex::new_document);
    }

    fn extend(&self, py: Python<'_>, tokens: Ids<'_>) -> PyResult<()> {
        let tokens = tokens.all()?;
        Ok(self.change(py, |text| text.extend(&tokens))?)
    }

    #[pyo3(signature = (context, *, max_nodes, max_depth, min_match=1, max_match=16, levels=16,
                        latest=3))]
    #[allow(clippy::too_many_arguments)] // keyword-only options of one Python call
    fn draft(
        &self,
        py: Python<'_>,
        context: Ids<'_>,
        max_nodes: usize,
        max_depth: u32,
        min_match: usize,
        max_match: usize,
        levels: usize,
        latest: usize,
    ) -> PyResult<TreeArrays> {
        check_lengths(min_match, max_match)?;
        at_least_one("levels", levels)?;
        at_least_one("latest", latest)?;
        let search = live::Search { min_match, max_match, levels, latest, max_nodes, max_depth };
        let context = context.tail(max_match, self.vocab_size);
        Ok(TreeArrays::of(py, self.read(py, |text| text.draft(&context, &search))))
    }
}

/// Build the suffix file of a token file. An interrupt returns at once; what was begun is dropped.
#[pyfunction]
fn build_suffix(
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

type Rows = Vec<Vec<i64>>;

/// An index file of REST's `draftretriever`. Threads may share it.
#[pyclass(frozen, module = "specret._suffix")]
struct LegacyIndex(Legacy);

#[pymethods]
impl LegacyIndex {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<LegacyIndex> {
        Ok(LegacyIndex(py.detach(|| Legacy::open(&path))?))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn token_width(&self) -> usize {
        self.0.width().bytes()
    }

    #[pyo3(signature = (query, *, matches, choices, long))]
    fn search(
        &self,
        py: Python<'_>,
        query: Ids<'_>,
        matches: Option<usize>,
        choices: Option<usize>,
        long: u32,
    ) -> PyResult<(Rows, Rows, Vec<i64>, Vec<i64>, Rows)> {
        let query = query.all()?;
        let search = legacy::Search { matches, choices, long };
        let found = py.detach(|| Buffers::of(self.0.search(&query, &search)));
        let Buffers { rows, mask, tree_indices, position_ids, retrieve_indices } = found;
        Ok((rows, mask, tree_indices, position_ids, retrieve_indices))
    }
}

/// The bytes of one chunk of an index file of REST's `draftretriever`.
#[pyfunction]
fn legacy_chunk<'py>(
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

#[pymodule]
fn _suffix(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SuffixIndex>()?;
    module.add_class::<LiveIndex>()?;
    module.add_class::<TreeArrays>()?;
    module.add_class::<LegacyIndex>()?;
    module.add_function(wrap_pyfunction!(legacy_chunk, module)?)?;
    module.add_function(wrap_pyfunction!(build_suffix, module)?)
}
