import numpy as np
import pytest

from specret._suffix import SuffixIndex, build_suffix
from specret.evaluation.overlap import longest_run, overlap
from specret.evaluation.prompts import Prompt


@pytest.fixture
def index(tmp_path):
    def build(*documents, vocab_size=64):
        tokens = np.concatenate([np.array(d, "<u2") for d in documents])
        offsets = np.cumsum([0, *map(len, documents)]).astype(np.uint64)
        tokens.tofile(tmp_path / "t")
        build_suffix(str(tmp_path / "t"), 2, offsets, vocab_size, str(tmp_path / "s"))
        return SuffixIndex.open(str(tmp_path / "t"), 2, str(tmp_path / "s"), vocab_size)

    return build


def slow_longest_run(documents, tokens):
    """By trying every stretch; a match needs a token after it."""
    best = 0
    for i in range(len(tokens)):
        for j in range(i + 1, len(tokens) + 1):
            for d in documents:
                starts = range(len(d) - (j - i))  # one token less than fits: it needs a follower
                if any(list(d[s : s + j - i]) == list(tokens[i:j]) for s in starts):
                    best = max(best, j - i)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_the_longest_run_is_what_trying_every_stretch_finds(index, seed):
    rng = np.random.default_rng(seed)
    documents = [rng.integers(0, 4, rng.integers(1, 30)).tolist() for _ in range(3)]
    tokens = rng.integers(0, 4, 25)
    assert longest_run(index(*documents), tokens) == slow_longest_run(documents, tokens)


def test_a_run_does_not_cross_documents(index):
    found = index([1, 2, 3], [4, 5, 6, 7])
    assert longest_run(found, np.array([1, 2, 3, 4, 5, 6])) == 3  # 4 5 6, followed by 7


def test_no_token_and_foreign_ids_share_nothing(index):
    assert longest_run(index([1, 2, 3]), np.array([], np.int64)) == 0
    assert longest_run(index([1, 2, 3]), np.array([99, 98])) == 0


def letters(text, add_special_tokens):
    assert not add_special_tokens
    return {"input_ids": [ord(c) - 60 for c in text]}


def test_shared_references_are_counted_and_named(index):
    store = index([ord(c) - 60 for c in "abcdefghijklmnop"], [ord(c) - 60 for c in "rstu"])
    prompts = [
        Prompt("whole", "c", ("?",), references=("bcd",)),
        Prompt("long", "c", ("?",), references=("xx", "cdefgzz")),
        Prompt("none", "c", ("?",), references=("zzzzab",)),
        Prompt("unknown", "c", ("?",)),
    ]
    found = overlap([store], prompts, letters, min_run=5)
    assert found["prompts"] == {"whole": 3, "long": 5}
    assert (found["with_reference"], found["shared"], found["longest_median"]) == (3, 2, 2.5)
    assert overlap([store], prompts[3:], letters)["longest_median"] is None
