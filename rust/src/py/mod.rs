//! The Python face: numpy in, numpy out, the interpreter released while work is done.
//!
//! Arguments are checked here. The only folder that knows Python.

mod errors;
mod indexes;
mod jobs;
mod values;

use pyo3::prelude::*;

#[pymodule]
fn _suffix(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<indexes::SuffixIndex>()?;
    module.add_class::<indexes::LiveIndex>()?;
    module.add_class::<values::TreeArrays>()?;
    module.add_class::<indexes::LegacyIndex>()?;
    module.add_function(wrap_pyfunction!(jobs::legacy_chunk, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::build_suffix, module)?)
}
