//! The index of a text that grows: the prompt and what was written since.
//!
//! For every suffix length up to `LONGEST` it chains the places that follow equal n-grams, latest
//! first. Appending a token costs one hash insertion a length; a draft visits a bounded number
//! of places, however long the text. Knows no Python.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::continuations::{self, Sharing, Tree};
use crate::error::{Error, Result};
use crate::levels::{self, Level, MAX_LEVELS, Text};

/// The longest suffix that is looked up.
pub const LONGEST: usize = 16;
const NOWHERE: u32 = u32::MAX;

/// How to draft from the text so far.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub min_match: usize,
    pub max_match: usize,
    /// How many suffix lengths speak at most.
    pub levels: usize,
    /// How many matches of one suffix length are read, the latest ones.
    pub latest: usize,
    /// Weight of the escape in units of `MATCH`.
    pub escape: u64,
    pub max_nodes: usize,
    pub max_depth: u32,
}

/// The places after equal n-grams of one length. A place is the index of the token that follows.
#[derive(Default)]
struct Chain {
    /// Hash of an n-gram to the latest place after it.
    latest: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    /// For each token of the text, the place before the one right after it.
    before: Vec<u32>,
}

/// Growing text of one or more documents.
pub struct LiveIndex {
    vocab_size: u64,
    tokens: Vec<u32>,
    /// One bit per token: is it the last of a closed document?
    ends: Vec<u64>,
    document_start: usize,
    chains: Vec<Chain>,
}

impl LiveIndex {
    pub fn new(vocab_size: u64) -> LiveIndex {
        let chains = (0..LONGEST).map(|_| Chain::default()).collect();
        LiveIndex { vocab_size, tokens: Vec::new(), ends: Vec::new(), document_start: 0, chains }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Forget everything.
    pub fn clear(&mut self) {
        *self = LiveIndex::new(self.vocab_size);
    }

    /// What comes next belongs to another document.
    pub fn new_document(&mut self) {
        if let Some(last) = self.tokens.len().checked_sub(1) {
            self.ends[last / 64] |= 1 << (last % 64);
        }
        self.document_start = self.tokens.len();
    }

    /// Append tokens; all or, where one is outside the vocabulary, none.
    pub fn extend(&mut self, tokens: &[u32]) -> Result<()> {
        if let Some(id) = tokens.iter().find(|&&id| u64::from(id) >= self.vocab_size) {
            let fault = format!("id {id} is outside the vocabulary of {}", self.vocab_size);
            return Err(Error::Argument(fault));
        }
        if u32::try_from(self.tokens.len() + tokens.len()).is_err() {
            return Err(Error::Argument("more than 2^32 tokens of text".into()));
        }
        for &token in tokens {
            self.push(token);
        }
        Ok(())
    }

    fn push(&mut self, token: u32) {
        self.tokens.push(token);
        self.ends.resize(self.tokens.len().div_ceil(64), 0);
        let place = levels::narrow(self.tokens.len());
        let document = &self.tokens[self.document_start..];
        for chain in &mut self.chains {
            chain.before.push(NOWHERE);
        }
        for (chain, hash) in self.chains.iter_mut().zip(hashes(document)) {
            if let Some(before) = chain.latest.insert(hash, place) {
                chain.before[place as usize - 1] = before;
            }
        }
    }

    /// A tree of what followed the end of `context` earlier in this text.
    pub fn draft(&self, context: &[u32], search: &Search) -> Tree {
        let mut levels = Vec::new();
        let hashes: Vec<u64> = hashes(context).take(search.max_match).collect();
        for len in (search.min_match.max(1)..=hashes.len()).rev() {
            let suffix = &context[context.len() - len..];
            let mut starts = self.latest(suffix, hashes[len - 1], search.latest);
            if starts.is_empty() {
                continue;
            }
            levels::sort_by_text(self, &mut starts, search.max_depth);
            levels.push(Level::even(len, 1.0, starts));
            if levels.len() == search.levels.min(MAX_LEVELS) {
                break;
            }
        }
        let sharing = Sharing::Escape(search.escape);
        continuations::grow(self, &levels, sharing, search.max_nodes, search.max_depth)
    }

    /// The latest places after `suffix` that a token follows.
    fn latest(&self, suffix: &[u32], hash: u64, most: usize) -> Vec<u32> {
        let chain = &self.chains[suffix.len() - 1];
        let mut found = Vec::new();
        let mut place = chain.latest.get(&hash).copied().unwrap_or(NOWHERE);
        while place != NOWHERE && found.len() < most {
            let at = place as usize;
            let matches = self.tokens[..at].ends_with(suffix);
            if matches && at < self.tokens.len() && !self.ends_at(at - 1) {
                found.push(place);
            }
            place = chain.before[at - 1];
        }
        found
    }

    fn ends_at(&self, at: usize) -> bool {
        self.ends[at / 64] >> (at % 64) & 1 == 1
    }
}

impl Text for LiveIndex {
    /// Past the end of the text a continuation goes on with its own beginning: a text that
    /// repeats itself is expected to go on doing so.
    fn follow(&self, start: u32, depth: u32) -> Option<u32> {
        let (start, depth) = (start as usize, depth as usize);
        let at = start + depth % (self.tokens.len() - start);
        if depth > 0 && at > start && self.ends_at(at - 1) {
            return None;
        }
        self.tokens.get(at).copied()
    }
}

/// Hashes of the last 1, 2, … `LONGEST` tokens, as far as there are so many.
fn hashes(tokens: &[u32]) -> impl Iterator<Item = u64> {
    tokens.iter().rev().take(LONGEST).scan(0u64, |hash, &token| {
        // A multiplicative hash: the key only preselects, tokens are compared.
        *hash = (hash.rotate_left(23) ^ (u64::from(token) + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Some(*hash)
    })
}

/// Keys are hashes already; fold the well-mixed upper half into the lower.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 << 8) | u64::from(byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key ^ (key >> 32);
    }
}
