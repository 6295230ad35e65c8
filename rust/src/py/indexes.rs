//! The three indexes as Python classes.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use super::errors::{at_least_one, check_lengths, escape_units, user_error};
use super::values::{Ids, TreeArrays};
use crate::buffers::Buffers;
use crate::format::Width;
use crate::index::{self, Index, Rule};
use crate::legacy::{self, Legacy};
use crate::live;

/// Suffix index of a corpus, memory-mapped. Threads may share it.
#[pyclass(frozen, module = "specret._suffix")]
pub struct SuffixIndex(Index);

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
                        levels=4, samples=500, escape=8.0))]
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
        escape: f64,
    ) -> PyResult<TreeArrays> {
        let rule = match rule {
            "blend" => Rule::Blend,
            "rest" => Rule::Rest,
            _ => return Err(user_error(&format!("rule {rule:?}, expected blend or rest"), "")),
        };
        check_lengths(min_match, max_match)?;
        at_least_one("levels", levels)?;
        at_least_one("samples", samples)?;
        let escape = escape_units(escape)?;
        let search = index::Search {
            rule,
            min_match,
            max_match,
            levels,
            samples,
            escape,
            max_nodes,
            max_depth,
        };
        let context = context.tail(max_match, self.0.vocab_size());
        Ok(TreeArrays::of(py, py.detach(|| self.0.draft(&context, &search))))
    }

    #[pyo3(signature = (positions, weights, *, max_nodes, max_depth, skip=0, escape=0.0))]
    #[allow(clippy::too_many_arguments)] // keyword-only options of one Python call
    fn tree(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray1<'_, i64>,
        weights: PyReadonlyArray1<'_, f32>,
        max_nodes: usize,
        max_depth: u32,
        skip: u32,
        escape: f64,
    ) -> PyResult<TreeArrays> {
        let (positions, weights) = (positions.as_array().to_vec(), weights.as_array().to_vec());
        if positions.len() != weights.len() {
            let fault = format!("{} positions, {} weights", positions.len(), weights.len());
            return Err(user_error(&fault, ""));
        }
        if let Some(weight) = weights.iter().find(|w| !w.is_finite() || **w < 0.0) {
            return Err(user_error(&format!("weight {weight}, expected 0 or more"), ""));
        }
        let escape = escape_units(escape)?;
        let reading = index::Reading { skip, escape, max_nodes, max_depth };
        let tree = || self.0.tree(&positions, &weights, &reading);
        Ok(TreeArrays::of(py, py.detach(tree)))
    }
}

/// Index of a text that grows. Threads may share it.
#[pyclass(frozen, module = "specret._suffix")]
pub struct LiveIndex {
    vocab_size: u64,
    text: RwLock<live::LiveIndex>,
}

impl LiveIndex {
    fn change<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut live::LiveIndex) -> R + Send,
    ) -> R {
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
                        latest=8, escape=1.0))]
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
        escape: f64,
    ) -> PyResult<TreeArrays> {
        check_lengths(min_match, max_match)?;
        at_least_one("levels", levels)?;
        at_least_one("latest", latest)?;
        let escape = escape_units(escape)?;
        let search =
            live::Search { min_match, max_match, levels, latest, escape, max_nodes, max_depth };
        let context = context.tail(max_match, self.vocab_size);
        Ok(TreeArrays::of(py, self.read(py, |text| text.draft(&context, &search))))
    }
}

type Rows = Vec<Vec<i64>>;
type FiveLists = (Rows, Rows, Vec<i64>, Vec<i64>, Rows);

/// An index file of REST's `draftretriever`. Threads may share it.
#[pyclass(frozen, module = "specret._suffix")]
pub struct LegacyIndex(Legacy);

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
    ) -> PyResult<FiveLists> {
        let query = query.all()?;
        let search = legacy::Search { matches, choices, long };
        let found = py.detach(|| Buffers::of(self.0.search(&query, &search)));
        let Buffers { rows, mask, tree_indices, position_ids, retrieve_indices } = found;
        Ok((rows, mask, tree_indices, position_ids, retrieve_indices))
    }
}
