"""Laws of `merge`: exactly the paths of all inputs, in any order, each with its witnesses."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specret import tree
from specret.hybrid.merge import OTHER, PROPOSES, SILENT, Merged, merge
from specret.types import SOURCES, Draft

VOCAB = 5


def draft_of(paths, probs=(), origin=-1, **signals):
    """A draft that holds the given paths and all their prefixes."""
    nodes = {}
    for path in paths:
        for end in range(1, len(path) + 1):
            nodes.setdefault(tuple(path[:end]), len(nodes))
    n = len(nodes)
    prob = np.array([*probs, *[0.5] * (n - len(probs))], np.float32)
    return Draft(
        np.array([path[-1] for path in nodes], np.int64),
        np.array([nodes.get(path[:-1], -1) for path in nodes], np.int32),
        prob,
        VOCAB,
        np.zeros(n, np.uint8),
        np.full(n, origin, np.int64),
        {name: np.full(n, value, np.float32) for name, value in signals.items()},
    )


def paths_of(parents, tokens):
    return [tuple(tokens[i] for i in tree.path_to(parents, node)) for node in range(len(tokens))]


paths = st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4), max_size=6)
drafts = st.dictionaries(st.sampled_from(SOURCES), paths.map(draft_of), max_size=len(SOURCES))


@given(drafts)
def test_the_merged_tree_holds_exactly_the_paths_of_all_drafts(given_drafts):
    merged = merge(given_drafts)
    expected = {p for d in given_drafts.values() for p in paths_of(d.parents, d.tokens)}
    found = paths_of(merged.parents, merged.tokens)
    assert len(found) == len(set(found)) == len(expected)
    assert set(found) == expected


@given(drafts)
def test_parents_come_first_and_depths_follow(given_drafts):
    merged = merge(given_drafts)
    assert (merged.parents < np.arange(len(merged))).all()
    assert (merged.depth == tree.depths(merged.parents)).all()


@given(drafts)
def test_the_order_of_the_drafts_is_irrelevant(given_drafts):
    there, back = merge(given_drafts), merge(dict(reversed(given_drafts.items())))
    for name in ("tokens", "parents", "sources", "origins", "state", "prob"):
        assert (getattr(there, name) == getattr(back, name)).all()


@given(drafts)
def test_merging_the_merged_tree_again_changes_nothing(given_drafts):
    once = merge(given_drafts)
    again = merge({name: as_draft(once) for name in SOURCES})
    assert (once.tokens == again.tokens).all()
    assert (once.parents == again.parents).all()
    assert (again.state == PROPOSES).all()


@given(drafts)
def test_evidence_says_who_proposes_what(given_drafts):
    merged = merge(given_drafts)
    said = {name: set(paths_of(d.parents, d.tokens)) for name, d in given_drafts.items()}
    for node, path in enumerate(paths_of(merged.parents, merged.tokens)):
        for column, name in enumerate(merged.names):
            speaks = any(p[:-1] == path[:-1] for p in said[name])
            expected = PROPOSES if path in said[name] else OTHER if speaks else SILENT
            assert merged.state[node, column] == expected
            assert bool(merged.sources[node] >> SOURCES.index(name) & 1) == (path in said[name])


def test_a_source_that_says_something_else_leaves_the_rest_of_its_mass():
    merged = merge({"prompt": draft_of([[1], [2]], [0.6, 0.3]), "dense": draft_of([[3]])})
    node = merged.tokens.tolist().index(3)
    assert merged.names == ("prompt", "dense")
    assert merged.state[node].tolist() == [OTHER, PROPOSES]
    assert np.allclose(merged.prob[node], [0.1, 0.5])


def test_signals_and_origins_belong_to_the_source_that_gave_them():
    merged = merge(
        {"prompt": draft_of([[1]], match_len=7.0), "suffix": draft_of([[1], [2]], origin=40)}
    )
    assert merged.signals["match_len"][0, 0] == 7.0
    assert np.isnan(merged.signals["match_len"][:, 1]).all()
    assert merged.origins.tolist() == [40, 40]


def test_the_first_source_with_an_origin_gives_it():
    both = {"dense": draft_of([[1]], origin=9), "suffix": draft_of([[1]], origin=4)}
    assert merge(both).origins.tolist() == [4]


def test_no_drafts_and_empty_drafts_make_an_empty_tree():
    assert len(merge({})) == 0
    assert len(merge({"suffix": Draft.empty(VOCAB), "dense": Draft.empty(VOCAB)})) == 0


def as_draft(merged: Merged) -> Draft:
    n = len(merged)
    return Draft(
        merged.tokens,
        merged.parents,
        np.full(n, 0.5, np.float32),
        VOCAB,
        merged.sources,
        merged.origins,
    )
