"""The compiled suffix index: corpora on disk and texts that grow. See `rust/src/lib.rs`."""

from os import PathLike
from typing import Literal, Self, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LegacyIndex",
    "LiveIndex",
    "SuffixIndex",
    "TreeArrays",
    "build_suffix",
    "legacy_chunk",
]

_Ids = NDArray[np.int64] | NDArray[np.uint32]

@final
class TreeArrays:
    """A draft tree of N nodes; all arrays are (N,), `parents[i] < i`, -1 is the root."""

    @property
    def tokens(self) -> NDArray[np.int64]: ...
    @property
    def parents(self) -> NDArray[np.int32]: ...
    @property
    def prob(self) -> NDArray[np.float32]:
        """Probability given the parent, in [0, 1]."""
    @property
    def match_len(self) -> NDArray[np.float32]:
        """Longest suffix of the context that some supporting occurrence follows (0 for `tree`)."""
    @property
    def count(self) -> NDArray[np.float32]:
        """Occurrences of the node after that suffix; scaled up where matches were sampled."""
    @property
    def origin(self) -> NDArray[np.int64]:
        """Token position where one supporting occurrence of the node's token stands."""
    def __len__(self) -> int: ...

@final
class SuffixIndex:
    """Suffix index of a corpus, memory-mapped. Immutable; threads may share it."""

    @staticmethod
    def open(
        tokens_path: str | PathLike[str],
        token_width: int,
        suffix_path: str | PathLike[str],
        vocab_size: int,
    ) -> SuffixIndex:
        """Map and check both files.

        Raises:
            OSError: a file cannot be read.
            SpecretError: sizes, checksums, widths or the vocabulary do not fit.
        """
    def __len__(self) -> int:
        """Number of tokens."""
    @property
    def documents(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    def draft(
        self,
        context: _Ids,
        *,
        max_nodes: int,
        max_depth: int,
        rule: Literal["blend", "rest"] = "blend",
        min_match: int = 1,
        max_match: int = 16,
        levels: int = 4,
        samples: int = 500,
        escape: float = 8.0,
    ) -> TreeArrays:
        """What followed the last tokens of `context` (T,) in the corpus.

        _Ids outside the vocabulary match nothing.

        Args:
            context: token ids, newest last.
            max_nodes: the tree has at most so many nodes.
            max_depth: and is at most so deep.
            rule: `blend` mixes up to `levels` suffix lengths by escape weights and reads up to
                `samples` matches of each, evenly spaced; `rest` takes the longest suffix, its
                first `samples` matches in suffix-array order, and plain counts (its `min_match`
                is 2 and its `samples` 5000).
            min_match: shortest suffix that counts.
            max_match: longest suffix that is looked up.
            levels: suffix lengths that speak at most (blend).
            samples: matches of one suffix length that are read at most.
            escape: at every node n matches with d different next tokens share n / (n + escape * d)
                of what longer suffixes left (blend; 1 is method C of PPM). More of it trusts few
                matches less and prefers breadth to depth.

        Raises:
            SpecretError: an option outside its range.
        """
    def tree(
        self,
        positions: NDArray[np.int64],
        weights: NDArray[np.float32],
        *,
        max_nodes: int,
        max_depth: int,
        skip: int = 0,
        escape: float = 0.0,
    ) -> TreeArrays:
        """The continuations that start at token `positions` (k,), each with its weight (k,).

        A continuation ends with its document; positions outside the corpus have none. `skip`
        tokens are passed over first. A weight of 1 is that of one match (2^20 at most). Without
        `escape` a node's probability is its share of its parent's weight, and the root's is that
        of all positions; with it, as in `draft`.

        Raises:
            SpecretError: a negative or non-finite weight, or arrays of two lengths.
        """

@final
class LiveIndex:
    """Index of a text that grows: the prompt and what was written since. Threads may share it."""

    def __new__(cls, vocab_size: int) -> Self: ...
    def __len__(self) -> int:
        """Number of tokens."""
    @property
    def vocab_size(self) -> int: ...
    def extend(self, tokens: _Ids) -> None:
        """Append tokens; all or, on an error, none.

        Raises:
            SpecretError: an id outside the vocabulary.
        """
    def new_document(self) -> None:
        """What comes next belongs to another document: no match crosses into it."""
    def clear(self) -> None:
        """Forget everything."""
    def draft(
        self,
        context: _Ids,
        *,
        max_nodes: int,
        max_depth: int,
        min_match: int = 1,
        max_match: int = 16,
        levels: int = 16,
        latest: int = 8,
        escape: float = 1.0,
    ) -> TreeArrays:
        """What followed the last tokens of `context` (T,) earlier in this text.

        As `SuffixIndex.draft`, but of each suffix length only the `latest` matches are read.
        Positions are those of this text. A continuation that reaches the end of the text goes
        on with its own beginning.

        Raises:
            SpecretError: an option outside its range.
        """

_Rows = list[list[int]]

@final
class LegacyIndex:
    """An index file of REST's `draftretriever`, memory-mapped. Threads may share it."""

    @staticmethod
    def open(path: str | PathLike[str]) -> LegacyIndex:
        """Map a file of either variant; which one its chunks tell.

        Raises:
            OSError: the file cannot be read.
            SpecretError: chunks do not tile it, or their parts do not fit together.
        """
    def __len__(self) -> int:
        """Number of tokens."""
    @property
    def token_width(self) -> int:
        """2 (REST's branch `main`) or 4 (`llama3`)."""
    def search(
        self, query: _Ids, *, matches: int | None, choices: int | None, long: int
    ) -> tuple[_Rows, _Rows, list[int], list[int], _Rows]:
        """REST's five buffers for the continuations of `query`; None is without limit."""

def legacy_chunk(ids: NDArray[np.uint32], token_width: int) -> bytes:
    """One chunk of such a file.

    Raises:
        SpecretError: an id that does not fit the width, or too many of them.
    """

def build_suffix(
    tokens_path: str | PathLike[str],
    token_width: int,
    offsets: NDArray[np.uint64],
    vocab_size: int,
    out_path: str | PathLike[str],
) -> None:
    """Build the suffix file of a token file, in time linear in its length.

    Args:
        tokens_path: little-endian ids of `token_width` bytes, nothing else.
        token_width: 2 or 4.
        offsets: (D+1,) where each of D documents starts, and the number of tokens.
        vocab_size: every id must be below it.
        out_path: written beside and renamed when complete.

    Raises:
        OSError: a file cannot be read or written.
        SpecretError: an id outside the vocabulary, bounds that do not fit, or more than 2^31-2
            tokens.
        KeyboardInterrupt: at once; no file appears.
    """
