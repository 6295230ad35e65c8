"""The module that stands in for REST's `draftretriever`: same files, same answers, no aborts."""

import gzip
import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from rest_by_hand import buffers, chunks_of, prefixes, rows_to_paths, select

from specret.retrieval.draftretriever import Reader, Writer
from specret.types import SpecretError

HERE = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / ".." / "shared" / "data" / "rest_golden"
FILES = {  # what REST's own Writer made of the corpus
    ("main", 1000000): "1a450b158ea7b0ece06e067d643814423a004ce11023cd62e58ed9c217508589",
    ("main", 20000): "60fd633ba5322a3b8b94493523df57fc2c7287b54b879f21d971790b13c91b95",
    ("llama3", 1000000): "296730f4eadf7eb76c996af490d3b450eb4e9b22d50eed76f322e4884f878125",
    ("llama3", 20000): "77c1947c9a582a475ddd635a7b9966a507a88b3592588907903b7c1c67f1a240",
}
WIDTHS = {"main": 2, "llama3": 4}
STABLE = "same in 12 calls"


def write(path: Path, entries: list[list[int]], **options) -> Path:
    with Writer(path, **options) as writer:
        for entry in entries:
            writer.add_entry(entry)
    return path


@pytest.fixture(scope="module")
def corpus() -> list[list[int]]:
    return json.loads(gzip.decompress((HERE / "rest_corpus.json.gz").read_bytes()))


