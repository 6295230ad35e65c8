"""plain, suffix, rest, prompt: what they propose and how they say where it came from."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from specret._suffix import SuffixIndex, build_suffix
from specret.registry import Resources, make_drafter
from specret.types import SOURCES, Budget, Context, SpecretError, Verdict

VOCAB = 50
BUDGET = Budget(max_nodes=8, max_depth=16)
DOCS = [[1, 2, 3, 4, 5], [9, 2, 3, 6], [7] * 30]
STREAM = [token for doc in DOCS for token in doc]


@pytest.fixture
def resources(tmp_path: Path) -> Resources:
    tokens, suffix = tmp_path / "tokens.bin", tmp_path / "suffix.bin"
    np.array(STREAM, "<u2").tofile(tokens)
    bounds = np.cumsum([0] + [len(doc) for doc in DOCS]).astype(np.uint64)
    build_suffix(tokens, 2, bounds, VOCAB, suffix)
    store = SimpleNamespace(suffix=SuffixIndex.open(tokens, 2, suffix, VOCAB))
    return Resources(vocab_size=VOCAB, hidden_size=8, store=store)


def context(*tokens: int) -> Context:
    return Context.begin(np.array(tokens, np.int64), len(tokens) + 8)


def test_plain_never_guesses(resources):
    drafter = make_drafter("plain", resources, {})
    drafter.start(context(1, 2))
    assert len(drafter.propose(context(1, 2), BUDGET)) == 0
    assert drafter.lookup_seconds() == 0.0


@pytest.mark.parametrize("name", ["suffix", "rest"])
def test_store_drafters_say_source_origin_and_signals(resources, name):
    drafter = make_drafter(name, resources, {})
    drafter.start(context(1, 2, 3))
    draft = drafter.propose(context(1, 2, 3), BUDGET)
    assert draft.tokens[0] == 4
    assert draft.parents[draft.tokens.tolist().index(5)] == 0
    assert set(draft.sources.tolist()) == {1 << SOURCES.index("suffix")}
    assert [STREAM[origin] for origin in draft.origins] == draft.tokens.tolist()
    assert draft.signals["match_len"][0] == 3.0
    assert draft.signals["count"][0] == 1.0
    assert drafter.lookup_seconds() > 0.0


def test_rest_takes_only_the_longest_suffix_and_never_one_token(resources):
    drafter = make_drafter("rest", resources, {})
    assert drafter.propose(context(1, 2, 3), BUDGET).tokens.tolist() == [4, 5]
    assert len(drafter.propose(context(8, 3), BUDGET)) == 0
    assert make_drafter("suffix", resources, {}).propose(context(8, 3), BUDGET).tokens.size


def test_rest_reads_ten_tokens_after_a_match(resources):
    budget = Budget(max_nodes=64, max_depth=16)
    assert len(make_drafter("rest", resources, {}).propose(context(7, 7), budget)) == 10
    assert len(make_drafter("rest", resources, {"long": 4}).propose(context(7, 7), budget)) == 4
    assert len(make_drafter("suffix", resources, {}).propose(context(7, 7), budget)) == 16


def test_prompt_grows_with_the_text_and_knows_no_store():
    drafter = make_drafter("prompt", Resources(vocab_size=VOCAB, hidden_size=8), {})
    text = context(1, 2, 3)
    drafter.start(text)
    draft = drafter.propose(text, BUDGET)
    assert len(draft) == 0
    text = text.extend((1, 2), None)
    drafter.observe(text, draft, Verdict((), 2))
    draft = drafter.propose(text, BUDGET)
    assert draft.tokens.tolist()[:2] == [3, 1]
    assert set(draft.sources.tolist()) == {1 << SOURCES.index("prompt")}
    assert set(draft.origins.tolist()) == {-1}
    drafter.start(context(4, 5))
    assert len(drafter.propose(context(4, 5), BUDGET)) == 0


@pytest.mark.parametrize("name", ["suffix", "rest"])
def test_a_missing_store_names_the_cure(name):
    with pytest.raises(SpecretError, match=f"{name}.*needs a datastore") as caught:
        make_drafter(name, Resources(vocab_size=VOCAB, hidden_size=8), {})
    assert "specret build-index --corpus code" in caught.value.hint


@pytest.mark.parametrize("name", ["plain", "suffix", "rest", "prompt"])
def test_an_unknown_option_is_refused(resources, name):
    with pytest.raises(SpecretError, match="unknown option 'speed'"):
        make_drafter(name, resources, {"speed": 1})
