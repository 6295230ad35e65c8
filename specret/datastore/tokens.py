"""Documents to token files: one run of ids, where each document starts, where it came from.

In: a corpus and a tokenizer. Out: tokens (raw little-endian uint16, or uint32 where the
vocabulary needs it), offsets (uint64, one more than documents), documents and skipped (JSON
lines). Knows no model. A killed run goes on at its last checkpoint and ends byte-identical.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from specret.datastore.corpus import Corpus, shown
from specret.datastore.durable import (
    TEMPORARY,
    Marker,
    Progress,
    canonical,
    entry,
    marker_path,
    read_marker,
    settle,
    write_marker,
    write_whole,
)
from specret.datastore.sources import Place, Text
from specret.protocols import Tokenizer
from specret.types import SpecretError

BATCH_CHARS = 1 << 22
"""Text that is tokenised at once: enough to fill the cores, small against a model."""

PIECE_CHARS = 1 << 20
"""Longer documents are tokenised in pieces cut at line ends: bounded memory, all cores busy."""

MAX_TOKENS = (1 << 32) - 1
"""Positions in the suffix index are 32 bits wide."""

ROLES = ("tokens", "offsets", "documents", "skipped")


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The narrowest little-endian type that holds every id of the vocabulary."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def write_tokens(
    folder: Path,
    key: str,
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    vocab_size: int,
    max_tokens: int | None,
    expected: int,
    progress: Progress,
) -> Marker:
    """Tokenise a corpus into `folder`/tokens/, or go on where a killed run stopped.

    Args:
        folder: the store.
        key: names this run; another corpus, tokenizer or limit has another.
        corpus: what to read.
        tokenizer: gives the ids.
        vocab_size: ids must be below it.
        max_tokens: stop exactly there, cutting the last document; None: no limit.
        expected: tokens in all, about.
        progress: told of stage "tokens".

    Returns:
        The marker: files by role (`ROLES`), facts documents, tokens, width, skipped.

    Raises:
        SpecretError: nothing usable in the corpus, an id outside the vocabulary, reading failed.
    """
    name = f"{key}.tokens"
    if done := read_marker(folder, name):
        return done
    limit = MAX_TOKENS if max_tokens is None else min(max_tokens, MAX_TOKENS)
    with _Writer(folder, key, token_dtype(vocab_size)) as writer:
        for batch in _batches(corpus.read(writer.place)):
            for text, ids in zip(batch, _encode(tokenizer, batch), strict=True):
                _check_ids(ids, vocab_size, text.name)
                writer.add(text, ids[: limit - writer.tokens])
            writer.save(corpus.skipped)
            progress("tokens", writer.tokens, max(expected, writer.tokens))
            if writer.tokens >= limit:
                break
        writer.save(corpus.skipped)  # those after the last document
        if not writer.documents:
            writer.discard()
            raise no_document(corpus)
        return writer.finish(name)


def write_documents(
    folder: Path,
    name: str,
    ids: Sequence[NDArray[Any]],
    origins: Sequence[tuple[str, str]],
    skipped: Sequence[tuple[str, str]],
    vocab_size: int,
) -> Marker:
    """The same files from documents that are ids already.

    Args:
        folder: the store.
        name: of the stage, the build's key and ".tokens".
        ids: of each document (T,), none of them empty.
        origins: name and licence of each.
        skipped: name and reason of what was passed over.
        vocab_size: ids are below it.
    """
    key = name.removesuffix(".tokens")
    _checkpoint(folder, key).unlink(missing_ok=True)  # done at once, so done anew after a kill
    with _Writer(folder, key, token_dtype(vocab_size)) as writer:
        for document, (origin, licence) in zip(ids, origins, strict=True):
            writer.add(Text("", origin, (0, 0), licence), document)
        writer.save(skipped)
        return writer.finish(name)


class _Writer:
    """The growing token files, and a checkpoint that says how much of them counts."""

    def __init__(self, folder: Path, key: str, dtype: np.dtype[Any]) -> None:
        self.place: Place = (0, 0)
        self.documents = self.tokens = self.skipped = 0
        self._folder, self._dtype = folder, dtype
        self._checkpoint = _checkpoint(folder, key)
        self._final = {role: folder / "tokens" / f"{key}.{role}" for role in ROLES}
        self._partial = {r: p.with_name(p.name + TEMPORARY) for r, p in self._final.items()}
        self._reported = 0  # of the corpus' list of skipped, in this run
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> "_Writer":
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        self._final["tokens"].parent.mkdir(exist_ok=True)
        sizes = self._resume()
        for role, path in self._partial.items():
            self._files[role] = path.open("r+b" if sizes else "wb")
            self._files[role].truncate(sizes.get(role, 0))
            self._files[role].seek(0, os.SEEK_END)
        if not sizes:
            self._files["offsets"].write(np.zeros(1, "<u8").tobytes())
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def _resume(self) -> dict[str, int]:
        """Bytes of each partial file that count; none where there is nothing to go on with."""
        if not self._checkpoint.is_file():
            return {}
        saved = json.loads(self._checkpoint.read_bytes())
        sizes: dict[str, int] = saved["bytes"]
        for role, path in self._partial.items():
            if not path.is_file() or path.stat().st_size < sizes[role]:
                return {}
        self.place = (saved["place"][0], saved["place"][1])
        self.documents, self.tokens = saved["documents"], saved["tokens"]
        self.skipped = saved["skipped"]
        return sizes

    def add(self, text: Text, ids: NDArray[Any]) -> None:
        """Append one document; one without tokens is not kept."""
        self.place = text.after
        if not len(ids):
            return
        self.documents += 1
        self.tokens += len(ids)
        self._files["tokens"].write(ids.astype(self._dtype).tobytes())
        self._files["offsets"].write(np.array([self.tokens], "<u8").tobytes())
        self._files["documents"].write(_line({"name": text.name, "licence": text.licence}))

    def save(self, skipped: Sequence[tuple[str, str]]) -> None:
        """Make everything so far count."""
        for name, reason in skipped[self._reported :]:
            self._files["skipped"].write(_line({"name": name, "reason": reason}))
        self.skipped += len(skipped) - self._reported
        self._reported = len(skipped)
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        state = {
            "bytes": {role: file.tell() for role, file in self._files.items()},
            "place": self.place,
            "documents": self.documents,
            "tokens": self.tokens,
            "skipped": self.skipped,
        }
        write_whole(self._checkpoint, canonical(state))

    def discard(self) -> None:
        """Leave nothing behind."""
        for path in (self._checkpoint, *self._partial.values()):
            path.unlink()

    def finish(self, name: str) -> Marker:
        """Give the files their names and mark them."""
        for role, file in self._files.items():
            file.close()
            settle(self._partial[role], self._final[role])
        rows = dict(
            zip(ROLES, (self.tokens, self.documents + 1, self.documents, self.skipped), strict=True)
        )
        files = {role: entry(self._folder, self._final[role], rows[role]) for role in ROLES}
        facts = {
            "documents": self.documents,
            "tokens": self.tokens,
            "skipped": self.skipped,
            "width": self._dtype.itemsize,
        }
        marker = write_marker(self._folder, name, files, facts)
        self._checkpoint.unlink()
        return marker


def _checkpoint(folder: Path, key: str) -> Path:
    return marker_path(folder, f"{key}.tokens{TEMPORARY}")


def _batches(texts: Iterator[Text]) -> Iterator[list[Text]]:
    batch: list[Text] = []
    chars = 0
    for text in texts:
        batch.append(text)
        chars += len(text.text)
        if chars >= BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _encode(tokenizer: Tokenizer, batch: Sequence[Text]) -> Iterable[NDArray[np.int64]]:
    """Ids of each text, without special tokens around it."""
    pieces = [_pieces(text.text) for text in batch]
    flat = [piece for group in pieces for piece in group]
    ids = iter(
        tokenizer(flat, add_special_tokens=False, return_attention_mask=False, verbose=False)[
            "input_ids"
        ]
    )
    for group in pieces:
        yield np.concatenate([np.array(next(ids), np.int64) for _ in group])


def _pieces(text: str) -> list[str]:
    pieces, start = [], 0
    while len(text) - start > PIECE_CHARS:
        cut = text.rfind("\n", start, start + PIECE_CHARS) + 1
        cut = cut if cut > start else start + PIECE_CHARS
        pieces.append(text[start:cut])
        start = cut
    return [*pieces, text[start:]]


def _check_ids(ids: NDArray[np.int64], vocab_size: int, name: str) -> None:
    if len(ids) and int(ids.max()) >= vocab_size:
        raise SpecretError(
            f"{name}: the tokenizer gives id {int(ids.max())}, the model has {vocab_size} ids",
            "use the tokenizer that belongs to the model",
        )


def _line(record: dict[str, str]) -> bytes:
    return (json.dumps(record) + "\n").encode()


def no_document(corpus: Corpus) -> SpecretError:
    """The error for a corpus in which a reading found nothing usable."""
    return SpecretError(
        f"corpus {corpus.spec!r} holds no usable document{shown(corpus.skipped)}",
        "name a corpus of UTF-8 text; rows need a column text, content or code",
    )
