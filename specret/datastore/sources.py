"""Where texts are read from: files, rows of files, rows of a data set on the hub.

In: paths or a data set's name. Out: `Text`s and `Skip`s in a fixed order, from any place on.
Knows no tokenizer. Retrying is the corpus' business; here a fault is raised as it comes.
"""

import errno
import json
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from specret.datastore.turns import COLUMNS, Turn, turns_of
from specret.types import SpecretError

Place = tuple[int, int]
"""A place to go on reading from: (file, row within it)."""

TEXT_COLUMNS = ("text", "content", "code")
KNOWN_COLUMNS = (*TEXT_COLUMNS, *COLUMNS)
ROWS = (".jsonl", ".parquet")
"""Suffixes of files that hold a document in each row."""

LICENCE_COLUMNS = ("license", "licence")
LASTING = {
    errno.EACCES: "not readable: permission denied",
    errno.EPERM: "not readable: permission denied",
    errno.ENOENT: "not there any more, or a link to nothing",
    errno.ELOOP: "a link that leads to itself",
    errno.ENOTDIR: "not there any more",
}
"""Faults that another try would not mend, and what to call them."""


@dataclass(frozen=True, slots=True)
class Text:
    """One document: its text, where it came from, its licence if known, where reading goes on.

    `turns` tells the text of a dialogue apart.
    """

    text: str
    name: str
    after: Place
    licence: str = ""
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that is no document, and why."""

    name: str
    reason: str
    after: Place


class Source(Protocol):
    """Texts in a fixed order."""

    faults: tuple[type[Exception], ...]  # what reading may raise and another try may mend

    @property
    def identity(self) -> str:
        """Changes when the texts change, as far as can be seen without reading them."""

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Files or rows, and bytes, where they are known without reading."""

    def starts(self, number: int) -> list[Place]:
        """Up to `number` places spread over the texts, as far as they are reached at once."""

    def items(self, start: Place) -> Iterator[Text | Skip]:
        """Everything from a place on; (0, 0) is the beginning."""


class Files:
    """Files in the given order: text files whole, JSONL and Parquet files row by row.

    Args:
        paths: (name, path) of each file.
    """

    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, paths: Iterable[tuple[str, Path]]) -> None:
        self.paths = list(paths)

    @cached_property
    def _stats(self) -> list[tuple[str, int, int]]:
        rows = []
        for name, path in self.paths:
            try:
                seen = path.stat()
            except OSError:
                rows.append((name, 0, 0))  # named as skipped when its turn comes
            else:
                rows.append((name, seen.st_size, seen.st_mtime_ns))
        return rows

    @property
    def identity(self) -> str:
        """Digest of names, sizes and times of change."""
        return sha256(json.dumps(self._stats).encode()).hexdigest()

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Files, and their bytes together; how many documents files of rows hold is not known."""
        rows = any(path.suffix in ROWS for _, path in self.paths)
        return None if rows else len(self.paths), sum(size for _, size, _ in self._stats)

    def starts(self, number: int) -> list[Place]:
        """The beginnings of up to `number` files, evenly spaced."""
        number = min(number, len(self.paths))
        return [(i * len(self.paths) // number, 0) for i in range(number)]

    def items(self, start: Place) -> Iterator[Text | Skip]:
        """Everything from a place on.

        Raises:
            OSError: a read failed in a way that another try may mend.
        """
        for number in range(start[0], len(self.paths)):
            name, path = self.paths[number]
            row = start[1] if number == start[0] else 0
            try:
                yield from _read_file(name, path, (number, row))
            except OSError as fault:
                if fault.errno not in LASTING:
                    raise
                yield Skip(name, LASTING[fault.errno], (number + 1, 0))


class HubRows:
    """Rows of a data set, streamed: `NAME[:CONFIG]`, its train split or else its first one.

    Raises:
        SpecretError: there is no such data set or configuration, it cannot be reached, or it is
            known to have no column of text.
    """

    # `datasets` tries a broken connection again and again itself, then raises a ConnectionError
    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, name: str, config: str | None) -> None:
        import datasets

        self.name = name
        try:
            self._builder = datasets.load_dataset_builder(name, config)
            splits = self._builder.as_streaming_dataset()
        except (OSError, ValueError) as fault:
            raise SpecretError(
                f"data set {name!r} cannot be opened: {fault}",
                "check the name, the configuration (hf:NAME:CONFIG) and the network",
            ) from fault
        self.split = "train" if "train" in splits else next(iter(splits))
        self._rows = splits[self.split]
        columns = self._rows.column_names  # None where nothing but reading would tell
        if columns is not None and not set(columns) & set(KNOWN_COLUMNS):
            raise SpecretError(
                f"data set {name!r}: {_no_text(columns)}",
                'save the column that holds the text as a JSONL file with rows {"text": ...}',
            )

    @property
    def identity(self) -> str:
        """The revision as `datasets` sees it (of local files: their times of change)."""
        return f"{self._builder.hash}:{self._builder.config.name}:{self.split}"

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Rows and bytes, where the data set's card tells them."""
        split = (self._builder.info.splits or {}).get(self.split)
        return (split.num_examples, split.num_bytes) if split is not None else (None, None)

    def starts(self, number: int) -> list[Place]:
        """Only the beginning: a stream reaches no other place at once."""
        return [(0, 0)]

    def items(self, start: Place) -> Iterator[Text | Skip]:
        """Every row from a place on."""
        rows = self._rows.skip(start[1]) if start[1] else self._rows
        name = f"{self.name}/{self.split}"
        for number, row in enumerate(rows, start[1]):
            yield row_text(row, f"{name}:{number}", (0, number + 1))


