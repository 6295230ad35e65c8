"""`dresd` drafts what followed at positions whose state was alike, from any kind of array."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_stores import FINGERPRINT, VOCAB, WIDTH, SumEncoder, build, prose, write_files

from specret.datastore.store import Store, open_store
from specret.registry import Resources, make_drafter
from specret.retrieval.dense import _support
from specret.tree import depths, path_to
from specret.types import FINAL_NORM, SOURCES, Budget, Context, Features, SpecretError

WINDOW = 32


@pytest.fixture(scope="module", name="store")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("dense")
    texts = [*prose(12, 60), "abcXdef", "one Z"]
    build(write_files(folder / "in", texts), folder / "store", window=WINDOW)
    return open_store(folder / "store", FINGERPRINT)


def drafter(store: Any, **options: Any) -> Any:
    return make_drafter("dresd", Resources(VOCAB, WIDTH, store=store), options)


def context_at(store: Store, position: int, as_array: Any = np.asarray) -> Context:
    """The text of a window up to `position` + 1, whose state at `position` is in the store."""
    document = int(np.searchsorted(store.offsets, position, side="right")) - 1
    begin = int(store.offsets[document])
    begin += (position - begin) // WINDOW * WINDOW
    tokens = store.tokens[begin : position + 2].astype(np.int64)
    states = SumEncoder().states(tokens[:-1])
    return Context(tokens, 1, Features(0, {FINAL_NORM: as_array(states)}))


def some_positions(store: Store) -> list[int]:
    """Positions whose last nine tokens, all that the encoder sees, stand nowhere else."""
    text = bytes(store.tokens.tolist())
    candidates = range(20, int(store.offsets[12]), 97)
    found = [p for p in candidates if text.count(text[p - 8 : p + 1]) == 1]
    assert len(found) > 10
    return found


def test_the_stored_text_goes_on_as_it_did(store: Store) -> None:
    draft_of = drafter(store, neighbours=1)
    for position in some_positions(store):
        context = context_at(store, position)
        draft = draft_of.propose(context, Budget(5, 5))
        end = int(store.offsets[np.searchsorted(store.offsets, position, side="right")])
        behind = store.tokens[position + 2 : min(position + 7, end)]
        assert draft.tokens.tolist() == behind.tolist()
        assert draft.parents.tolist() == list(range(-1, len(behind) - 1))
        assert draft.origins.tolist() == list(range(position + 2, position + 2 + len(behind)))
        # one vote for one token: 1 / (1 + escape)
        np.testing.assert_allclose(draft.prob, 1 / 3, rtol=1e-5)
        np.testing.assert_allclose(draft.signals["cosine"], 1.0, atol=0.05)


def test_several_neighbours_vote_by_their_similarity(store: Store) -> None:
    draft_of = drafter(store, neighbours=20, temperature=0.2)
    assert store.dense is not None
    assert store.projection is not None
    for position in some_positions(store):
        context = context_at(store, position)
        state = np.asarray(context.features.states[FINAL_NORM][-1])
        key = store.projection.apply(state[None])[0]
        cosines, near = store.dense.search(key, context.newest, 20)
        weights = np.exp((cosines - cosines[0]).astype(np.float64) / 0.2)
        next_tokens = store.tokens[near + 2]
        draft = draft_of.propose(context, Budget(16, 6))
        assert len(draft) <= 16
        assert depths(draft.parents).max() <= 6
        whole = weights.sum() + 2.0 * len(np.unique(next_tokens))  # escape 2
        for node in np.flatnonzero(draft.parents == -1):
            share = weights[next_tokens == draft.tokens[node]].sum() / whole
            assert draft.prob[node] == pytest.approx(share, rel=1e-4)
        alike = next_tokens == next_tokens[0]
        margin = cosines[0] - cosines[~alike].max() if (~alike).any() else cosines[0] + 1
        assert draft.signals["margin"] == pytest.approx(np.full(len(draft), margin), abs=1e-6)
        agreement = weights[alike].sum() / weights.sum()
        assert draft.signals["agreement"] == pytest.approx(np.full(len(draft), agreement), rel=1e-4)


def test_a_node_bears_the_cosine_of_its_nearest_supporter(store: Store) -> None:
    draft_of = drafter(store, neighbours=20)
    assert store.dense is not None
    assert store.projection is not None
    for position in some_positions(store):
        context = context_at(store, position)
        key = store.projection.apply(context.features.states[FINAL_NORM][-1:])[0]
        cosines, near = store.dense.search(key, context.newest, 20)
        draft = draft_of.propose(context, Budget(24, 6))
        for node in range(len(draft)):
            path = draft.tokens[list(path_to(draft.parents, node))].tolist()
            supporters = []
            for cosine, start in zip(cosines, (near + 2).tolist(), strict=True):
                end = int(store.offsets[np.searchsorted(store.offsets, start, side="right")])
                if store.tokens[start : min(start + len(path), end)].tolist() == path:
                    supporters.append(cosine)
            assert draft.signals["cosine"][node] == max(supporters)


def test_every_node_is_a_stored_token_and_says_so(store: Store) -> None:
    context = context_at(store, 50)
    draft = drafter(store).propose(context, Budget(32, 8))
    assert len(draft) == 32
    assert (store.tokens[draft.origins] == draft.tokens).all()
    assert (draft.sources == 1 << SOURCES.index("dense")).all()
    assert draft.law is None


def test_a_continuation_ends_with_its_document(store: Store) -> None:
    start = int(store.offsets[12])  # "abcXdef"
    draft = drafter(store).propose(context_at(store, start + 2), Budget(8, 8))
    assert bytes(draft.tokens.tolist()) == b"def"


ARRAYS = {
    "numpy": np.asarray,
    "torch fp32": torch.from_numpy,
    "torch bf16": lambda states: torch.from_numpy(states).bfloat16(),
    "torch with a gradient": lambda states: torch.from_numpy(states).requires_grad_(),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_states_may_be_arrays_of_any_kind(store: Store, kind: str) -> None:
    draft_of = drafter(store, neighbours=1)
    expected = draft_of.propose(context_at(store, 40), Budget(6, 6))
    draft = draft_of.propose(context_at(store, 40, ARRAYS[kind]), Budget(6, 6))
    assert draft.tokens.tolist() == expected.tokens.tolist()


NOTHING = {
    "no features": lambda c: c.with_features(None),
    "a one-token prompt": lambda c: c.with_features(
        Features(0, {FINAL_NORM: np.empty((0, WIDTH), np.float32)})
    ),
    "a newest token that follows nothing": lambda c: Context(
        np.array([*c.tokens[:-1], 7]), 1, c.features
    ),
    "a state that is not finite": lambda c: c.with_features(
        Features(0, {FINAL_NORM: np.full((1, WIDTH), np.nan, np.float32)})
    ),
}


@pytest.mark.parametrize("case", NOTHING)
def test_without_a_clue_the_draft_is_empty(store: Store, case: str) -> None:
    context = NOTHING[case](context_at(store, 40))
    draft_of = drafter(store)
    assert len(draft_of.propose(context, Budget(16, 8))) == 0


@pytest.mark.parametrize("budget", [Budget(0, 8), Budget(8, 0)], ids=str)
def test_without_a_budget_the_draft_is_empty(store: Store, budget: Budget) -> None:
    assert len(drafter(store).propose(context_at(store, 40), budget)) == 0


def test_the_time_of_a_search_is_told(store: Store) -> None:
    draft_of = drafter(store)
    context = context_at(store, 40)
    draft_of.start(context)
    assert draft_of.lookup_seconds() == 0
    draft = draft_of.propose(context, Budget(8, 8))
    assert draft_of.lookup_seconds() > 0
    draft_of.observe(context, draft, SimpleNamespace(path=(), next_token=1))
    draft_of.propose(context.with_features(None), Budget(8, 8))
    assert draft_of.lookup_seconds() == 0


REFUSED = {
    "an unknown option": ({"neighbors": 3}, "neighbors"),
    "no neighbours": ({"neighbours": 0}, "neighbours is 0"),
    "a temperature of zero": ({"temperature": 0.0}, "temperature is 0"),
    "a temperature that is no number": ({"temperature": float("nan")}, "temperature is nan"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_outside_their_range_are_refused(store: Store, case: str) -> None:
    options, message = REFUSED[case]
    with pytest.raises(SpecretError, match=message):
        drafter(store, **options)


def test_a_store_without_a_dense_side_is_refused(tmp_path: Path) -> None:
    build(write_files(tmp_path / "in", prose(2, 10)), tmp_path / "store", dense_tokens=0)
    with pytest.raises(SpecretError, match="no dense side") as fault:
        drafter(open_store(tmp_path / "store", FINGERPRINT))
    assert "--dense-tokens" in fault.value.hint


def test_a_rare_continuation_is_found_behind_hundreds_of_copies(tmp_path: Path) -> None:
    copy = "the very same words stand in each of these files, over and over again\n"
    rare = "the very same words stand in each of these Q and nowhere else\n"
    folder = write_files(tmp_path / "in", [*[copy] * 250, rare, *[copy] * 250])
    build(folder, tmp_path / "store", window=128)
    store = open_store(tmp_path / "store", FINGERPRINT)
    at = copy.index("these ") + 4
    tokens = np.frombuffer(copy[: at + 2].encode(), np.uint8).astype(np.int64)
    states = SumEncoder().states(tokens[:-1])
    context = Context(tokens, 1, Features(0, {FINAL_NORM: states}))
    first = drafter(store).propose(context, Budget(8, 4))
    roots = {chr(t) for t in first.tokens[first.parents == -1]}
    assert {"f", "Q"} <= roots


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_support_equals_a_search_path_by_path(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1))
    paths = np.array(rows)
    cosines = np.sort(np.random.default_rng(0).random(len(rows)).astype(np.float32))[::-1]
    nodes: dict[tuple[int, ...], int] = {}
    parents, tokens = [], []
    for row in rows[: data.draw(st.integers(1, len(rows)))]:
        for depth in range(1, 4):
            path = tuple(row[:depth])
            if path not in nodes:
                nodes[path] = len(nodes)
                parents.append(nodes.get(path[:-1], -1))
                tokens.append(path[-1])
    found: Any = SimpleNamespace(parents=np.array(parents, np.int32), tokens=np.array(tokens))
    got = _support(found, cosines, paths, 3)
    for path, node in nodes.items():
        through = [
            c for c, row in zip(cosines, rows, strict=True) if tuple(row[: len(path)]) == path
        ]
        assert got[node] == max(through)
