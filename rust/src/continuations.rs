//! From matches to a draft tree: votes, counting, best-first growth under an exact node budget.
//!
//! A match votes for the tokens that follow it. Votes are integers out of `ONE`, so sums do not
//! depend on their order and every tie is a real tie. Knows no file and no search.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// All votes together.
pub const ONE: u64 = 1 << 52;

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
    /// `votes[i]` = votes of the first `i` continuations together; one entry more than `starts`.
    pub votes: Vec<u64>,
}

impl Level {
    /// Give every continuation the same number of votes.
    pub fn vote_evenly(&mut self, each: u64) {
        self.votes = (0..=self.starts.len() as u64).map(|i| i * each).collect();
    }

    /// The first index in `from..to` whose token at `depth` is not `token`, which `from` carries.
    fn end_of_run(
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

    /// How many different tokens start the continuations.
    pub fn distinct(&self, text: &impl Text) -> u64 {
        let (mut at, mut distinct) = (0, 0);
        while at < self.starts.len() {
            let Some(token) = text.follow(self.starts[at], 0) else { break };
            at = self.end_of_run(text, at, self.starts.len(), 0, token);
            distinct += 1;
        }
        distinct
    }
}

/// Share `ONE` among levels, longest first, by prediction with partial matching (method C):
/// a level of n matches with d different next tokens gives each match 1/(n + d) of what is left
/// and leaves the rest, its chance of being wrong altogether, to shorter suffixes.
pub fn vote_by_escape(levels: &mut [Level], text: &impl Text) {
    let mut left = ONE;
    for level in levels {
        let n = level.starts.len() as u64;
        let each = left / (n + level.distinct(text)).max(1);
        level.vote_evenly(each);
        left -= each * n;
    }
}

/// A draft tree as parallel arrays; `parents[i] < i`, -1 is the root.
#[derive(Debug, Default, PartialEq)]
pub struct Tree {
    pub tokens: Vec<i64>,
    pub parents: Vec<i32>,
    /// Share of the parent's votes.
    pub prob: Vec<f32>,
    /// The longest suffix of the context that some supporting occurrence follows.
    pub match_len: Vec<f32>,
    /// Occurrences after that suffix.
    pub count: Vec<f32>,
    /// Where one supporting occurrence of the node's token stands.
    pub origin: Vec<i64>,
}

/// For each level the range of continuations that pass through a node.
type Spans = [(u32, u32); MAX_LEVELS];

/// A node that may join the tree. The order is the order of joining: most votes, then the
/// shallower, then the smaller token, then the earlier parent.
struct Candidate {
    votes: u64,
    depth: u32,
    token: u32,
    parent: i32,
    spans: Spans,
}

impl Candidate {
    fn key(&self) -> (u64, Reverse<u32>, Reverse<u32>, Reverse<i32>) {
        (self.votes, Reverse(self.depth), Reverse(self.token), Reverse(self.parent))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The `max_nodes` nodes with the most votes, closed under parents (a child never has more votes
/// than its parent). `total` is what the votes of all continuations are measured against.
pub fn grow(
    text: &impl Text,
    levels: &[Level],
    total: u64,
    max_nodes: usize,
    max_depth: u32,
) -> Tree {
    let mut tree = Tree::default();
    let mut votes_of: Vec<u64> = Vec::new();
    let mut waiting = BinaryHeap::new();
    let mut spans = Spans::default();
    for (span, level) in spans.iter_mut().zip(levels) {
        *span = (0, narrow(level.starts.len()));
    }
    if max_nodes > 0 && max_depth > 0 {
        expand(text, levels, &spans, 0, -1, &mut waiting);
    }
    while let Some(node) = waiting.pop() {
        let index = i32::try_from(tree.tokens.len()).unwrap_or(i32::MAX);
        let above = usize::try_from(node.parent).map_or(total, |parent| votes_of[parent]);
        tree.push(levels, &node, above);
        votes_of.push(node.votes);
        if tree.tokens.len() == max_nodes {
            break;
        }
        if node.depth < max_depth {
            expand(text, levels, &node.spans, node.depth, index, &mut waiting);
        }
    }
    tree
}

impl Tree {
    fn push(&mut self, levels: &[Level], node: &Candidate, above: u64) {
        self.tokens.push(i64::from(node.token));
        self.parents.push(node.parent);
        self.prob.push(rounded(node.votes as f64 / above as f64));
        for (level, &(from, to)) in levels.iter().zip(&node.spans) {
            if from < to {
                self.match_len.push(level.match_len as f32);
                self.count.push(rounded(f64::from(to - from) * level.scale));
                let start = level.starts[from as usize];
                self.origin.push(i64::from(start) + i64::from(node.depth) - 1);
                break;
            }
        }
    }
}

/// Add the children of a node: one merge over the levels' sorted ranges.
fn expand(
    text: &impl Text,
    levels: &[Level],
    spans: &Spans,
    depth: u32,
    parent: i32,
    waiting: &mut BinaryHeap<Candidate>,
) {
    let mut rest = *spans;
    let mut heads = [None; MAX_LEVELS];
    for (l, level) in levels.iter().enumerate() {
        heads[l] = head(text, level, &mut rest[l], depth);
    }
    while let Some(token) = heads.iter().flatten().min().copied() {
        let mut votes = 0;
        let mut spans = Spans::default();
        for (l, level) in levels.iter().enumerate() {
            if heads[l] != Some(token) {
                continue;
            }
            let (from, to) = rest[l];
            let end = level.end_of_run(text, from as usize, to as usize, depth, token);
            votes += level.votes[end] - level.votes[from as usize];
            spans[l] = (from, narrow(end));
            rest[l].0 = narrow(end);
            heads[l] = head(text, level, &mut rest[l], depth);
        }
        if votes > 0 {
            waiting.push(Candidate { votes, depth: depth + 1, token, parent, spans });
        }
    }
}

/// A length or place that is known to fit: no level has 2^32 continuations.
pub fn narrow(n: usize) -> u32 {
    debug_assert!(u32::try_from(n).is_ok());
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_possible_truncation)] // rounding is meant
fn rounded(x: f64) -> f32 {
    x as f32
}

/// The first token of a range at `depth`, past the continuations that have ended (they sort first).
fn head(text: &impl Text, level: &Level, range: &mut (u32, u32), depth: u32) -> Option<u32> {
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

pub fn compare(text: &impl Text, a: u32, b: u32, depth: u32) -> std::cmp::Ordering {
    for d in 0..depth {
        match (text.follow(a, d), text.follow(b, d)) {
            (Some(x), Some(y)) if x == y => {}
            (x, y) => return x.cmp(&y),
        }
    }
    std::cmp::Ordering::Equal
}
