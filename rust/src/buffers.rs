//! The five buffers in which REST's `draftretriever` hands out a tree.
//!
//! In: paths of tokens. Out: rows, mask, slots, depths and leaves, as its generation loop reads them.

use std::collections::BTreeSet;

/// All prefixes of the paths.
pub fn nodes(paths: &[Vec<i64>]) -> BTreeSet<&[i64]> {
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
