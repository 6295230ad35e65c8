//! Suffix index over token ids: what text like this was followed by.
//!
//! Read in this order:
//! - [`index`]: a corpus on disk, its suffixes sorted, so that every occurrence of the last tokens
//!   of a text is one range;
//! - [`levels`]: those occurrences by suffix length, and how what follows them is read;
//! - [`continuations`]: what follows them, counted and grown into a small tree;
//! - [`live`]: the same for a text that grows while it is written;
//! - [`build`]: how the suffix file is made; [`format`]: its every byte and how it is checked;
//! - [`legacy`]: the index files of REST's `draftretriever` and its rule; [`buffers`]: the form of
//!   its answers;
//! - `py`: the only part that knows Python (feature `python`).

pub mod buffers;
pub mod build;
pub mod continuations;
pub mod error;
pub mod format;
pub mod index;
pub mod legacy;
pub mod levels;
pub mod live;
#[cfg(feature = "python")]
mod py;
pub mod tokens;
