"""The compiled index as its users meet it: files, errors, threads, interrupts."""

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from specret._suffix import LiveIndex, SuffixIndex, build_suffix
from specret.types import SpecretError

VOCAB = 1000


def write(folder: Path, docs: list[np.ndarray], width: int = 2, vocab: int = VOCAB) -> list[Path]:
    paths = [folder / "tokens.bin", folder / "suffix.bin"]
    np.concatenate([np.empty(0, np.int64), *docs]).astype(f"<u{width}").tofile(paths[0])
    bounds = np.cumsum([0] + [len(doc) for doc in docs]).astype(np.uint64)
    build_suffix(paths[0], width, bounds, vocab, paths[1])
    return paths


def zipf(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).zipf(1.3, n) % VOCAB


def answer(index: SuffixIndex | LiveIndex, context: np.ndarray) -> list[list[float]]:
    tree = index.draft(context, max_nodes=16, max_depth=8)
    return [tree.tokens.tolist(), tree.parents.tolist(), tree.prob.tolist(), tree.count.tolist()]


def gaps_of_a_ticker(work: Callable[[], None]) -> list[float]:
    """Pauses of a thread that wants to run every 10 ms, while `work` runs in this one."""
    gaps, done = [], threading.Event()

    def tick() -> None:
        last = perf_counter()
        while not done.wait(0.01):
            gaps.append(perf_counter() - last)
            last = perf_counter()

    ticker = threading.Thread(target=tick)
    ticker.start()
    work()
    done.set()
    ticker.join()
    return gaps


def test_both_token_widths_and_both_array_types_answer_alike(tmp_path):
    docs = [zipf(400, seed) for seed in range(5)]
    answers = []
    for width in (2, 4):
        tokens, suffix = write(tmp_path, docs, width)
        index = SuffixIndex.open(tokens, width, suffix, VOCAB)
        assert (len(index), index.documents, index.vocab_size) == (2000, 5, VOCAB)
        for kind in (np.int64, np.uint32):
            answers.append(answer(index, docs[0][:20].astype(kind)))
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert answers[0][0]


def test_two_builds_are_byte_identical(tmp_path):
    files = []
    for name in "ab":
        (tmp_path / name).mkdir()
        files.append(write(tmp_path / name, [zipf(3000), zipf(10)])[1].read_bytes())
    assert files[0] == files[1]


def test_a_rare_text_is_found_beside_500_copies_of_another(tmp_path):
    copies, rare = zipf(200), np.array([1, 2, 3, 998, 997, 996])
    tokens, suffix = write(tmp_path, [copies] * 250 + [rare] + [copies] * 250)
    index = SuffixIndex.open(tokens, 2, suffix, VOCAB)
    tree = index.draft(np.array([1, 2, 3]), max_nodes=16, max_depth=4)
    found = tree.tokens.tolist().index(998)
    assert tree.parents[found] == -1
    assert tree.match_len[found] == 3
    assert tree.origin[found] == 250 * 200 + 3


@pytest.mark.parametrize("broken", ["tokens.bin", "suffix.bin"])
def test_a_cut_or_flipped_file_is_refused_by_name(tmp_path, broken):
    tokens, suffix = write(tmp_path, [zipf(50), zipf(30)])
    whole = (tmp_path / broken).read_bytes()
    cuts = [whole[:at] for at in range(0, len(whole), 7)]
    flips = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for content in [*cuts, *flips, whole + b"\0"]:
        (tmp_path / broken).write_bytes(content)
        with pytest.raises(SpecretError, match=broken) as caught:
            SuffixIndex.open(tokens, 2, suffix, VOCAB)
        assert "build-index" in caught.value.hint
    (tmp_path / broken).write_bytes(whole)
    assert len(SuffixIndex.open(tokens, 2, suffix, VOCAB)) == 80


def test_what_does_not_fit_together_is_refused(tmp_path):
    tokens, suffix = write(tmp_path, [zipf(50)])
    with pytest.raises(SpecretError, match="a vocabulary of 1000, expected 999"):
        SuffixIndex.open(tokens, 2, suffix, 999)
    with pytest.raises(SpecretError, match="token width 3"):
        SuffixIndex.open(tokens, 3, suffix, VOCAB)
    with pytest.raises(FileNotFoundError, match=r"missing\.bin"):
        SuffixIndex.open(tmp_path / "missing.bin", 2, suffix, VOCAB)
    with pytest.raises(FileNotFoundError):
        build_suffix(tmp_path / "missing.bin", 2, np.array([0], np.uint64), VOCAB, suffix)