@pytest.fixture(scope="module")
def answers() -> list[dict]:
    lines = gzip.decompress((HERE / "rest_answers.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


def check_answers(reader: Reader, corpus: list[list[int]], asked: list[dict], chunk: int) -> int:
    """Stable answers as REST gave them, the others by its rule; returns how many were stable."""
    chunks, stable = chunks_of(corpus, chunk), 0
    for ask in asked:
        seen = reader.search(ask["query"], ask["k"], ask["choices"], ask["long"])
        nodes = prefixes(rows_to_paths(seen[0]))
        assert seen == buffers(seen[0])
        assert len(nodes) <= ask["choices"]
        if ask["result"] == STABLE:
            stable += 1
            assert nodes == set(map(tuple, ask["nodes"])), ask["query"]
            assert tuple(ask["tuple"]) == buffers(ask["tuple"][0])  # REST's own buffers, by hand
        wanted = select(chunks, ask["query"], ask["k"], ask["choices"], ask["long"])
        assert rows_to_paths(seen[0]) == wanted
    return stable


@pytest.mark.parametrize(("variant", "chunk"), FILES)
def test_our_file_is_byte_for_byte_rests_and_its_stable_answers_are_ours(
    tmp_path, corpus, answers, variant, chunk
):
    path = write(tmp_path / "x.idx", corpus, max_chunk_len=chunk, token_width=WIDTHS[variant])
    assert hashlib.sha256(path.read_bytes()).hexdigest() == FILES[variant, chunk]
    asked = [a for a in answers if a["variant"] == variant and a["chunk"] == chunk]
    assert check_answers(Reader(path), corpus, asked[::3], chunk) == 20


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the full record of REST's answers is not here")
@pytest.mark.parametrize(("variant", "chunk"), FILES)
def test_every_recorded_answer_of_rest(variant, chunk):
    corpus = json.loads((SHARED / "corpus.json").read_text())
    name = f"{variant}-chunk{chunk}"
    lines = (SHARED / f"{name}.jsonl").read_text().splitlines()
    asked = [json.loads(line) for line in lines]
    stable = check_answers(Reader(SHARED / f"{name}.idx"), corpus, asked, chunk)
    assert stable == sum(ask["result"] == STABLE for ask in asked) > 250


@pytest.mark.parametrize("width", [2, 4])
def test_the_example_of_the_format(tmp_path, width):
    path = write(tmp_path / "x.idx", [[1, 2, 3]], token_width=width)
    ids = {2: "06000000010002000300", 4: "0c000000010000000200000003000000"}[width]
    assert path.read_bytes().hex() == ids + "0c000000000000000100000002000000"
    assert Reader(path).reader.token_width == width


def test_ids_above_16_bits_are_stored_and_found(tmp_path):
    entries = [[65_534, 1], [65_535, 2], [65_536, 3], [65_537, 4], [69_999, 5], [0, 6], [4_463, 7]]
    reader = Reader(write(tmp_path / "x.idx", entries, vocab_size=70_000))
    for id_, following in entries:
        assert reader.search([id_], choices=1)[0] == [[following]]
    assert reader.reader.token_width == 4


@pytest.mark.parametrize("id_", [100, -1, 2**40])
def test_an_id_outside_the_vocabulary_is_an_exception(tmp_path, id_):
    writer = Writer(tmp_path / "x.idx", vocab_size=100)
    with pytest.raises(SpecretError, match=f"id {id_}, expected 0 to 99"):
        writer.add_entry([1, id_])
    writer.add_entry([99, 98])
    writer.close()
    assert len(Reader(tmp_path / "x.idx")) == 2


def test_a_later_wide_id_in_a_narrow_file_is_an_exception(tmp_path):
    writer = Writer(tmp_path / "x.idx")
    writer.add_entry([1])
    writer.dump_data()
    writer.add_entry([70_000])
    with pytest.raises(SpecretError, match="id 70000 does not fit in 16 bits"):
        writer.finalize()
    with pytest.raises(SpecretError):
        writer.close()


def test_entries_follow_one_another_as_in_rest(tmp_path):
    reader = Reader(write(tmp_path / "x.idx", [[1, 2], [], [3, 4]]))
    assert reader.search([1, 2]) == ([[3, -2], [3, 4]], [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
                                     [0, 1, 2], [0, 1, 2], [[0, 1, 2]])  # fmt: skip


def test_chunks_close_when_the_next_entry_does_not_fit(tmp_path):
    path = write(tmp_path / "x.idx", [[1, 2], [3], [4, 5, 6]], max_chunk_len=3)
    assert path.read_bytes()[:4] == b"\x06\0\0\0"
    assert Reader(path).search([3]) == ([], [], [], [], [])  # the chunk ends there
    with pytest.raises(SpecretError, match="entry is too big"):
        write(tmp_path / "y.idx", [[1, 2, 3, 4]], max_chunk_len=3)


def test_finalize_leaves_the_file_open_and_dropping_a_writer_finalizes_it(tmp_path):
    path = tmp_path / "x.idx"
    writer = Writer(path)
    writer.add_entry([1, 2])
    writer.finalize()
    assert len(Reader(path)) == 2
    writer.add_entry([3, 4])
    del writer
    assert len(Reader(path)) == 4


@pytest.mark.parametrize("choices", [1, 2, 8, 64, 100, -1])
def test_repeated_tokens_never_break_the_budget(tmp_path, choices):
    reader = Reader(write(tmp_path / "x.idx", [[7] * 60 + [8] + [7] * 60]))
    rows = reader.search([7, 7], choices=choices)[0]
    assert rows
    assert choices < 0 or len(prefixes(rows_to_paths(rows))) <= choices


def test_a_match_that_nothing_follows_is_empty(tmp_path):
    reader = Reader(write(tmp_path / "x.idx", [[1, 2, 3]]))
    assert reader.search([3]) == reader.search([2, 3]) == ([], [], [], [], [])
    assert (
        reader.search([1, 2, 3, 4])[0] == reader.search([-1])[0] == reader.search([2**40])[0] == []
    )
    assert reader.search([], choices=3)[0] == [[1], [2], [3]]


def test_arguments_that_abort_rest_raise(tmp_path):
    reader = Reader(write(tmp_path / "x.idx", [[1, 2, 3]]))
    for wrong in ({"choices": 0}, {"long": 0}, {"long": -3}):
        with pytest.raises(SpecretError):
            reader.search([1], **wrong)
    for text in ("12", None, 5, [1.5], np.zeros((1, 1), int), b"12"):
        with pytest.raises(TypeError):
            reader.search(text)
    assert reader.search([1], k=0) == reader.search([1], k=1)
    assert reader.search(np.array([1]), k=-1, choices=-1)[0] == [[2, -2], [2, 3]]
    for options in ({"max_chunk_len": 0}, {"vocab_size": 0}, {"token_width": 3}):
        with pytest.raises(SpecretError):
            Writer(tmp_path / "y.idx", **options)


def test_files_that_are_none_are_refused(tmp_path):
    path = write(tmp_path / "x.idx", [[1, 2, 3, 4]])
    whole = path.read_bytes()
    for at in range(1, len(whole)):
        path.write_bytes(whole[:at])
        with pytest.raises(SpecretError):
            Reader(path)
    path.write_bytes(b"")
    assert Reader(path).search([1])[0] == []
    with pytest.raises(FileNotFoundError):
        Reader(tmp_path / "missing.idx")
    with pytest.raises(OSError):
        Writer(tmp_path / "missing" / "x.idx")


def test_flipped_bytes_never_abort(tmp_path):
    path = write(tmp_path / "x.idx", [[1, 2, 3, 1, 2]])
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            try:
                reader = Reader(path)
            except SpecretError:
                continue
            assert len(reader.search([1, 2], choices=4)[2]) <= 5


def test_one_reader_serves_16_threads(tmp_path, corpus):
    reader = Reader(write(tmp_path / "x.idx", corpus))
    rng = np.random.default_rng(0)
    flat = [token for entry in corpus for token in entry]
    queries = [flat[i : i + 2] for i in rng.integers(0, len(flat) - 2, 500)]
    serial = [reader.search(query) for query in queries]
    with ThreadPoolExecutor(16) as pool:
        for answer in pool.map(lambda _: [reader.search(query) for query in queries], range(16)):
            assert answer == serial


@pytest.mark.slow
def test_other_threads_run_while_five_million_tokens_are_sorted(tmp_path):
    writer = Writer(tmp_path / "x.idx", vocab_size=1000)
    writer.add_entry(np.random.default_rng(0).zipf(1.3, 5_000_000) % 1000)
    gaps, done = [0.0], threading.Event()

    def tick() -> None:
        last = perf_counter()
        while not done.wait(0.01):
            gaps.append(perf_counter() - last)
            last = perf_counter()

    ticker = threading.Thread(target=tick)
    ticker.start()
    writer.finalize()
    done.set()
    ticker.join()
    assert len(gaps) > 10
    assert max(gaps) < 0.2
