//! An index on disk: what it finds, what it refuses.

#![allow(clippy::unwrap_used)] // a test may die

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use specret_suffix::build::{Plan, build};
use specret_suffix::continuations::Tree;
use specret_suffix::error::{Error, Result};
use specret_suffix::format::Width;
use specret_suffix::index::{Index, Rule, Search};
use specret_suffix::levels::MATCH;

const VOCAB: u64 = 100_000;

struct Corpus {
    folder: tempfile::TempDir,
    bounds: Vec<u64>,
}

impl Corpus {
    fn of(documents: &[&[u32]]) -> Corpus {
        let folder = tempfile::tempdir().unwrap();
        let ids = documents.iter().flat_map(|d| d.iter());
        let bytes: Vec<u8> = ids.flat_map(|id| id.to_le_bytes()).collect();
        fs::write(folder.path().join("tokens"), bytes).unwrap();
        let mut bounds = vec![0];
        bounds.extend(documents.iter().scan(0, |sum, d| {
            *sum += d.len() as u64;
            Some(*sum)
        }));
        Corpus { folder, bounds }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn build(&self, cancel: bool) -> Result<()> {
        let plan = Plan {
            tokens_path: &self.path("tokens"),
            width: Width::Four,
            bounds: &self.bounds,
            vocab_size: VOCAB,
            out_path: &self.path("suffix"),
        };
        build(&plan, &AtomicBool::new(cancel))
    }

    fn open(&self) -> Result<Index> {
        Index::open(&self.path("tokens"), Width::Four, &self.path("suffix"), VOCAB)
    }

    fn draft(&self, context: &[u32], rule: Rule, max_nodes: usize) -> Tree {
        self.build(false).unwrap();
        let (min_match, max_match, levels, samples, max_depth) = (1, 16, 4, 500, 8);
        let escape = MATCH;
        let search =
            Search { rule, min_match, max_match, levels, samples, escape, max_nodes, max_depth };
        self.open().unwrap().draft(context, &search)
    }
}

#[test]
fn rest_counts_what_followed_the_longest_suffix() {
    let corpus = Corpus::of(&[&[1, 2, 3, 4], &[1, 2, 3, 5], &[9, 2, 3, 5], &[2, 6]]);
    let tree = corpus.draft(&[1, 2, 3], Rule::Rest, 8);
    assert_eq!(tree.tokens, [4, 5]);
    assert_eq!(tree.prob, [0.5, 0.5]);
    assert_eq!(tree.match_len, [3.0, 3.0]);
}

#[test]
fn blend_backs_off_and_keeps_mass_for_the_unseen() {
    let corpus = Corpus::of(&[&[1, 2, 3, 4], &[9, 2, 3, 5], &[8, 2, 3, 5]]);
    let tree = corpus.draft(&[1, 2, 3], Rule::Blend, 8);
    // [1 2 3]: one match, half of all votes; [2 3]: three matches, two tokens, a fifth of the rest.
    assert_eq!(tree.tokens, [4, 5]);
    assert_eq!(tree.prob, [0.5 + 0.1, 0.2]);
    assert_eq!(tree.match_len, [3.0, 2.0]);
    assert_eq!(tree.count, [1.0, 2.0]);
    assert_eq!(tree.origin, [3, 11]);
}

#[test]
fn wide_ids_do_not_alias() {
    let corpus = Corpus::of(&[&[65_536, 7, 65_535, 8, 69_999, 9, 0, 10]]);
    for (id, next) in [(65_536, 7), (65_535, 8), (69_999, 9), (0, 10)] {
        assert_eq!(corpus.draft(&[id], Rule::Blend, 1).tokens, [next]);
    }
}

#[test]
fn nothing_crosses_a_document_boundary() {
    let corpus = Corpus::of(&[&[1, 2], &[3, 4], &[], &[5]]);
    assert!(corpus.draft(&[2], Rule::Blend, 4).tokens.is_empty());
    assert!(corpus.draft(&[2, 3], Rule::Rest, 4).tokens == [4]); // only [3] matches
    assert!(corpus.draft(&[5], Rule::Blend, 4).tokens.is_empty());
}

#[test]
fn every_truncation_and_every_flipped_byte_is_refused() {
    let corpus = Corpus::of(&[&[1, 2, 3], &[1, 2]]);
    corpus.build(false).unwrap();
    for name in ["suffix", "tokens"] {
        let whole = fs::read(corpus.path(name)).unwrap();
        let refused = |bytes: &[u8], what: &str, at: usize| {
            fs::write(corpus.path(name), bytes).unwrap();
            assert!(corpus.open().is_err(), "{name}: {what} {at}");
        };
        for at in 0..whole.len() {
            refused(&whole[..at], "cut at", at);
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            refused(&flipped, "flip at", at);
        }
        refused(&[&whole[..], &[0]].concat(), "longer than", whole.len());
        fs::write(corpus.path(name), &whole).unwrap();
    }
    corpus.open().unwrap();
}

#[test]
fn a_wrong_vocabulary_or_width_is_refused() {
    let corpus = Corpus::of(&[&[1, 2]]);
    corpus.build(false).unwrap();
    let (tokens, suffix) = (corpus.path("tokens"), corpus.path("suffix"));
    assert!(Index::open(&tokens, Width::Four, &suffix, VOCAB + 1).is_err());
    assert!(Index::open(&tokens, Width::Two, &suffix, VOCAB).is_err());
    assert!(matches!(
        Index::open(Path::new("/nowhere"), Width::Four, &suffix, VOCAB),
        Err(Error::Io { .. })
    ));
}

#[test]
fn bad_input_and_cancelled_builds_leave_no_file() {
    let outside = Corpus::of(&[&[1, 100_000]]);
    assert!(outside.build(false).unwrap_err().to_string().contains("id 100000"));
    let mut falling = Corpus::of(&[&[1, 2, 3]]);
    falling.bounds = vec![0, 2, 1, 3];
    assert!(falling.build(false).unwrap_err().to_string().contains("fall after entry 1"));
    falling.bounds = vec![0, 2];
    assert!(falling.build(false).is_err());
    let cancelled = Corpus::of(&[&[1, 2, 3]]);
    assert!(matches!(cancelled.build(true), Err(Error::Cancelled)));
    for corpus in [outside, falling, cancelled] {
        assert_eq!(fs::read_dir(corpus.folder.path()).unwrap().count(), 1); // its tokens
    }
}

#[test]
fn an_empty_corpus_is_a_corpus() {
    let corpus = Corpus::of(&[]);
    assert!(corpus.draft(&[1], Rule::Blend, 4).tokens.is_empty());
    assert_eq!(corpus.open().unwrap().documents(), 0);
}
