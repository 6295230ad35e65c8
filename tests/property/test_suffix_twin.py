"""The compiled index answers what its slow twin answers, node for node."""

from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from specret._suffix import LiveIndex, SuffixIndex, TreeArrays, build_suffix
from specret.retrieval import reference

EXAMPLES = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
IDS = (0, 1, 2, 3, 65_535, 65_536, 69_999, 2**32 - 2)
VOCAB = 2**32 - 1

ids = st.sampled_from(IDS)
few_ids = st.sampled_from(IDS[:3])
document = st.lists(few_ids, max_size=25) | st.lists(ids, max_size=12)
documents = st.lists(document, max_size=6)
context = st.lists(few_ids, max_size=8) | st.lists(ids, max_size=5)
budget = st.fixed_dictionaries({"max_nodes": st.integers(0, 20), "max_depth": st.integers(0, 6)})
escapes = st.sampled_from([0.0, 0.5, 1.0, 4.0])
lengths = st.tuples(st.integers(1, 5), st.integers(0, 5)).map(
    lambda pair: {"min_match": pair[0], "max_match": pair[0] + pair[1]}
)


def open_index(
    folder: Path, docs: list[list[int]], width: int = 4, vocab: int = VOCAB
) -> SuffixIndex:
    tokens, path = folder / "tokens.bin", folder / "suffix.bin"
    np.array([t for doc in docs for t in doc], f"<u{width}").tofile(tokens)
    bounds = np.cumsum([0] + [len(doc) for doc in docs]).astype(np.uint64)
    build_suffix(tokens, width, bounds, vocab, path)
    return SuffixIndex.open(tokens, width, path, vocab)


def as_lists(tree: TreeArrays) -> tuple[list[float], ...]:
    arrays = tree.tokens, tree.parents, tree.prob, tree.match_len, tree.count, tree.origin
    return tuple(array.tolist() for array in arrays)


def as_context(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, np.int64)


@EXAMPLES
@given(docs=documents, context=context, budget=budget, lengths=lengths, data=st.data())
def test_blend_equals_twin(tmp_path, docs, context, budget, lengths, data):
    options = lengths | {
        "levels": data.draw(st.integers(1, 5)),
        "samples": data.draw(st.integers(1, 9)),
        "escape": data.draw(escapes),
    }
    seen = open_index(tmp_path, docs).draft(as_context(context), **budget, **options)
    expected = reference.draft_blend(reference.Corpus(docs), context, **budget, **options)
    assert as_lists(seen) == astuple(expected)


@EXAMPLES
@given(docs=documents, context=context, budget=budget, lengths=lengths, samples=st.integers(1, 9))
def test_rest_rule_equals_twin(tmp_path, docs, context, budget, lengths, samples):
    options = lengths | {"samples": samples}
    seen = open_index(tmp_path, docs).draft(as_context(context), rule="rest", **budget, **options)
    expected = reference.draft_rest(reference.Corpus(docs), context, **budget, **options)
    assert as_lists(seen) == astuple(expected)


@EXAMPLES
@given(docs=documents, budget=budget, skip=st.integers(0, 3), escape=escapes, data=st.data())
def test_tree_of_positions_equals_twin(tmp_path, docs, budget, skip, escape, data):
    total = sum(map(len, docs))
    positions = data.draw(st.lists(st.integers(-2, total + 2), max_size=12))
    floats = st.floats(0, 100, width=32)
    weights = data.draw(st.lists(floats, min_size=len(positions), max_size=len(positions)))
    seen = open_index(tmp_path, docs).tree(
        np.array(positions, np.int64),
        np.array(weights, np.float32),
        skip=skip,
        escape=escape,
        **budget,
    )
    expected = reference.draft_positions(
        reference.Corpus(docs), positions, weights, skip=skip, escape=escape, **budget
    )
    assert as_lists(seen) == astuple(expected)


@EXAMPLES
@given(docs=documents, context=context, budget=budget, lengths=lengths, data=st.data())
def test_growing_text_equals_twin(docs, context, budget, lengths, data):
    assume(docs)
    options = lengths | {
        "levels": data.draw(st.integers(1, 5)),
        "latest": data.draw(st.integers(1, 4)),
        "escape": data.draw(escapes),
    }
    if data.draw(st.booleans()):
        context = docs[-1]
    live = LiveIndex(VOCAB)
    for i, doc in enumerate(docs):
        if i > 0:
            live.new_document()
        cut = data.draw(st.integers(0, len(doc)))
        live.extend(as_context(doc[:cut]))
        live.extend(np.array(doc[cut:], np.uint32))
    seen = live.draft(as_context(context), **budget, **options)
    expected = reference.draft_live(docs, context, **budget, **options)
    assert as_lists(seen) == astuple(expected)


@EXAMPLES
@given(docs=documents, context=context, budget=budget, rule=st.sampled_from(["blend", "rest"]))
def test_every_path_stands_in_one_document_after_its_match(tmp_path, docs, context, budget, rule):
    tree = open_index(tmp_path, docs).draft(as_context(context), rule=rule, **budget)
    assert len(tree) <= budget["max_nodes"]
    paths: list[list[int]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    for path, match in zip(paths, tree.match_len.tolist(), strict=True):
        wanted = context[len(context) - int(match) :] + path
        assert len(path) <= budget["max_depth"]
        assert any(wanted == doc[i : i + len(wanted)] for doc in docs for i in range(len(doc)))


@pytest.mark.parametrize("rule", ["blend", "rest"])
def test_budget_is_exact_while_there_is_enough_to_say(tmp_path, rule):
    tokens = np.random.default_rng(0).integers(0, 5, 4000).tolist()
    index = open_index(tmp_path, [tokens], width=2, vocab=5)
    for nodes in (0, 1, 2, 63, 64, 65, 300):
        assert (
            len(index.draft(as_context([1, 2]), rule=rule, max_nodes=nodes, max_depth=8)) == nodes
        )


@pytest.mark.parametrize("docs", [[], [[]], [[], []], [[7]], [[7], [7]]])
def test_a_corpus_with_nothing_to_follow_gives_empty_trees(tmp_path, docs):
    index = open_index(tmp_path, docs, width=2, vocab=8)
    assert len(index.draft(as_context([7]), max_nodes=4, max_depth=4)) == 0
    assert len(index) == sum(map(len, docs))
    assert index.documents == len(docs)


@pytest.mark.parametrize("context", [[], [-1], [9], [2**40], [1, -5]])
def test_ids_outside_the_vocabulary_match_nothing(tmp_path, context):
    index = open_index(tmp_path, [[1, 2, 3, 1, 2]], width=2, vocab=8)
    assert len(index.draft(as_context(context), max_nodes=4, max_depth=4)) == 0


def test_an_unknown_id_only_shortens_the_context(tmp_path):
    index = open_index(tmp_path, [[1, 2, 3, 1, 2]], width=2, vocab=8)
    assert index.draft(as_context([-1, 1, 2]), max_nodes=1, max_depth=4).tokens.tolist() == [3]
