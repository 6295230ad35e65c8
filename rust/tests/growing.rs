//! A text that grows: what it remembers.

#![allow(clippy::unwrap_used)] // a test may die

use specret_suffix::continuations::Tree;
use specret_suffix::levels::MATCH;
use specret_suffix::live::{LiveIndex, Search};

fn draft(text: &LiveIndex, context: &[u32], latest: usize, max_nodes: usize) -> Tree {
    let (min_match, max_match, levels, max_depth) = (1, 16, 16, 8);
    let escape = MATCH;
    let search = Search { min_match, max_match, levels, latest, escape, max_nodes, max_depth };
    text.draft(context, &search)
}

fn text(tokens: &[u32]) -> LiveIndex {
    let mut text = LiveIndex::new(100);
    text.extend(tokens).unwrap();
    text
}

#[test]
fn a_longer_match_outweighs_later_shorter_ones() {
    let tokens = [1, 2, 3, 9, 3, 7, 1, 2, 3];
    assert_eq!(draft(&text(&tokens), &tokens, 3, 1).tokens, [9]);
}

#[test]
fn only_the_latest_matches_are_read() {
    let tokens = [5, 1, 5, 2, 5, 3, 5];
    let mut seen = draft(&text(&tokens), &tokens, 2, 16);
    seen.tokens.truncate(2);
    assert!(!seen.tokens.contains(&1), "{:?}", seen.tokens);
}

#[test]
fn a_text_that_repeats_itself_goes_on_repeating() {
    let tokens = [4, 1, 2, 1, 2];
    let tree = draft(&text(&tokens), &tokens, 1, 6);
    assert_eq!(tree.tokens, [1, 2, 1, 2, 1, 2]);
    assert_eq!(tree.parents, [-1, 0, 1, 2, 3, 4]);
}

#[test]
fn documents_do_not_mix() {
    let mut text = text(&[1, 2]);
    text.new_document();
    text.extend(&[3, 2]).unwrap();
    assert_eq!(draft(&text, &[1, 2, 3], 3, 1).match_len, [1.0]); // [3], never [2 | 3]
    assert!(draft(&text, &[2], 3, 4).tokens.is_empty());
}

#[test]
fn an_id_outside_the_vocabulary_changes_nothing() {
    let mut text = text(&[1, 2]);
    assert!(text.extend(&[3, 100]).is_err());
    assert_eq!(text.len(), 2);
    text.clear();
    assert!(text.is_empty());
}
