//! The suffix index of a corpus on disk: build it, open it, find matches, draft from them.
//!
//! In: a file of token ids and the bounds of its documents. Out: a suffix file; draft trees.
//! No match and no continuation crosses a document boundary. Knows no Python.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use libsais::SuffixArrayConstruction;
use memmap2::Mmap;

use crate::continuations::{self, Level, MAX_LEVELS, ONE, Text, Tree};
use crate::error::{Error, Result};
use crate::format::{self, Header, Width};

/// libsais counts in 31 bits.
pub const MAX_TOKENS: usize = (1 << 31) - 2;

/// Token ids as they lie in their file.
pub struct Tokens {
    bytes: Mmap,
    width: Width,
}

impl Tokens {
    pub fn open(path: &Path, width: Width) -> Result<Tokens> {
        Ok(Tokens { bytes: map(path)?, width })
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.width.bytes()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn get(&self, at: usize) -> Option<u32> {
        match self.width {
            Width::Two => {
                let two = self.bytes.get(at.checked_mul(2)?..)?.first_chunk::<2>()?;
                Some(u32::from(u16::from_le_bytes(*two)))
            }
            Width::Four => {
                let four = self.bytes.get(at.checked_mul(4)?..)?.first_chunk::<4>()?;
                Some(u32::from_le_bytes(*four))
            }
        }
    }
}

fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::io(path))?;
    // SAFETY: the files of a datastore are immutable once their build is committed.
    unsafe { Mmap::map(&file) }.map_err(Error::io(path))
}

/// One bit per token: is it the last of its document?
struct Ends(Vec<u64>);

impl Ends {
    fn of(bounds: &[u64], tokens: usize) -> Ends {
        let mut bits = vec![0; tokens.div_ceil(64)];
        for &bound in bounds {
            if let Some(last) = usize::try_from(bound).ok().and_then(|b| b.checked_sub(1)) {
                bits[last / 64] |= 1 << (last % 64);
            }
        }
        Ends(bits)
    }

    #[inline]
    fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_none_or(|bits| bits >> (at % 64) & 1 == 1)
    }
}

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
    let header = Header {
        width: plan.width,
        vocab_size: plan.vocab_size,
        tokens: tokens.len() as u64,
        documents: plan.bounds.len() as u64 - 1,
        tokens_crc: crc32fast::hash(&tokens.bytes),
        bounds_crc: 0,
        positions_crc: 0,
    };
    write_atomically(plan.out_path, |out| format::write(out, header, plan.bounds, &positions))
}

fn check_input(plan: &Plan, tokens: &Tokens) -> Result<()> {
    let (n, path) = (tokens.len(), plan.tokens_path);
    if tokens.bytes.len() % plan.width.bytes() != 0 {
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

/// The tokens with a 0 after each document, for libsais: ids become 1 + id, or 1 + rank where
/// they are too sparse to be an alphabet.
fn separated(tokens: &Tokens, ends: &Ends) -> Vec<i32> {
    const DENSE: u32 = 1 << 20;
    let ids = || (0..tokens.len()).filter_map(|i| tokens.get(i));
    let letter: Box<dyn Fn(u32) -> usize> = if ids().all(|id| id < DENSE) {
        Box::new(|id| id as usize)
    } else {
        let mut known: Vec<u32> = ids().collect();
        known.sort_unstable();
        known.dedup();
        Box::new(move |id| known.partition_point(|&other| other < id))
    };
    let mut text = Vec::with_capacity(tokens.len() + tokens.len() / 64);
    for (i, id) in ids().enumerate() {
        text.push(i32::try_from(letter(id) + 1).unwrap_or(i32::MAX));
        if ends.has(i) {
            text.push(0);
        }
    }
    text
}

fn suffix_array(text: &mut [i32]) -> Result<Vec<i32>> {
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
pub fn write_atomically(
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
        let (levels, total) = match search.rule {
            Rule::Rest => self.first_matches(context, search),
            Rule::Blend => self.blended(context, search),
        };
        continuations::grow(self, &levels, total, search.max_nodes, search.max_depth)
    }

    /// A tree of the continuations that start at `positions`, each vote weighted.
    ///
    /// `skip` tokens are passed over first, within the document of the position.
    pub fn tree(&self, positions: &[i64], weights: &[f32], skip: u32, nodes: usize, depth: u32) -> Tree {
        let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
        let mut level = Level { scale: 1.0, votes: vec![0], ..Level::default() };
        let mut valid: Vec<(u32, u64)> = Vec::with_capacity(positions.len());
        for (&position, &weight) in positions.iter().zip(weights) {
            let votes = (f64::from(weight) / sum * ONE as f64) as u64;
            if let Some(start) = self.skipped(position, skip) && votes > 0 {
                valid.push((start, votes));
            }
        }
        valid.sort_by(|a, b| continuations::compare(self, a.0, b.0, depth).then(a.cmp(b)));
        let mut sum = 0;
        for (start, votes) in valid {
            sum += votes;
            level.starts.push(start);
            level.votes.push(sum);
        }
        continuations::grow(self, &[level], ONE, nodes, depth)
    }

    fn skipped(&self, position: i64, skip: u32) -> Option<u32> {
        let first = u32::try_from(position).ok()?;
        let start = first.checked_add(skip)?;
        let inside = (first..start).all(|at| !self.ends.has(at as usize));
        (inside && (start as usize) < self.n).then_some(start)
    }

    /// REST's selection: one level, the first matches.
    fn first_matches(&self, context: &[u32], search: &Search) -> (Vec<Level>, u64) {
        let Some((len, from)) = self.longest(context, search.min_match) else {
            return (Vec::new(), 0);
        };
        let to = self.end_of_range(&context[context.len() - len..], from);
        let take = (to - from).min(search.samples);
        let mut level = self.level(len, (from..from + take).map(|i| self.position(i)));
        level.scale = 1.0;
        level.vote_evenly(1);
        let total = level.starts.len() as u64;
        (vec![level], total)
    }

    /// The longest suffix and the next shorter ones that occur more often, evenly sampled.
    fn blended(&self, context: &[u32], search: &Search) -> (Vec<Level>, u64) {
        let mut levels = Vec::new();
        let Some((longest, _)) = self.longest(context, search.min_match) else {
            return (levels, ONE);
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
            let mut level = self.level(len, sampled);
            level.scale = size as f64 / take as f64;
            levels.push(level);
            if levels.len() == search.levels.min(MAX_LEVELS) {
                break;
            }
        }
        continuations::vote_by_escape(&mut levels, self);
        (levels, ONE)
    }

    fn level(&self, match_len: usize, positions: impl Iterator<Item = u32>) -> Level {
        let ahead = match_len as u32;
        let starts = positions.map(|at| at.saturating_add(ahead)).collect();
        Level { match_len: ahead, starts, ..Level::default() }
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
        match self.follow(at, pattern.len() as u32) {
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
