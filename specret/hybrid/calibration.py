"""The chance that a node is taken, given that its parent was: logistic regression by look-up.

In: a `Merged` tree. Out: one probability per node. Each signal is cut into bins, each bin has a
weight, and a node's log-odds are the bias plus the weights of its bins.
Knows no text and no file; how the weights are found is `fitting`'s affair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specret.hybrid.merge import OTHER, PROPOSES, Merged


@dataclass(frozen=True, slots=True)
class Table:
    """The weights of one signal's bins.

    Attributes:
        signal: "depth", "agree" (how many sources propose the node), or "SOURCE.NAME" with NAME
            "prob" (where it proposes the node), "left" (what it leaves over where it proposes
            something else) or one of its raw signals.
        edges: (E,) ascending; bin b holds edges[b-1] <= value < edges[b].
        weights: (E + 2,) first the weight where there is no value, then one for each bin.
    """

    signal: str
    edges: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.edges) + 2:
            raise ValueError(
                f"{self.signal}: {len(self.weights)} weights, expected {len(self.edges) + 2}"
            )
        if not np.isfinite([*self.edges, *self.weights]).all():
            raise ValueError(f"{self.signal}: an edge or a weight is not finite")
        if any(left >= right for left, right in pairwise(self.edges)):
            raise ValueError(f"{self.signal}: edges are not ascending")


class Calibration:
    """Tables compiled so that all nodes are looked up at once."""

    def __init__(self, sources: Sequence[str], bias: float, tables: Sequence[Table]) -> None:
        self.sources, self.bias, self.tables = tuple(sources), bias, tuple(tables)
        self.signals = tuple(table.signal for table in tables)
        self._edges = padded([table.edges for table in tables])
        sizes = [len(table.weights) for table in tables]
        self._first = np.cumsum([0, *sizes])[:-1]
        self._weights = np.array([w for table in tables for w in table.weights], np.float64)

    def prob(self, merged: Merged) -> NDArray[np.float32]:
        """Calibrated conditional probabilities (N,); siblings never sum to more than 1."""
        assert merged.names == self.sources
        cells = bins(columns(merged, self.signals), self._edges) + self._first
        odds = self._weights[cells].sum(axis=1) + self.bias
        alone = 1.0 / (1.0 + np.exp(-odds))
        together = np.bincount(merged.parents + 1, alone, len(merged) + 1)[merged.parents + 1]
        prob: NDArray[np.float32] = (alone / np.maximum(together, 1.0)).astype(np.float32)
        return prob


def padded(edges: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Edges of F signals as one (F, E) array; the padding is never reached."""
    out = np.full((len(edges), max(map(len, edges), default=0)), np.inf)
    for row, own in zip(out, edges, strict=True):
        row[: len(own)] = own
    return out


def bins(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.intp]:
    """Cell (N, F) of each value (N, F): 0 for NaN, else 1 + the number of edges not above it."""
    cells: NDArray[np.intp] = (values[:, :, None] >= edges).sum(axis=2) + 1
    cells[np.isnan(values)] = 0
    return cells


def columns(merged: Merged, signals: Sequence[str]) -> NDArray[np.float64]:
    """The named signals of all nodes (N, F); NaN where a node has none."""
    out = np.empty((len(merged), len(signals)))
    for i, signal in enumerate(signals):
        out[:, i] = _column(merged, signal)
    return out


def all_signals(merged: Merged) -> tuple[str, ...]:
    """Every signal of a merged tree, in a fixed order."""
    own = ("prob", "left", *merged.signals)
    return ("depth", "agree", *(f"{source}.{name}" for source in merged.names for name in own))


def _column(merged: Merged, signal: str) -> NDArray[Any]:
    if signal == "depth":
        return merged.depth
    if signal == "agree":
        agreeing: NDArray[np.intp] = (merged.state == PROPOSES).sum(axis=1)
        return agreeing
    source, _, name = signal.partition(".")
    column = merged.names.index(source)
    if name in ("prob", "left"):
        wanted = merged.state[:, column] == (PROPOSES if name == "prob" else OTHER)
        return np.where(wanted, merged.prob[:, column], np.nan)
    if name not in merged.signals:  # no draft of this step had anything to say
        return np.full(len(merged), np.nan)
    return merged.signals[name][:, column]
