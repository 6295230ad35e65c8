//! The suffix index of a corpus on disk: open it, find matches, draft from them.
//!
//! In: the last tokens of a text. Out: draft trees. All suffixes of the corpus lie sorted, so the
//! occurrences of anything are one range, found by bisection. No match and no continuation
//! crosses a document boundary. Knows no Python.

use std::path::Path;

use memmap2::Mmap;

use crate::continuations::{self, Sharing, Tree};
use crate::error::{Error, Result};
use crate::format::{self, Width};
use crate::levels::{self, Level, MATCH, MAX_LEVELS, Text};
use crate::tokens::{Ends, Tokens, map};

/// How to draft from matches.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub rule: Rule,
    pub min_match: usize,
    pub max_match: usize,
    /// How many suffix lengths speak at most (blend).
    pub levels: usize,
    /// How many matches of one suffix length are read at most.
    pub samples: usize,
    /// Weight of the escape in units of `MATCH` (blend).
    pub escape: u64,
    pub max_nodes: usize,
    pub max_depth: u32,
}

/// How to draft from given positions.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub skip: u32,
    /// Weight of the escape in units of `MATCH`; 0: plain shares.
    pub escape: u64,
    pub max_nodes: usize,
    pub max_depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Several suffix lengths, escape weights, matches sampled evenly.
    Blend,
    /// The longest suffix that matches, its first matches in suffix-array order, plain counts.
    Rest,
}

/// An opened suffix file with its token file. Immutable: threads may share it.
pub struct Index {
    tokens: Tokens,
    file: Mmap,
    positions_at: usize,
    n: usize,
    documents: u64,
    vocab_size: u64,
    ends: Ends,
}

impl Index {
    /// Open and check both files.
    pub fn open(tokens_path: &Path, width: Width, path: &Path, vocab_size: u64) -> Result<Index> {
        let tokens = Tokens::open(tokens_path, width)?;
        let file = map(path)?;
        let sections = format::validate(path, &file, tokens_path, &tokens.bytes)?;
        let header = sections.header;
        for (what, seen, expected) in [
            ("bytes per token", header.width.bytes() as u64, width.bytes() as u64),
            ("a vocabulary of", header.vocab_size, vocab_size),
        ] {
            if seen != expected {
                return Err(Error::format(path, format!("{what} {seen}, expected {expected}")));
            }
        }
        Ok(Index {
            n: tokens.len(),
            ends: Ends::of(&sections.bounds, tokens.len()),
            positions_at: sections.positions_at,
            documents: header.documents,
            vocab_size,
            tokens,
            file,
        })
    }

    pub fn len(&self) -> usize {
        self.n
    }

    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    pub fn documents(&self) -> u64 {
        self.documents
    }

    pub fn vocab_size(&self) -> u64 {
        self.vocab_size
    }

    /// A tree of what followed the end of `context` here.
    pub fn draft(&self, context: &[u32], search: &Search) -> Tree {
        let keep = context.len().min(search.max_match);
        let context = &context[context.len() - keep..];
        let (levels, sharing) = match search.rule {
            Rule::Rest => {
                let level = self.first_matches(context, search);
                let total = level.weights.last().copied().unwrap_or(0);
                (vec![level], Sharing::Counts(total))
            }
            Rule::Blend => (self.several_lengths(context, search), Sharing::Escape(search.escape)),
        };
        continuations::grow(self, &levels, sharing, search.max_nodes, search.max_depth)
    }

    /// A tree of the continuations that start at `positions`, each with its weight (1 = a match).
    ///
    /// `skip` tokens are passed over first, within the document of the position. Without escape a
    /// node's probability is its share of its parent's weight.
    pub fn tree(&self, positions: &[i64], weights: &[f32], reading: &Reading) -> Tree {
        let mut valid = Vec::with_capacity(positions.len());
        let mut total = 0;
        for (&position, &weight) in positions.iter().zip(weights) {
            let weight = in_matches(f64::from(weight));
            total += weight;
            if let Some(start) = self.skipped(position, reading.skip) {
                valid.push((start, weight));
            }
        }
        let depth = reading.max_depth;
        valid.sort_by(|a, b| levels::compare(self, a.0, b.0, depth).then(a.cmp(b)));
        let mut level = Level::even(0, 1.0, valid.iter().map(|pair| pair.0).collect());
        level.weights = std::iter::once(0)
            .chain(valid.iter().scan(0, |sum, pair| {
                *sum += pair.1;
                Some(*sum)
            }))
            .collect();
        let sharing = match reading.escape {
            0 => Sharing::Counts(total),
            factor => Sharing::Escape(factor),
        };
        continuations::grow(self, &[level], sharing, reading.max_nodes, depth)
    }

