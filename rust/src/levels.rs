//! Matches by suffix length, and how what follows them is read and sorted.
//!
//! Knows no file and no search: a `Text` gives tokens, a search gives places.

use std::cmp::Ordering;

/// The weight of one match.
pub const MATCH: u64 = 1 << 20;

/// At most this many suffix lengths speak in one draft.
pub const MAX_LEVELS: usize = 16;

/// Reads what follows a match.
pub trait Text {
    /// The token at `depth` after `start`, or None where the document has ended.
    ///
    /// `depth` 0 is the token at `start` itself. Asked only where every shallower depth gave a
    /// token, so looking at one boundary is enough.
    fn follow(&self, start: u32, depth: u32) -> Option<u32>;
}

/// The matches of one suffix length, sorted by what follows them.
#[derive(Debug, Default)]
pub struct Level {
    /// How many tokens of the context matched.
    pub match_len: u32,
    /// Occurrences that each of `starts` stands for (more than 1 where they were sampled).
    pub scale: f64,
    /// Where the continuations start; each has at least one token.
    pub starts: Vec<u32>,
    /// `weights[i]` = weight of the first `i` continuations together; one more than `starts`.
    pub weights: Vec<u64>,
}

impl Level {
    /// Continuations of one weight each.
    pub fn even(match_len: usize, scale: f64, starts: Vec<u32>) -> Level {
        let weights = (0..=starts.len() as u64).map(|i| i * MATCH).collect();
        Level { match_len: narrow(match_len), scale, starts, weights }
    }

    /// Weight of the continuations in a span.
    pub fn weight(&self, (from, to): (u32, u32)) -> u64 {
        self.weights[to as usize] - self.weights[from as usize]
    }

    /// The first index in `from..to` whose token at `depth` is not `token`, which `from` carries.
    pub fn end_of_run(
        &self,
        text: &impl Text,
        from: usize,
        to: usize,
        depth: u32,
        token: u32,
    ) -> usize {
        let differs = |i: usize| text.follow(self.starts[i], depth) != Some(token);
        let (mut inside, mut step) = (from, 1);
        let mut outside = to;
        while inside + step < to {
            if differs(inside + step) {
                outside = inside + step;
                break;
            }
            inside += step;
            step *= 2;
        }
        while outside - inside > 1 {
            let middle = inside + (outside - inside) / 2;
            if differs(middle) {
                outside = middle;
            } else {
                inside = middle;
            }
        }
        outside
    }
}

/// The first token of a range at `depth`, past the continuations that have ended (they sort first).
pub fn head(text: &impl Text, level: &Level, range: &mut (u32, u32), depth: u32) -> Option<u32> {
    while range.0 < range.1 {
        if let Some(token) = text.follow(level.starts[range.0 as usize], depth) {
            return Some(token);
        }
        range.0 += 1;
    }
    None
}

/// Sort continuations by their first `depth` tokens, ended ones first, equal ones by position.
pub fn sort_by_text(text: &impl Text, starts: &mut [u32], depth: u32) {
    starts.sort_by(|&a, &b| compare(text, a, b, depth).then(a.cmp(&b)));
}

/// The order of two continuations, read to `depth` tokens.
pub fn compare(text: &impl Text, a: u32, b: u32, depth: u32) -> Ordering {
    for d in 0..depth {
        match (text.follow(a, d), text.follow(b, d)) {
            (Some(x), Some(y)) if x == y => {}
            (x, y) => return x.cmp(&y),
        }
    }
    Ordering::Equal
}

/// A length or place that is known to fit: no level has 2^32 continuations.
pub fn narrow(n: usize) -> u32 {
    debug_assert!(u32::try_from(n).is_ok());
    u32::try_from(n).unwrap_or(u32::MAX)
}
