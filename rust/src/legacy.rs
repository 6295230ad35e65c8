//! The index files of REST's `draftretriever`, and answers by its rule.
//!
//! A file is chunks back to back: u32 bytes of tokens, tokens (u16 on its branch `main`, i32 on
//! `llama3`), u32 bytes of suffix positions, i32 positions within the chunk. Nothing separates
//! entries, so matches and continuations cross them, as they do in REST. Knows no Python.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use memmap2::Mmap;

use crate::build::{alphabet, suffix_array};
use crate::continuations::{self, Level, Text, Tree};
use crate::error::{Error, Result};
use crate::format::{self, Width};
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
        let mut level = Level::default();
        let mut chunks = 0;
        for chunk in &self.chunks {
            let before = level.starts.len();
            level.starts.extend(self.starts(chunk, query, search.matches));
            chunks += usize::from(level.starts.len() > before);
        }
        if chunks > 1 {
            continuations::sort_by_text(self, &mut level.starts, search.long);
        }
        level.vote_evenly(1);
        let total = level.starts.len() as u64;
        let most = search.choices.unwrap_or(usize::MAX);
        let tree = continuations::grow(self, &[level], total, most, search.long);
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

/// All prefixes of the paths.
fn nodes(paths: &[Vec<i64>]) -> BTreeSet<&[i64]> {
    paths.iter().flat_map(|path| (1..=path.len()).map(|n| &path[..n])).collect()
}

/// REST's five buffers. With K the longest column of different tokens, a node at depth d (from 0)
/// whose token is the i-th of its column has slot 1 + K·d + i.
#[derive(Debug, Default, PartialEq)]
pub struct Buffers {
    /// The paths, padded with -2.
    pub rows: Vec<Vec<i64>>,
    /// (n+1, n+1): the root, a node itself and its ancestors are 1.
    pub mask: Vec<Vec<i64>>,
    /// (n+1,) slots; the root's is 0.
    pub tree_indices: Vec<i64>,
    /// (n+1,) depths.
    pub position_ids: Vec<i64>,
    /// Per leaf, last node first: 0 and the nodes down to it, padded with -1.
    pub retrieve_indices: Vec<Vec<i64>>,
}

impl Buffers {
    pub fn of(paths: Vec<Vec<i64>>) -> Buffers {
        let Some(deepest) = paths.iter().map(Vec::len).max() else {
            return Buffers::default();
        };
        let mut columns: Vec<Vec<i64>> = vec![Vec::new(); deepest];
        for path in &paths {
            for (column, token) in columns.iter_mut().zip(path) {
                if !column.contains(token) {
                    column.push(*token);
                }
            }
        }
        let widest = columns.iter().map(Vec::len).max().unwrap_or(0);
        // Nodes as paths of places within the columns: by length, then by those places.
        let place = |(column, token): (&Vec<i64>, &i64)| column.iter().position(|t| t == token);
        let mut order: Vec<Vec<usize>> = nodes(&paths)
            .iter()
            .map(|path| columns.iter().zip(path.iter()).filter_map(place).collect())
            .collect();
        order.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        Buffers {
            mask: mask(&order),
            tree_indices: slots(&order, widest),
            position_ids: std::iter::once(0).chain(order.iter().map(|n| n.len() as i64)).collect(),
            retrieve_indices: leaves(&order, deepest),
            rows: padded(paths, deepest, -2),
        }
    }
}

fn mask(order: &[Vec<usize>]) -> Vec<Vec<i64>> {
    let row = |node: &[usize]| {
        let above = order.iter().map(|other| i64::from(node.starts_with(other)));
        std::iter::once(1).chain(above).collect()
    };
    std::iter::once(row(&[])).chain(order.iter().map(|node| row(node))).collect()
}

fn slots(order: &[Vec<usize>], widest: usize) -> Vec<i64> {
    let slot = |node: &Vec<usize>| 1 + widest * (node.len() - 1) + node[node.len() - 1];
    std::iter::once(0).chain(order.iter().map(|node| slot(node) as i64)).collect()
}

fn leaves(order: &[Vec<usize>], deepest: usize) -> Vec<Vec<i64>> {
    let number = |node: &[usize]| {
        let found = order.iter().position(|other| other == node);
        found.map_or(0, |i| i as i64 + 1)
    };
    let leaf = |node: &&Vec<usize>| {
        let below = |other: &&Vec<usize>| other.len() > node.len() && other.starts_with(node);
        !order.iter().any(|other| below(&other))
    };
    let rows = order.iter().rev().filter(leaf).map(|node| {
        let down = (1..=node.len()).map(|n| number(&node[..n]));
        std::iter::once(0).chain(down).collect()
    });
    padded(rows.collect(), deepest + 1, -1)
}

fn padded(mut rows: Vec<Vec<i64>>, len: usize, pad: i64) -> Vec<Vec<i64>> {
    for row in &mut rows {
        row.resize(len, pad);
    }
    rows
}