    fn skipped(&self, position: i64, skip: u32) -> Option<u32> {
        let first = u32::try_from(position).ok()?;
        let start = first.checked_add(skip)?;
        let inside = (first..start).all(|at| !self.ends.has(at as usize));
        (inside && (start as usize) < self.n).then_some(start)
    }

    /// REST's selection: the longest suffix, its first matches.
    fn first_matches(&self, context: &[u32], search: &Search) -> Level {
        let Some((len, from)) = self.longest(context, search.min_match) else {
            return Level::even(0, 1.0, Vec::new());
        };
        let to = self.end_of_range(&context[context.len() - len..], from);
        let take = (to - from).min(search.samples);
        self.level(len, 1.0, (from..from + take).map(|i| self.position(i)))
    }

    /// The longest suffix and the next shorter ones that occur more often, evenly sampled.
    fn several_lengths(&self, context: &[u32], search: &Search) -> Vec<Level> {
        let mut levels = Vec::new();
        let Some((longest, _)) = self.longest(context, search.min_match) else {
            return levels;
        };
        let mut seen = 0;
        for len in (search.min_match..=longest).rev() {
            let suffix = &context[context.len() - len..];
            let from = self.start_of_range(suffix);
            let size = self.end_of_range(suffix, from) - from;
            if size == seen {
                continue;
            }
            seen = size;
            let take = size.min(search.samples);
            let sampled = (0..take).map(|i| self.position(from + i * size / take));
            levels.push(self.level(len, size as f64 / take as f64, sampled));
            if levels.len() == search.levels.min(MAX_LEVELS) {
                break;
            }
        }
        levels
    }

    fn level(&self, len: usize, scale: f64, positions: impl Iterator<Item = u32>) -> Level {
        let ahead = levels::narrow(len);
        Level::even(len, scale, positions.map(|at| at.saturating_add(ahead)).collect())
    }

    /// Length of the longest suffix of `context` that occurs, and where its range starts.
    fn longest(&self, context: &[u32], min_match: usize) -> Option<(usize, usize)> {
        // If a suffix occurs then so does every shorter one: bisect the length.
        let (mut best, mut low, mut high) = (None, min_match.max(1), context.len());
        while low <= high {
            let len = low + (high - low) / 2;
            let suffix = &context[context.len() - len..];
            let from = self.start_of_range(suffix);
            if from < self.n && self.compare(self.position(from), suffix).is_eq() {
                best = Some((len, from));
                low = len + 1;
            } else {
                high = len - 1;
            }
        }
        best
    }

    /// The first suffix that is not smaller than `pattern`.
    fn start_of_range(&self, pattern: &[u32]) -> usize {
        self.partition_point(0, |at| self.compare(at, pattern).is_lt())
    }

    /// The first suffix after `from` that does not start with `pattern`.
    fn end_of_range(&self, pattern: &[u32], from: usize) -> usize {
        self.partition_point(from, |at| self.compare(at, pattern).is_eq())
    }

    fn partition_point(&self, from: usize, goes_on: impl Fn(u32) -> bool) -> usize {
        let (mut low, mut high) = (from, self.n);
        while low < high {
            let middle = low + (high - low) / 2;
            if goes_on(self.position(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The suffix at `at` against the pattern: equal where it starts with it and then goes on.
    /// An occurrence that nothing follows is smaller, so ranges hold only matches of use.
    #[inline]
    fn compare(&self, at: u32, pattern: &[u32]) -> std::cmp::Ordering {
        for (token, depth) in pattern.iter().zip(0..) {
            match self.follow(at, depth) {
                None => return std::cmp::Ordering::Less,
                Some(seen) if seen != *token => return seen.cmp(token),
                Some(_) => {}
            }
        }
        match self.follow(at, levels::narrow(pattern.len())) {
            None => std::cmp::Ordering::Less,
            Some(_) => std::cmp::Ordering::Equal,
        }
    }

    /// The `i`-th suffix position; past the text where the file holds nonsense.
    #[inline]
    fn position(&self, i: usize) -> u32 {
        let at = self.positions_at + i * format::POSITION_BYTES;
        let four = self.file.get(at..).and_then(|tail| tail.first_chunk::<4>());
        four.map_or(u32::MAX, |four| u32::from_le_bytes(*four))
    }
}

/// A weight in units of `MATCH` (no number: none). Of 2^20 matches or more it is 2^20.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded and not negative
pub fn in_matches(weight: f64) -> u64 {
    (weight.clamp(0.0, MOST_MATCHES) * MATCH as f64) as u64
}

const MOST_MATCHES: f64 = 1_048_576.0;

impl Text for Index {
    #[inline]
    fn follow(&self, start: u32, depth: u32) -> Option<u32> {
        let at = start as usize + depth as usize;
        if depth > 0 && self.ends.has(at - 1) {
            return None;
        }
        self.tokens.get(at)
    }
}
