"""Nearest keys among those that one token follows: the only file that imports faiss.

In: keys (n, d), the token that follows each, its position. Out: an inverted file whose lists are
the following tokens, eight bits a dimension, inner product. Knows no text and no model.

The newest token of a decode step is known, so a search reads one list and no neighbour is
wasted. A list of 20,000 keys takes 0.1 ms (AVX512) to 0.35 ms (AVX2) on one thread, little against
a step of any model, so lists are not subdivided.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from specret.datastore.durable import REBUILD
from specret.datastore.projection import Floats
from specret.types import SpecretError, TokenArray

Placement = Literal["cpu", "auto", "gpu"]
Ids = NDArray[np.int64]

GPU_SCRATCH = 64 << 20
"""Bytes of scratch on a GPU; faiss would take 1.5 GiB beside the model."""


class DenseIndex:
    """Keys by following token.

    Args:
        index: a trained and filled `IndexIVFScalarQuantizer`, or its copy on a GPU.
        following: (L,) ascending, the token of each list.
    """

    def __init__(self, index: Any, following: TokenArray) -> None:
        self._index = index
        self._following = following

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        """Length of a key."""
        return int(self._index.d)

    @property
    def following(self) -> TokenArray:
        """(L,) the tokens that have a list, ascending."""
        return self._following

    @classmethod
    def build(
        cls, following: TokenArray, blocks: Iterable[tuple[Floats, TokenArray, Ids]]
    ) -> "DenseIndex":
        """An index of all blocks; the first one sets the range of each dimension.

        Args:
            following: (L,) ascending, every token that can follow a key.
            blocks: keys (n, d), the token that follows each (n,), its position (n,).
        """
        index: Any = None
        for keys, tokens, positions in blocks:
            if index is None:
                index = _empty_index(keys, len(following))
            lists = np.searchsorted(following, tokens)
            assert (following[lists] == tokens).all(), "a following token without a list"
            _add(index, keys, positions, lists)
        return cls(index, following)

    def search(self, query: Floats, next_token: int, k: int) -> tuple[Floats, Ids]:
        """The k nearest keys that `next_token` follows, exact up to the eight bits.

        Args:
            query: (d,) a key.
            next_token: the token that must follow.
            k: most neighbours.

        Returns:
            Similarities and positions (<= k,), best first, equal ones by position; none where
            no key has that token after it.
        """
        assert query.shape == (self.dim,), f"query {query.shape}, keys have {self.dim} dimensions"
        number = int(np.searchsorted(self._following, next_token))
        if number == len(self._following) or self._following[number] != next_token:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        lists = np.array([[number]], np.int64)
        near = self._index.search_preassigned(query[None], k, lists, None)
        similarities, positions = near[0][0], near[1][0]
        found = np.flatnonzero(positions >= 0)
        order = found[np.lexsort((positions[found], -similarities[found]))]
        return similarities[order], positions[order]

    def save(self, path: Path, lists: Path) -> None:
        """Write the index in its CPU form, and the tokens of its lists (raw uint32)."""
        on_gpu = hasattr(self._index, "getDevice")
        faiss.write_index(faiss.index_gpu_to_cpu(self._index) if on_gpu else self._index, str(path))
        lists.write_bytes(self._following.astype("<u4").tobytes())

    @classmethod
    def open(
        cls, path: Path, lists: Path, *, keys: int, dim: int, placement: Placement = "cpu"
    ) -> "DenseIndex":
        """Read an index whose checksum was verified.

        Args:
            path: written by `save`.
            lists: written by `save`.
            keys: how many it must hold.
            dim: how long they must be.
            placement: where it shall live, see `place`.

        Raises:
            SpecretError: another kind of index, other sizes, a damaged file, no GPU for "gpu".
        """
        following = np.fromfile(lists, "<u4").astype(np.int64)
        with _limits(path.stat().st_size):
            try:
                index = faiss.read_index(str(path))
            except RuntimeError as fault:
                raise SpecretError(f"{path.name} is no readable index: {fault}", REBUILD) from fault
        if type(index) is not faiss.IndexIVFScalarQuantizer:
            raise SpecretError(f"{path.name} holds a {type(index).__name__}, not ours", REBUILD)
        seen = (index.ntotal, index.d, index.nlist, index.metric_type)
        wanted = (keys, dim, len(following), faiss.METRIC_INNER_PRODUCT)
        if seen != wanted:
            raise SpecretError(
                f"{path.name}: keys, dimensions, lists, metric are {seen}, expected {wanted}",
                REBUILD,
            )
        return cls(place(index, placement), following)


def place(index: Any, placement: Placement) -> Any:
    """The index where it shall live.

    Args:
        index: an inverted file on the CPU.
        placement: "cpu"; "gpu"; "auto": a GPU where there is one that this faiss can use, else
            the CPU with a warning.

    Raises:
        SpecretError: "gpu" without one.
    """
    if placement == "cpu":
        return index
    gpus = faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0
    if gpus:
        # a GPU index wants a centroid for every list; that of a preassigned list is never read
        coarse = faiss.downcast_index(index.quantizer)
        coarse.add(np.zeros((index.nlist - coarse.ntotal, index.d), np.float32))
        resources = faiss.StandardGpuResources()
        resources.setTempMemory(GPU_SCRATCH)
        return faiss.index_cpu_to_gpu(resources, 0, index)
    if placement == "gpu":
        raise SpecretError(
            "the index shall live on a GPU, but the faiss here finds none",
            "install faiss-gpu in place of faiss-cpu, or leave the index on the CPU",
        )
    warnings.warn("faiss finds no GPU: the index stays on the CPU", stacklevel=2)
    return index


def exact_search(
    keys: Floats, following: TokenArray, positions: Ids, query: Floats, next_token: int, k: int
) -> tuple[Floats, Ids]:
    """What `DenseIndex.search` approximates: brute force over unquantised keys (n, d)."""
    group = np.flatnonzero(following == next_token)
    similarities = keys[group] @ query
    order = np.lexsort((positions[group], -similarities))[:k]
    return similarities[order], positions[group][order]


def _empty_index(sample: Floats, lists: int) -> Any:
    dim = sample.shape[1]
    coarse = faiss.IndexFlatIP(dim)  # stays empty: lists are always preassigned
    index = faiss.IndexIVFScalarQuantizer(
        coarse, dim, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT, False
    )
    index.sq.train(np.ascontiguousarray(sample))
    index.is_trained = True
    return index


def _add(index: Any, keys: Floats, positions: Ids, lists: Ids) -> None:
    keys, positions = np.ascontiguousarray(keys), np.ascontiguousarray(positions)
    lists = np.ascontiguousarray(lists, np.int64)
    pointers = (faiss.swig_ptr(a) for a in (keys, positions, lists))
    index.add_core(len(keys), *pointers)


@contextmanager
def _limits(file_bytes: int) -> Iterator[None]:
    """No vector or loop of a file being read may claim more than the file could hold."""
    before = (
        faiss.get_deserialization_vector_byte_limit(),
        faiss.get_deserialization_loop_limit(),
    )
    faiss.set_deserialization_vector_byte_limit(file_bytes)
    faiss.set_deserialization_loop_limit(file_bytes)
    try:
        yield
    finally:
        faiss.set_deserialization_vector_byte_limit(before[0])
        faiss.set_deserialization_loop_limit(before[1])
