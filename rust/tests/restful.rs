//! REST's files and its rule.

#![allow(clippy::unwrap_used)] // a test may die

use std::fs;

use specret_suffix::buffers::Buffers;
use specret_suffix::format::Width;
use specret_suffix::legacy::{Legacy, Search, chunk_bytes};

fn open(bytes: &[u8]) -> Result<Legacy, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.idx");
    fs::write(&path, bytes).unwrap();
    Legacy::open(&path).map_err(|error| error.to_string())
}

fn search(index: &Legacy, query: &[u32], choices: usize) -> Vec<Vec<i64>> {
    index.search(query, &Search { matches: Some(5000), choices: Some(choices), long: 10 })
}

#[test]
fn a_chunk_is_written_as_rest_writes_it() {
    let expected = [6, 0, 0, 0, 1, 0, 2, 0, 3, 0, 12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
    assert_eq!(chunk_bytes(&[1, 2, 3], Width::Two).unwrap(), expected);
    assert!(chunk_bytes(&[70_000], Width::Two).is_err());
}

#[test]
fn both_widths_and_several_chunks_answer_alike() {
    let (a, b) = ([1, 2, 3, 1, 2], [1, 2, 4]);
    for width in [Width::Two, Width::Four] {
        let bytes = [chunk_bytes(&a, width).unwrap(), chunk_bytes(&b, width).unwrap()].concat();
        let index = open(&bytes).unwrap();
        assert_eq!((index.len(), index.width()), (8, width));
        assert_eq!(search(&index, &[1, 2], 3), [vec![3], vec![4]]);
    }
}

#[test]
fn a_match_at_the_very_end_gives_nothing() {
    let index = open(&chunk_bytes(&[1, 2, 3], Width::Two).unwrap()).unwrap();
    assert!(search(&index, &[3], 4).is_empty());
    assert!(search(&index, &[1, 2, 3, 4], 4).is_empty());
    assert!(search(&open(&[]).unwrap(), &[1], 4).is_empty());
}

#[test]
fn repeated_tokens_stay_within_the_choices() {
    let index = open(&chunk_bytes(&[7; 40], Width::Four).unwrap()).unwrap();
    for choices in 1..12 {
        let buffers = Buffers::of(search(&index, &[7, 7], choices));
        assert!(buffers.position_ids.len() <= choices + 1);
    }
}

#[test]
fn cut_files_are_refused() {
    let bytes = chunk_bytes(&[1, 2, 3], Width::Two).unwrap();
    for at in 1..bytes.len() {
        assert!(open(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn positions_out_of_range_are_harmless() {
    let mut bytes = chunk_bytes(&[1, 2, 3], Width::Two).unwrap();
    let at = bytes.len() - 12;
    bytes[at..].fill(0x7f);
    assert!(search(&open(&bytes).unwrap(), &[1, 2], 4).is_empty());
}

#[test]
fn the_five_buffers_of_a_small_tree() {
    let buffers = Buffers::of(vec![vec![4], vec![5], vec![4, 6], vec![5, 6]]);
    assert_eq!(buffers.rows, [[4, -2], [5, -2], [4, 6], [5, 6]]);
    assert_eq!(buffers.tree_indices, [0, 1, 2, 3, 3]);
    assert_eq!(buffers.position_ids, [0, 1, 1, 2, 2]);
    assert_eq!(buffers.retrieve_indices, [[0, 2, 4], [0, 1, 3]]);
    assert_eq!(buffers.mask[4], [1, 0, 1, 0, 1]);
}
