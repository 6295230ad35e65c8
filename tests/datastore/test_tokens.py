"""Token files hold exactly the documents' ids, in as few bytes as the vocabulary allows."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_stores import ByteTokenizer, Faulty, contents, prose, write_files

from specret.datastore import corpus as corpus_module
from specret.datastore import tokens as tokens_module
from specret.datastore.corpus import Corpus, open_corpus
from specret.datastore.durable import Marker
from specret.datastore.tokens import PIECE_CHARS, token_dtype, write_tokens
from specret.types import SpecretError


def write(corpus: Corpus, folder: Path, **options: Any) -> Marker:
    chosen = {"vocab_size": 256, "max_tokens": None, "expected": 0} | options
    return write_tokens(
        folder, "0123456789ab", corpus, ByteTokenizer(), progress=lambda *_: None, **chosen
    )


def read(folder: Path, marker: Marker) -> list[bytes]:
    """The documents as written."""
    tokens = np.fromfile(folder / marker.files["tokens"].path, f"<u{marker.facts['width']}")
    offsets = np.fromfile(folder / marker.files["offsets"].path, "<u8").tolist()
    assert offsets[0] == 0
    assert offsets[-1] == len(tokens) == marker.facts["tokens"]
    return [bytes(tokens[a:b].tolist()) for a, b in pairwise(offsets)]


@pytest.mark.parametrize(("vocab_size", "width"), [(256, 2), (1 << 16, 2), ((1 << 16) + 1, 4)])
def test_documents_come_back_as_they_were(tmp_path: Path, vocab_size: int, width: int) -> None:
    texts = prose(7, 30)
    corpus = open_corpus(str(write_files(tmp_path / "in", texts)))
    marker = write(corpus, tmp_path / "out", vocab_size=vocab_size)
    assert marker.facts["width"] == width == token_dtype(vocab_size).itemsize
    assert read(tmp_path / "out", marker) == [text.encode() for text in texts]
    names = (tmp_path / "out" / marker.files["documents"].path).read_text().splitlines()
    assert [json.loads(line)["name"] for line in names] == [f"{n:04d}.txt" for n in range(7)]


def test_skipped_files_are_written_down(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "in", ["good", "", "good too", "a\0b"])
    marker = write(open_corpus(str(folder)), tmp_path / "out")
    lines = (tmp_path / "out" / marker.files["skipped"].path).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["name"] for row in rows] == ["0001.txt", "0003.txt"]
    assert marker.facts == {"documents": 2, "tokens": 12, "skipped": 2, "width": 2}


@pytest.mark.parametrize("limit", [1, 99, 100, 101, 350, 10_000])
def test_the_limit_of_tokens_is_exact(tmp_path: Path, limit: int) -> None:
    texts = ["x" * 100, "y" * 100, "z" * 100]
    corpus = open_corpus(str(write_files(tmp_path / "in", texts)))
    marker = write(corpus, tmp_path / "out", max_tokens=limit)
    documents = read(tmp_path / "out", marker)
    assert b"".join(documents) == "".join(texts).encode()[:limit]
    assert all(documents)


def test_an_id_outside_the_models_vocabulary_is_refused(tmp_path: Path) -> None:
    corpus = open_corpus(str(write_files(tmp_path / "in", ["az"])))
    with pytest.raises(SpecretError, match=r"0000.txt.*id 122.*100 ids"):
        write(corpus, tmp_path / "out", vocab_size=100)


def test_nothing_usable_is_an_error_that_names_files_and_leaves_nothing(tmp_path: Path) -> None:
    corpus = open_corpus(str(write_files(tmp_path / "in", ["", " ", "a\0", "\0", "\0"])))
    with pytest.raises(SpecretError, match=r"no usable document(?s:.*)0000.txt: empty") as fault:
        write(corpus, tmp_path / "out")
    assert "2 more" in str(fault.value)
    assert contents(tmp_path / "out") == {}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["a", "bb\n", "\n", "é", "ccccc"]), max_size=40))
def test_pieces_of_a_document_are_bounded_and_join_to_it(parts: list[str]) -> None:
    text = "".join(parts)
    before, tokens_module.PIECE_CHARS = tokens_module.PIECE_CHARS, 7
    try:
        pieces = tokens_module._pieces(text)
    finally:
        tokens_module.PIECE_CHARS = before
    assert "".join(pieces) == text
    assert all(len(piece) <= 7 for piece in pieces)
    cut_inside_lines = [p for p in pieces[:-1] if not p.endswith("\n")]
    assert all("\n" not in piece for piece in cut_inside_lines)


def test_a_long_document_is_tokenised_whole(tmp_path: Path) -> None:
    text = "line\n" * (PIECE_CHARS // 4)
    corpus = open_corpus(str(write_files(tmp_path / "in", [text])))
    marker = write(corpus, tmp_path / "out")
    assert read(tmp_path / "out", marker) == [text.encode()]


def test_a_reading_that_broke_off_goes_on_and_ends_byte_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(tokens_module, "BATCH_CHARS", 60)
    write(Corpus("x", Faulty(0, 0)), tmp_path / "whole")
    broken = Faulty(100, float("inf"))
    with pytest.raises(SpecretError, match="went away"):
        write(Corpus("x", broken), tmp_path / "resumed")
    partial = (tmp_path / "resumed/tokens/0123456789ab.documents.partial").stat().st_size
    assert partial > 0
    mended = Faulty(100, 0)
    asked = []
    items = mended.items
    mended.items = lambda start: asked.append(start) or items(start)  # type: ignore[method-assign]
    marker = write(Corpus("x", mended), tmp_path / "resumed")
    assert asked[0][1] > 80
    assert marker.facts["documents"] == 200
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_checkpoint_without_its_files_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(corpus_module, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(tokens_module, "BATCH_CHARS", 60)
    write(Corpus("x", Faulty(0, 0)), tmp_path / "whole")
    with pytest.raises(SpecretError, match="went away"):
        write(Corpus("x", Faulty(100, float("inf"))), tmp_path / "resumed")
    partial = tmp_path / "resumed/tokens/0123456789ab.tokens.partial"
    partial.unlink() if damage == "missing" else partial.write_bytes(b"ab")
    write(Corpus("x", Faulty(0, 0)), tmp_path / "resumed")
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")
