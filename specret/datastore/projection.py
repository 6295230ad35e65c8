"""Hidden states to short keys: z-score, principal components, unit length.

In: states (n, H). Out: keys (n, d), d <= 64. Knows no model and no index; numpy only.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from specret.datastore.durable import REBUILD, write_whole
from specret.types import SpecretError

COMPONENTS = 64
"""Most dimensions of a key."""

FLAT = 1e-6
"""A dimension whose deviation is below this part of the largest one carries no information."""

BLOCK_ROWS = 4096
Floats = NDArray[np.float32]


class Moments:
    """Count, mean and co-moments of rows that come in blocks, in fp64 (Chan et al., 1979).

    Args:
        width: H.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean = np.zeros(width)
        self.comoment = np.zeros((width, width))

    def add(self, rows: Floats) -> None:
        """Take in rows (n, H)."""
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS].astype(np.float64)
            mean = block.mean(axis=0)
            centred = block - mean
            shift, total = mean - self.mean, self.count + len(block)
            self.comoment += centred.T @ centred
            self.comoment += np.outer(shift, shift) * (self.count * len(block) / total)
            self.mean += shift * (len(block) / total)
            self.count = total


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """What turns a state into a key.

    Attributes:
        mean: (H,) of the states.
        std: (H,) of the states; 1 where a dimension does not vary (its components are 0).
        components: (d, H) principal directions of the z-scored states, strongest first.
        explained_variance: (d,) along them.
    """

    mean: Floats
    std: Floats
    components: Floats
    explained_variance: Floats

    @property
    def width(self) -> int:
        """H, the length of a state."""
        return len(self.mean)

    @property
    def dim(self) -> int:
        """d, the length of a key."""
        return len(self.components)

    @classmethod
    def fit(cls, moments: Moments, components: int = COMPONENTS) -> "Projection":
        """The projection for rows whose moments were gathered.

        d is at most `components`, the width, and one less than the number of rows (and at
        least 1). The sign of a component is such that its largest entry is positive.
        """
        assert moments.count > 0, "moments of no rows"
        std = np.sqrt(np.diagonal(moments.comoment) / moments.count)
        varies = std > FLAT * max(float(std.max()), float(np.finfo(np.float32).tiny))
        std = np.where(varies, std, 1.0)
        correlation = moments.comoment / moments.count / np.outer(std, std)
        correlation[~varies] = 0.0
        correlation[:, ~varies] = 0.0
        values, vectors = np.linalg.eigh(correlation)
        d = max(1, min(components, len(std), moments.count - 1))
        chosen = vectors[:, ::-1][:, :d].T
        chosen[:, ~varies] = 0.0
        largest = np.abs(chosen).argmax(axis=1)
        chosen *= np.where(chosen[np.arange(d), largest] < 0, -1.0, 1.0)[:, None]
        explained = np.maximum(values[::-1][:d], 0.0)
        arrays = (moments.mean, std, chosen, explained)
        return cls(*(np.ascontiguousarray(array, np.float32) for array in arrays))

    def apply(self, states: Floats) -> Floats:
        """Keys (n, d) of unit length of states (n, H); a state at the mean gives zeros."""
        assert states.shape == (len(states), self.width), states.shape
        keys = (((states - self.mean) / self.std) @ self.components.T).astype(np.float32)
        length = np.linalg.norm(keys, axis=1, keepdims=True)
        unit = np.zeros_like(keys)
        np.divide(keys, length, out=unit, where=length != 0)
        return unit

    def save(self, path: Path) -> None:
        """Write the four arrays as fp32 safetensors."""
        # safetensors writes memory as it lies and would scramble an array in another order
        assert self.components.flags.c_contiguous
        write_whole(path, save({name: getattr(self, name) for name in self.__slots__}))

    @classmethod
    def fitted(
        cls, blocks: Iterable[Floats], width: int, components: int, path: Path
    ) -> "Projection":
        """Fitted on all rows of blocks (n, `width`), saved, and read back as others will read it.

        At least one row is needed.
        """
        moments = Moments(width)
        for rows in blocks:
            moments.add(rows)
        cls.fit(moments, components).save(path)
        return cls.load(path)

    @classmethod
    def load(cls, path: Path) -> "Projection":
        """Read what `save` wrote.

        Raises:
            SpecretError: not such a file, shapes that do not fit, values that are not finite.
        """
        try:
            arrays = load_file(path)
        except SafetensorError as fault:
            raise SpecretError(f"{path.name} is no projection: {fault}", REBUILD) from fault
        if set(arrays) != set(cls.__slots__):
            raise SpecretError(f"{path.name} holds {sorted(arrays)}, not a projection", REBUILD)
        read = cls(**arrays)
        width, dim = read.mean.shape, read.explained_variance.shape
        shaped = read.std.shape == width and read.components.shape == (*dim, *width)
        usable = all(a.dtype == np.float32 and np.isfinite(a).all() for a in arrays.values())
        if not (len(width) == len(dim) == 1 and shaped and usable and (read.std > 0).all()):
            raise SpecretError(f"{path.name}: shapes or values do not fit", REBUILD)
        return read
