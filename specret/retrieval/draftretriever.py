"""REST's `draftretriever`, compatible: its names, arguments, defaults, files and 5-tuples.

In: lists of token ids; index files of REST's branch `main` (16-bit ids) or `llama3` (32-bit).
Out: the same files, and answers by REST's rule, deterministic and within `choices`; what makes
REST abort raises an exception here. Entries are not separated: continuations cross them, as
REST's do. Knows nothing of specret's own datastore.
"""

from collections.abc import Sequence
from os import PathLike
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from specret._suffix import LegacyIndex, legacy_chunk
from specret.types import SpecretError

MAX_CHUNK_LEN = 512 * 1024 * 1024
"""Tokens of one chunk, as in REST."""

Buffers = tuple[list[list[int]], list[list[int]], list[int], list[int], list[list[int]]]
"""retrieved_token_list, draft_attn_mask, tree_indices, draft_position_ids, retrieve_indices."""


class Writer:
    """Writes an index file chunk by chunk. The file is created or emptied at once.

    Args:
        index_file_path: the file.
        max_chunk_len: tokens of one chunk at most; None: 512 Mi.
        vocab_size: ids must be below it; None: any id of 32 bits.
        token_width: bytes of an id in the file, 2 (as REST's `main`) or 4 (as `llama3`); None:
            4 where `vocab_size` or, without it, an id of the first chunk needs it, else 2.

    Raises:
        OSError: the file cannot be written.
        SpecretError: an argument outside its range.
    """

    def __init__(
        self,
        index_file_path: str | PathLike[str],
        max_chunk_len: int | None = None,
        vocab_size: int | None = None,
        *,
        token_width: int | None = None,
    ) -> None:
        self._closed = True
        self._most = MAX_CHUNK_LEN if max_chunk_len is None else max_chunk_len
        self._vocab_size = 1 << 32 if vocab_size is None else vocab_size
        self._width = token_width
        if not 0 < self._most <= MAX_CHUNK_LEN:
            raise SpecretError(f"max_chunk_len {self._most}, expected 1 to {MAX_CHUNK_LEN}")
        if not 0 < self._vocab_size <= 1 << 32:
            raise SpecretError(f"vocab_size {vocab_size}, expected 1 to 2^32")
        if token_width not in (None, 2, 4):
            raise SpecretError(f"token_width {token_width}, expected 2 or 4")
        if token_width is None and vocab_size is not None:
            self._width = 2 if vocab_size <= 1 << 16 else 4
        self._entries: list[NDArray[np.uint32]] = []
        self._tokens = 0
        self._file = open(index_file_path, "wb")  # noqa: SIM115 - closed by close()
        self._closed = False

    def add_entry(self, py_text: Sequence[int]) -> None:
        """Append the ids of one text.

        Raises:
            SpecretError: an id outside the vocabulary, or more ids than one chunk holds.
            TypeError: not a sequence of whole numbers.
        """
        ids = _as_ids(py_text)
        if len(ids) == 0:
            return
        outside = ids[(ids < 0) | (ids >= self._vocab_size)]
        if len(outside):
            raise SpecretError(
                f"id {outside[0]}, expected 0 to {self._vocab_size - 1}",
                "pass vocab_size: the tokenizer's length with its added tokens",
            )
        if len(ids) > self._most:
            raise SpecretError(f"entry is too big: {len(ids)} ids, a chunk holds {self._most}")
        if self._tokens + len(ids) > self._most:
            self.dump_data()
        self._entries.append(ids.astype(np.uint32))
        self._tokens += len(ids)

    def dump_data(self) -> None:
        """Sort and write the current chunk.

        Raises:
            OSError: the file cannot be written.
            SpecretError: an id that does not fit the width of the chunks before.
        """
        if not self._entries:
            return
        ids = np.concatenate(self._entries)
        if self._width is None:
            self._width = 2 if int(ids.max()) < 1 << 16 else 4
        self._file.write(legacy_chunk(ids, self._width))
        self._entries, self._tokens = [], 0

    def finalize(self) -> None:
        """Write what is left and flush. More entries may follow, as a new chunk.

        Raises:
            OSError: the file cannot be written.
            SpecretError: as for `dump_data`.
        """
        self.dump_data()
        self._file.flush()

    def close(self) -> None:
        """Finalize and close the file. REST does so when a Writer is dropped, and so do we."""
        if not self._closed:
            self._closed = True
            try:
                self.finalize()
            finally:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Reader:
    """Answers from an index file. Threads may share it.

    Raises:
        OSError: the file cannot be read.
        SpecretError: it is not such a file, or it is cut short.
    """

    def __init__(self, index_file_path: str | PathLike[str]) -> None:
        self.reader = LegacyIndex.open(index_file_path)

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.reader)

    def search(
        self,
        py_substring: Sequence[int],
        k: int | None = None,
        choices: int | None = None,
        long: int | None = None,
    ) -> Buffers:
        """The tree of what follows `py_substring`, as REST's five lists; empty without a match.

        Args:
            py_substring: the ids to find; an id that no file can hold matches nothing.
            k: matches read in each chunk; None: 5000; 0 counts as 1, below 0 is without limit.
            choices: nodes of the tree at most; None: 64; below 0 is without limit.
            long: tokens read after each match; None: 10.

        Raises:
            SpecretError: `choices` of 0, `long` below 1.
            TypeError: not a sequence of whole numbers.
        """
        k, choices, long = _or(k, 5000), _or(choices, 64), _or(long, 10)
        if choices == 0:
            raise SpecretError("choices is 0, expected at least 1 (below 0: without limit)")
        if long < 1:
            raise SpecretError(f"long is {long}, expected at least 1")
        query = _as_ids(py_substring)
        if ((query < 0) | (query >= 1 << 32)).any():
            return [], [], [], [], []
        return self.reader.search(
            query,
            matches=None if k < 0 else max(k, 1),
            choices=None if choices < 0 else choices,
            long=min(long, (1 << 32) - 1),
        )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _as_ids(ids: Sequence[int]) -> NDArray[np.int64]:
    """Ids (n,) of a list, tuple or array.

    Raises:
        TypeError: something else, or entries that are no whole numbers.
    """
    array = np.asarray(ids) if isinstance(ids, Sequence | np.ndarray) else None
    if array is None or isinstance(ids, str | bytes) or array.ndim != 1:
        raise TypeError(f"{type(ids).__name__}, expected a list of token ids")
    if len(array) and array.dtype.kind not in "iub":
        raise TypeError(f"ids of type {array.dtype}, expected whole numbers")
    return array.astype(np.int64)