def test_a_corpus_that_breaks_its_promises_is_refused(tmp_path):
    tokens, out = tmp_path / "tokens.bin", tmp_path / "out.bin"
    np.array([1, 2, VOCAB], "<u2").tofile(tokens)
    with pytest.raises(SpecretError, match="id 1000 is outside the vocabulary of 1000"):
        build_suffix(tokens, 2, np.array([0, 3], np.uint64), VOCAB, out)
    with pytest.raises(SpecretError, match="document bounds run from"):
        build_suffix(tokens, 2, np.array([0, 2], np.uint64), 2000, out)
    tokens.write_bytes(b"abc")
    with pytest.raises(SpecretError, match="3 bytes, not a multiple of 2"):
        build_suffix(tokens, 2, np.array([0, 1], np.uint64), 2000, out)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.bin"]


def test_more_tokens_than_31_bits_count_are_refused_by_name(tmp_path):
    tokens, n = tmp_path / "tokens.bin", 2**31
    with open(tokens, "wb") as file:
        file.truncate(2 * n)  # sparse: nothing is written
    with pytest.raises(SpecretError, match="holds at most 2147483646"):
        build_suffix(tokens, 2, np.array([0, n], np.uint64), VOCAB, tmp_path / "out.bin")


@pytest.mark.parametrize(
    "options",
    [{"rule": "best"}, {"min_match": 0}, {"min_match": 3, "max_match": 2}, {"levels": 0},
     {"samples": 0}],
)  # fmt: skip
def test_an_option_outside_its_range_is_refused(tmp_path, options):
    tokens, suffix = write(tmp_path, [zipf(50)])
    index = SuffixIndex.open(tokens, 2, suffix, VOCAB)
    with pytest.raises(SpecretError, match=next(iter(options))):
        index.draft(np.array([1]), max_nodes=4, max_depth=4, **options)


def test_tree_refuses_weights_that_are_none(tmp_path):
    tokens, suffix = write(tmp_path, [zipf(50)])
    index = SuffixIndex.open(tokens, 2, suffix, VOCAB)
    for weights in ([1.0, -1.0], [np.nan, 1.0], [1.0]):
        with pytest.raises(SpecretError, match="weight"):
            index.tree(np.array([1, 2]), np.array(weights, np.float32), max_nodes=4, max_depth=4)


def test_one_index_serves_16_threads(tmp_path):
    docs = [zipf(5000, seed) for seed in range(4)]
    tokens, suffix = write(tmp_path, docs)
    starts = np.random.default_rng(1).integers(0, 4900, 500)
    contexts = [docs[0][i : i + 20] for i in starts]
    live = LiveIndex(VOCAB)
    live.extend(docs[1])
    for index in (SuffixIndex.open(tokens, 2, suffix, VOCAB), live):
        serial = [answer(index, context) for context in contexts]
        with ThreadPoolExecutor(16) as pool:
            for _ in pool.map(
                lambda _, index=index, serial=serial: compare(index, contexts, serial), range(16)
            ):
                pass


def compare(index: SuffixIndex | LiveIndex, contexts: list, serial: list) -> None:
    assert [answer(index, context) for context in contexts] == serial


def test_a_text_may_grow_while_others_search_it():
    live, tokens = LiveIndex(VOCAB), zipf(4000)
    live.extend(tokens[:100])
    with ThreadPoolExecutor(4) as pool:
        grow = pool.submit(lambda: [live.extend(tokens[i : i + 1]) for i in range(100, 4000)])
        reads = [pool.submit(answer, live, tokens[:10]) for _ in range(500)]
        assert all(read.result()[0] for read in reads)
        grow.result()
    whole = LiveIndex(VOCAB)
    whole.extend(tokens)
    assert answer(live, tokens) == answer(whole, tokens)


@pytest.mark.slow
def test_other_threads_run_while_five_million_tokens_are_sorted(tmp_path):
    tokens = zipf(5_000_000)
    gaps = gaps_of_a_ticker(lambda: write(tmp_path, [tokens]))
    assert len(gaps) > 10
    assert max(gaps) < 0.2


@pytest.mark.slow
def test_an_interrupt_ends_a_build_at_once_and_leaves_no_file(tmp_path):
    tokens = tmp_path / "tokens.bin"
    zipf(5_000_000).astype("<u2").tofile(tokens)
    started = perf_counter()
    threading.Timer(0.3, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        build_suffix(tokens, 2, np.array([0, 5_000_000], np.uint64), VOCAB, tmp_path / "out.bin")
    assert perf_counter() - started < 2
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.bin"]
