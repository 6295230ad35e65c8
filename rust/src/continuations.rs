//! From matches to a draft tree: counting, escape weights, best-first growth under a node budget.
//!
//! In: the levels of matches. Out: a tree. All weights are integers, so sums do not depend on their order and every tie is a real tie.
//! Knows no file and no search.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::levels::{Level, MAX_LEVELS, Text, head, narrow};

/// The weight of the root when nodes are weighed by escape: probability 1.
pub const ONE: u64 = 1 << 60;

/// How the children of a node share its weight.
#[derive(Clone, Copy, Debug)]
pub enum Sharing {
    /// A node weighs what the continuations through it weigh; the root weighs this much.
    Counts(u64),
    /// Prediction by partial matching (method C where the factor is `MATCH`), at every node anew:
    /// the longest suffix first, matches of weight n with d different next tokens share
    /// n / (n + factor · d) of what is left, and shorter suffixes get the rest.
    Escape(u64),
}

/// A draft tree as parallel arrays; `parents[i] < i`, -1 is the root.
#[derive(Debug, Default, PartialEq)]
pub struct Tree {
    pub tokens: Vec<i64>,
    pub parents: Vec<i32>,
    /// Probability given the parent.
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

/// A node that may join the tree. The order is the order of joining: most weight, then the
/// shallower, then the smaller token, then the earlier parent.
struct Candidate {
    weight: u64,
    prob: f32,
    depth: u32,
    token: u32,
    parent: i32,
    spans: Spans,
}

impl Candidate {
    fn key(&self) -> (u64, Reverse<u32>, Reverse<u32>, Reverse<i32>) {
        (self.weight, Reverse(self.depth), Reverse(self.token), Reverse(self.parent))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The `max_nodes` heaviest nodes, closed under parents: a child never outweighs its parent.
pub fn grow(
    text: &impl Text,
    levels: &[Level],
    sharing: Sharing,
    max_nodes: usize,
    max_depth: u32,
) -> Tree {
    let mut growth = Growth { text, levels, sharing, waiting: BinaryHeap::new() };
    let mut tree = Tree::default();
    if max_nodes > 0 && max_depth > 0 {
        growth.plant();
    }
    while tree.tokens.len() < max_nodes {
        let Some(node) = growth.waiting.pop() else { break };
        let index = i32::try_from(tree.tokens.len()).unwrap_or(i32::MAX);
        tree.push(levels, &node);
        if node.depth < max_depth {
            growth.expand(&node.spans, node.weight, node.depth, index);
        }
    }
    tree
}

impl Tree {
    fn push(&mut self, levels: &[Level], node: &Candidate) {
        self.tokens.push(i64::from(node.token));
        self.parents.push(node.parent);
        self.prob.push(node.prob);
        for (level, &(from, to)) in levels.iter().zip(&node.spans) {
            if from < to {
                self.match_len.push(rounded(f64::from(level.match_len)));
                self.count.push(rounded(f64::from(to - from) * level.scale));
                let start = level.starts[from as usize];
                self.origin.push(i64::from(start) + i64::from(node.depth) - 1);
                break;
            }
        }
    }
}

/// A tree in the making: what is read, and the nodes that may join next.
struct Growth<'a, T> {
    text: &'a T,
    levels: &'a [Level],
    sharing: Sharing,
    waiting: BinaryHeap<Candidate>,
}

impl<T: Text> Growth<'_, T> {
    /// Add the children of the root.
    fn plant(&mut self) {
        let mut spans = Spans::default();
        for (span, level) in spans.iter_mut().zip(self.levels) {
            *span = (0, narrow(level.starts.len()));
        }
        let root = match self.sharing {
            Sharing::Counts(total) => total,
            Sharing::Escape(_) => ONE,
        };
        self.expand(&spans, root, 0, -1);
    }

    /// Add the children of a node that weighs `above`.
    fn expand(&mut self, spans: &Spans, above: u64, depth: u32, parent: i32) {
        let (children, totals) = self.children(spans, depth);
        let shares = match self.sharing {
            Sharing::Counts(_) => [0; MAX_LEVELS],
            Sharing::Escape(factor) => shares(&totals, factor),
        };
        for (token, spans) in children {
            let own = self.levels.iter().zip(&spans).map(|(level, &span)| level.weight(span));
            let (weight, prob) = match self.sharing {
                Sharing::Counts(_) => {
                    let weight = own.sum();
                    (weight, weight as f64 / above as f64)
                }
                Sharing::Escape(factor) => {
                    let parts = own.zip(&shares).zip(&totals).map(|((own, &share), total)| {
                        scaled(share, own, total.weight + factor * total.distinct)
                    });
                    let prob = parts.sum();
                    (scaled(above, prob, ONE), prob as f64 / ONE as f64)
                }
            };
            if weight > 0 {
                let (prob, depth) = (rounded(prob), depth + 1);
                self.waiting.push(Candidate { weight, prob, depth, token, parent, spans });
            }
        }
    }

    /// The children of a node, by one merge over the levels' sorted spans, and what each level
    /// holds in all of them.
    fn children(&self, spans: &Spans, depth: u32) -> (Vec<(u32, Spans)>, [Total; MAX_LEVELS]) {
        let (text, levels) = (self.text, self.levels);
        let mut rest = *spans;
        let mut heads = [None; MAX_LEVELS];
        let mut totals = [Total::default(); MAX_LEVELS];
        for (l, level) in levels.iter().enumerate() {
            heads[l] = head(text, level, &mut rest[l], depth);
            totals[l].weight = level.weight(rest[l]);
        }
        let mut children = Vec::new();
        while let Some(token) = heads.iter().flatten().min().copied() {
            let mut spans = Spans::default();
            for (l, level) in levels.iter().enumerate() {
                if heads[l] != Some(token) {
                    continue;
                }
                let (from, to) = rest[l];
                let end = level.end_of_run(text, from as usize, to as usize, depth, token);
                spans[l] = (from, narrow(end));
                totals[l].distinct += 1;
                rest[l].0 = narrow(end);
                heads[l] = head(text, level, &mut rest[l], depth);
            }
            children.push((token, spans));
        }
        (children, totals)
    }
}

/// What a level holds below one node: weight of the continuations that go on, different tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    weight: u64,
    distinct: u64,
}

/// What is left for each level when the longer ones have had their part, out of `ONE`.
fn shares(totals: &[Total; MAX_LEVELS], factor: u64) -> [u64; MAX_LEVELS] {
    let mut left = ONE;
    totals.map(|total| {
        let share = left;
        if total.weight > 0 {
            let escape = factor * total.distinct;
            left = scaled(left, escape, total.weight + escape);
        }
        share
    })
}

/// `a · b / c`, rounded down; 0 where `c` is 0. At most `a` where `b` is at most `c`.
fn scaled(a: u64, b: u64, c: u64) -> u64 {
    let wide = (u128::from(a) * u128::from(b)).checked_div(u128::from(c)).unwrap_or(0);
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_possible_truncation)] // rounding is meant
fn rounded(x: f64) -> f32 {
    x as f32
}
