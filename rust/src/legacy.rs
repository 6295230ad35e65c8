//! The index files of REST's `draftretriever`, and answers by its rule.
//!
//! A file is chunks back to back: u32 bytes of tokens, tokens (u16 on its branch `main`, i32 on
//! `llama3`), u32 bytes of suffix positions, i32 positions within the chunk. Nothing separates
//! entries, so matches and continuations cross them, as they do in REST. Knows no Python.

use std::collections::HashSet;
use std::path::Path;

use memmap2::Mmap;

use crate::buffers::nodes;
use crate::build::{alphabet, suffix_array};
use crate::continuations::{self, Sharing, Tree};
use crate::error::{Error, Result};
use crate::format::{self, Width};
use crate::levels::{self, Level, Text};
use crate::tokens::map;

/// One chunk: where its parts lie in the file.
struct Chunk {
    /// Tokens in the chunks before it.
    first: usize,
    tokens: usize,
    tokens_at: usize,
    positions_at: usize,
}

/// An opened file of either kind. Immutable: threads may share it.
pub struct Legacy {
    file: Mmap,
    width: Width,
    chunks: Vec<Chunk>,
}

/// What to read and how much of it may be kept; None is without limit.
pub struct Search {
    /// Matches read in each chunk, the first in suffix-array order.
    pub matches: Option<usize>,
    pub choices: Option<usize>,
    /// Tokens read after each match.
    pub long: u32,
}

impl Legacy {
    pub fn open(path: &Path) -> Result<Legacy> {
        let file = map(path)?;
        let (chunks, width) = chunks_of(&file).map_err(|fault| Error::format(path, fault))?;
        Ok(Legacy { file, width, chunks })
    }

    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |chunk| chunk.first + chunk.tokens)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn width(&self) -> Width {
        self.width
    }

    /// The paths that REST's rule selects after `query`, best first.
    pub fn search(&self, query: &[u32], search: &Search) -> Vec<Vec<i64>> {
        let mut starts: Vec<u32> = Vec::new();
        let mut chunks = 0;
        for chunk in &self.chunks {
            let before = starts.len();
            starts.extend(self.starts(chunk, query, search.matches));
            chunks += usize::from(starts.len() > before);
        }
        if chunks > 1 {
            levels::sort_by_text(self, &mut starts, search.long);
        }
        let level = Level::even(query.len(), 1.0, starts);
        let sharing = Sharing::Counts(level.weights.last().copied().unwrap_or(0));
        let most = search.choices.unwrap_or(usize::MAX);
        let tree = continuations::grow(self, &[level], sharing, most, search.long);
        cut(paths(&tree), most)
    }

    /// Where continuations of a chunk's first matches start.
    fn starts<'a>(
        &'a self,
        chunk: &'a Chunk,
        query: &'a [u32],
        most: Option<usize>,
    ) -> impl Iterator<Item = u32> + 'a {
        let bisect = |from: usize, goes_on: &dyn Fn(usize) -> bool| {
            let (mut low, mut high) = (from, chunk.tokens);
            while low < high {
                let middle = low + (high - low) / 2;
                if goes_on(middle) { low = middle + 1 } else { high = middle }
            }
            low
        };
        let from = bisect(0, &|i| self.compare(chunk, i, query).is_lt());
        let to = bisect(from, &|i| self.compare(chunk, i, query).is_eq());
        let take = (to - from).min(most.unwrap_or(usize::MAX));
        (from..from + take).filter_map(move |i| {
            let start = self.position(chunk, i)?.checked_add(query.len())?;
            let more = start < chunk.tokens;
            more.then(|| u32::try_from(chunk.first + start).ok()).flatten()
        })
    }

    /// The `i`-th suffix of a chunk, cut to the query's length, against the query.
    fn compare(&self, chunk: &Chunk, i: usize, query: &[u32]) -> std::cmp::Ordering {
        let start = self.position(chunk, i).unwrap_or(chunk.tokens);
        let suffix = (start..chunk.tokens).take(query.len());
        suffix.map(|at| self.token(chunk, at)).cmp(query.iter().copied())
    }

    fn position(&self, chunk: &Chunk, i: usize) -> Option<usize> {
        let at = format::u32_at(&self.file, chunk.positions_at + i * format::POSITION_BYTES);
        usize::try_from(at).ok().filter(|&at| at < chunk.tokens)
    }

    /// The token at `at` < `chunk.tokens`; the chunk was seen to lie within the file.
    fn token(&self, chunk: &Chunk, at: usize) -> u32 {
        let place = chunk.tokens_at + at * self.width.bytes();
        match self.width {
            Width::Two => u32::from(u16::from_le_bytes([self.file[place], self.file[place + 1]])),
            Width::Four => format::u32_at(&self.file, place),
        }
    }
}