def _read_file(name: str, path: Path, start: Place) -> Iterator[Text | Skip]:
    number, row = start
    if path.suffix == ".jsonl":
        yield from _json_rows(name, path, start)
    elif path.suffix == ".parquet":
        yield from _parquet_rows(name, path, start)
    elif row == 0:
        yield _whole_file(name, path, (number, 1))


def _whole_file(name: str, path: Path, after: Place) -> Text | Skip:
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        folder = stat.S_ISDIR(mode)
        reason = "a folder that is a link or cannot be listed" if folder else "not a regular file"
        return Skip(name, reason, after)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        return Skip(name, f"not UTF-8 (byte {fault.start})", after)
    return Text(text, name, after)


def _json_rows(name: str, path: Path, start: Place) -> Iterator[Text | Skip]:
    number, first = start
    with path.open("rb") as file:
        for row, line in enumerate(islice(file, first, None), first):
            where, after = f"{name}:{row + 1}", (number, row + 1)
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError:
                yield Skip(where, "not JSON", after)
                continue
            yield row_text(value, where, after)


def _parquet_rows(name: str, path: Path, start: Place) -> Iterator[Text | Skip]:
    import pyarrow
    import pyarrow.parquet

    number, first = start
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as fault:
        yield Skip(name, f"not Parquet: {fault}", (number + 1, 0))
        return
    with file:
        if not set(file.schema_arrow.names) & set(KNOWN_COLUMNS):
            yield Skip(name, _no_text(file.schema_arrow.names), (number + 1, 0))
            return
        row = 0
        for batch in file.iter_batches(batch_size=256):
            for value in batch.to_pylist():
                if row >= first:
                    yield row_text(value, f"{name}:{row + 1}", (number, row + 1))
                row += 1


def row_text(row: Any, name: str, after: Place) -> Text | Skip:
    """The text of one row: the first of `TEXT_COLUMNS` that it has, or else its dialogue."""
    if not isinstance(row, Mapping):
        return Skip(name, "not a JSON object", after)
    licences = [row[column] for column in LICENCE_COLUMNS if isinstance(row.get(column), str)]
    licence = licences[0] if licences else ""
    known = [column for column in TEXT_COLUMNS if column in row]
    if known:
        text = row[known[0]]
        if not isinstance(text, str):
            return Skip(name, "its text is not a string", after)
        return Text(text, name, after, licence)
    if not any(column in row for column in KNOWN_COLUMNS):
        return Skip(name, _no_text(row), after)
    turns = turns_of(row)
    if not turns:
        return Skip(name, "its dialogue does not begin with text of a user or an assistant", after)
    return Text("\n\n".join(turn.content for turn in turns), name, after, licence, turns)


def _no_text(columns: Iterable[str]) -> str:
    return f"no column {', '.join(KNOWN_COLUMNS)}; it has {', '.join(columns) or 'none'}"
