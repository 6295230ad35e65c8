//! Everything that can go wrong, as one enum. Knows no Python.

use std::fmt;
use std::path::{Path, PathBuf};

/// A fault with what was seen and what was expected.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused a file.
    Io { path: PathBuf, source: std::io::Error },
    /// A file does not hold what its header or its use says.
    Format { path: PathBuf, fault: String },
    /// An argument is outside its range.
    Argument(String),
    /// The caller asked to stop.
    Cancelled,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { path, source }
    }

    pub fn format(path: &Path, fault: impl Into<String>) -> Error {
        Error::Format { path: path.to_path_buf(), fault: fault.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Format { path, fault } => write!(f, "{}: {fault}", path.display()),
            Error::Argument(fault) => f.write_str(fault),
            Error::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for Error {}
