//! Suffix index over token ids: what text like this was followed by.
//!
//! Read in this order:
//! - [`index`]: a corpus on disk: its suffixes sorted once, so that every occurrence of the last
//!   tokens of a text is one range, found by bisection;
//! - [`continuations`]: what follows those occurrences, counted and grown into a small tree;
//! - [`live`]: the same for a text that grows while it is written;
//! - [`format`]: every byte of the suffix file and how it is checked;
//! - [`legacy`]: the index files of REST's `draftretriever`;
//! - `py`: the only file that knows Python (feature `python`).

pub mod continuations;
pub mod error;
pub mod format;
pub mod index;
pub mod live;
#[cfg(feature = "python")]
mod py;
