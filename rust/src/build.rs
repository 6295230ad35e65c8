//! Build the suffix file of a corpus, in time linear in its length.
//!
//! In: a file of token ids and the bounds of its documents. Out: a suffix file, whole or not there.
//! Knows no search and no Python.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use libsais::SuffixArrayConstruction;

use crate::error::{Error, Result};
use crate::format::{self, Width};
use crate::tokens::{Ends, Tokens};

/// libsais counts in 31 bits.
pub const MAX_TOKENS: usize = (1 << 31) - 2;

/// What to build, and where.
pub struct Plan<'a> {
    pub tokens_path: &'a Path,
    pub width: Width,
    pub bounds: &'a [u64],
    pub vocab_size: u64,
    pub out_path: &'a Path,
}

/// Build the suffix file of a token file, in time linear in its length.
///
/// Looks at `cancel` between its phases; leaves no file behind unless it succeeds.
pub fn build(plan: &Plan, cancel: &AtomicBool) -> Result<()> {
    let go_on = || match cancel.load(Ordering::Relaxed) {
        true => Err(Error::Cancelled),
        false => Ok(()),
    };
    let tokens = Tokens::open(plan.tokens_path, plan.width)?;
    check_input(plan, &tokens)?;
    let ends = Ends::of(plan.bounds, tokens.len());
    go_on()?;
    let mut text = separated(&tokens, &ends);
    go_on()?;
    let array = suffix_array(&mut text)?;
    drop(text);
    go_on()?;
    let positions = positions_in_file(&array, &ends, tokens.len());
    go_on()?;
    let parts = format::Parts {
        width: plan.width,
        vocab_size: plan.vocab_size,
        tokens: &tokens.bytes,
        bounds: plan.bounds,
        positions: &positions,
    };
    write_atomically(plan.out_path, |out| format::write(out, &parts))
}

fn check_input(plan: &Plan, tokens: &Tokens) -> Result<()> {
    let (n, path) = (tokens.len(), plan.tokens_path);
    if !tokens.bytes.len().is_multiple_of(plan.width.bytes()) {
        let (seen, width) = (tokens.bytes.len(), plan.width.bytes());
        return Err(Error::format(path, format!("{seen} bytes, not a multiple of {width}")));
    }
    format::check_bounds(plan.bounds, n as u64).map_err(Error::Argument)?;
    if n + plan.bounds.len() > MAX_TOKENS {
        return Err(Error::Argument(format!(
            "{n} tokens in {} documents, one suffix file holds at most {MAX_TOKENS}",
            plan.bounds.len() - 1
        )));
    }
    let outside = (0..n).filter_map(|i| tokens.get(i)).find(|&id| u64::from(id) >= plan.vocab_size);
    match outside {
        Some(id) => Err(Error::format(
            path,
            format!("id {id} is outside the vocabulary of {}", plan.vocab_size),
        )),
        None => Ok(()),
    }
}

/// The tokens as letters from 1 up, a 0 after each document.
fn separated(tokens: &Tokens, ends: &Ends) -> Vec<i32> {
    let ids = || (0..tokens.len()).filter_map(|i| tokens.get(i));
    let letter = alphabet(ids);
    let mut text = Vec::with_capacity(tokens.len() + tokens.len() / 64);
    for (i, id) in ids().enumerate() {
        text.push(letter(id));
        if ends.has(i) {
            text.push(0);
        }
    }
    text
}

/// Letters for ids, in their order: 1 + id, or 1 + rank where ids are too sparse for that.
pub fn alphabet<I: Iterator<Item = u32>>(ids: impl Fn() -> I) -> Box<dyn Fn(u32) -> i32> {
    const DENSE: u32 = 1 << 20;
    let letter = |place: usize| i32::try_from(place + 1).unwrap_or(i32::MAX);
    if ids().all(|id| id < DENSE) {
        return Box::new(move |id| letter(id as usize));
    }
    let mut known: Vec<u32> = ids().collect();
    known.sort_unstable();
    known.dedup();
    Box::new(move |id| letter(known.partition_point(|&other| other < id)))
}

/// Where the suffixes of a text start, in their order. libsais restores `text` when it is done.
pub fn suffix_array(text: &mut [i32]) -> Result<Vec<i32>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let array = SuffixArrayConstruction::for_text_mut(text).in_owned_buffer32().single_threaded();
    match array.run() {
        Ok(array) => Ok(array.into_vec()),
        Err(fault) => Err(Error::Argument(format!("suffix array: {fault:?}"))),
    }
}

/// The suffix array without the separators, as positions in the token file.
fn positions_in_file(array: &[i32], ends: &Ends, n: usize) -> Vec<u8> {
    const SEPARATOR: u32 = u32::MAX;
    let mut place = Vec::with_capacity(array.len());
    for (i, position) in (0..n).zip(0u32..) {
        place.push(position);
        if ends.has(i) {
            place.push(SEPARATOR);
        }
    }
    let places = array.iter().filter_map(|&at| place.get(usize::try_from(at).ok()?));
    let mut out = Vec::with_capacity(n * format::POSITION_BYTES);
    for place in places.filter(|&&place| place != SEPARATOR) {
        out.extend_from_slice(&place.to_le_bytes());
    }
    out
}

/// Write beside `path` and rename: the name never shows half a file. Surviving a power cut is
/// the caller's business.
fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    let partial = PathBuf::from(name);
    let finish = || {
        let mut out = BufWriter::new(File::create(&partial)?);
        write(&mut out)?;
        out.flush()?;
        std::fs::rename(&partial, path)
    };
    finish().map_err(|source| {
        // The first fault is the one to report; the leftover may not even exist.
        std::fs::remove_file(&partial).ok();
        Error::io(path)(source)
    })
}
