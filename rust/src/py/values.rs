//! Arrays across the border: token ids in, draft trees out.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::errors::user_error;
use crate::continuations::Tree;

/// A draft tree: N nodes, `parents[i] < i`, -1 is the root.
#[pyclass(frozen, module = "specret._suffix")]
pub struct TreeArrays {
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
    pub fn of(py: Python<'_>, tree: Tree) -> TreeArrays {
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
pub enum Ids<'py> {
    Wide(PyReadonlyArray1<'py, i64>),
    Narrow(PyReadonlyArray1<'py, u32>),
}

impl Ids<'_> {
    /// All of them.
    pub fn all(&self) -> PyResult<Vec<u32>> {
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
    pub fn tail(&self, most: usize, vocab_size: u64) -> Vec<u32> {
        let known = |id: &Option<u32>| id.is_some_and(|id| u64::from(id) < vocab_size);
        let mut tail: Vec<u32> = match self {
            Ids::Narrow(ids) => {
                let ids = ids.as_array();
                ids.iter()
                    .rev()
                    .take(most)
                    .map(|&id| Some(id))
                    .take_while(known)
                    .flatten()
                    .collect()
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