impl Text for Legacy {
    fn follow(&self, start: u32, depth: u32) -> Option<u32> {
        let start = start as usize;
        let after = self.chunks.partition_point(|chunk| chunk.first <= start);
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        let at = start - chunk.first + depth as usize;
        (at < chunk.tokens).then(|| self.token(chunk, at))
    }
}

/// Check that chunks tile the file; the ratio of its parts tells how wide a token is.
fn chunks_of(file: &[u8]) -> std::result::Result<(Vec<Chunk>, Width), String> {
    let (mut chunks, mut width, mut at, mut first) = (Vec::new(), None, 0, 0);
    let part = |at: usize| -> std::result::Result<(usize, usize), String> {
        let inside = |from: usize, bytes: usize| file.len().checked_sub(from)?.checked_sub(bytes);
        let cut = || format!("{} bytes end inside a chunk that starts before {at}", file.len());
        inside(at, 4).ok_or_else(cut)?;
        let bytes = format::u32_at(file, at) as usize;
        inside(at + 4, bytes).ok_or_else(cut)?;
        Ok((at + 4, bytes))
    };
    while at < file.len() {
        let (tokens_at, token_bytes) = part(at)?;
        let (positions_at, position_bytes) = part(tokens_at + token_bytes)?;
        let seen = match (token_bytes, position_bytes) {
            (0, 0) => width,
            (t, p) if t % 2 == 0 && p == 2 * t => Some(Width::Two),
            (t, p) if t % 4 == 0 && p == t => Some(Width::Four),
            (t, p) => {
                return Err(format!(
                    "a chunk of {t} bytes of tokens and {p} of positions, expected 1:2 or 1:1"
                ));
            }
        };
        if width.is_some() && seen != width {
            return Err("chunks of two token widths".into());
        }
        width = seen;
        let tokens = position_bytes / format::POSITION_BYTES;
        chunks.push(Chunk { first, tokens, tokens_at, positions_at });
        first += tokens;
        at = positions_at + position_bytes;
    }
    if u32::try_from(first).is_err() {
        return Err(format!("{first} tokens, at most 2^32 - 1 are read"));
    }
    Ok((chunks, width.unwrap_or(Width::Two)))
}

/// One chunk as REST writes it.
pub fn chunk_bytes(ids: &[u32], width: Width) -> Result<Vec<u8>> {
    let letter = alphabet(|| ids.iter().copied());
    let mut text: Vec<i32> = ids.iter().map(|&id| letter(id)).collect();
    let positions = suffix_array(&mut text)?;
    drop(text);
    let mut out = Vec::with_capacity(8 + ids.len() * (width.bytes() + format::POSITION_BYTES));
    let size = |bytes: usize| {
        let four = u32::try_from(bytes).map(u32::to_le_bytes);
        four.map_err(|_| Error::Argument(format!("a chunk of {} tokens is too long", ids.len())))
    };
    out.extend(size(ids.len() * width.bytes())?);
    for &id in ids {
        match width {
            Width::Four => out.extend(id.to_le_bytes()),
            Width::Two => out.extend(narrow(id)?.to_le_bytes()),
        }
    }
    out.extend(size(ids.len() * format::POSITION_BYTES)?);
    out.extend(positions.iter().flat_map(|at| at.to_le_bytes()));
    Ok(out)
}

fn narrow(id: u32) -> Result<u16> {
    u16::try_from(id).map_err(|_| Error::Argument(format!("id {id} does not fit in 16 bits")))
}

fn paths(tree: &Tree) -> Vec<Vec<i64>> {
    let mut paths: Vec<Vec<i64>> = Vec::with_capacity(tree.tokens.len());
    for (&token, &parent) in tree.tokens.iter().zip(&tree.parents) {
        let above = usize::try_from(parent).map_or(Vec::new(), |parent| paths[parent].clone());
        paths.push([above, vec![token]].concat());
    }
    paths
}

/// REST's cut: each path is charged the number of different tokens in it, and the largest charges
/// go until their sum is within `choices`. Tokens that repeat make the charge too small, so go on
/// until the tree itself is. Of equal charges the last, the rarest, goes first.
fn cut(mut paths: Vec<Vec<i64>>, choices: usize) -> Vec<Vec<i64>> {
    let charge = |path: &Vec<i64>| path.iter().collect::<HashSet<_>>().len();
    let mut charges: Vec<usize> = paths.iter().map(charge).collect();
    let mut sum: usize = charges.iter().sum();
    while sum > choices || nodes(&paths).len() > choices {
        let Some((last, &largest)) = charges.iter().enumerate().max_by_key(|(_, charge)| **charge)
        else {
            break;
        };
        sum -= largest;
        charges.remove(last);
        paths.remove(last);
    }
    paths
}
