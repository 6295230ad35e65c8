"""Fits a `Calibration`: which signals go with nodes that were taken.

In: merged trees and the text that really followed each. Out: a `Calibration`.
Only nodes whose parent lies on the true path count: below a wrong node nothing is learnt.
"""

from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from specret.hybrid.calibration import Calibration, Table, all_signals, bins, columns, padded
from specret.hybrid.merge import Merged
from specret.hybrid.replay import true_path
from specret.types import TokenArray

BINS = 10
STRENGTH = 1.0
"""Inverse of the L2 penalty on the weights: bins that hold few nodes stay near the mean."""


def fit(moments: Iterable[tuple[Merged, TokenArray]]) -> Calibration:
    """Logistic regression over one-hot bins of every signal.

    Args:
        moments: merged trees, all of the same sources, each with the tokens that followed.
    """
    trees = [(merged, *_labels(merged, truth)) for merged, truth in moments]
    sources, signals = trees[0][0].names, _signals(merged for merged, *_ in trees)
    values = np.concatenate([columns(merged, signals)[rows] for merged, rows, _ in trees])
    known = ~np.isnan(values).all(axis=0)
    values, signals = values[:, known], tuple(compress(signals, known))
    taken = np.concatenate([labels for *_, labels in trees])
    edges = [quantile_edges(column) for column in values.T]
    bias, weights = _regress(bins(values, padded(edges)), [len(e) + 2 for e in edges], taken)
    tables = [
        Table(signal, tuple(own), tuple(w))
        for signal, own, w in zip(signals, edges, weights, strict=True)
    ]
    return Calibration(sources, bias, tables)


def quantile_edges(values: NDArray[np.float64]) -> list[float]:
    """At most BINS - 1 ascending edges that cut the values (NaN left out) into equal shares.

    A signal with no more than BINS values gets a bin for each, however rare.
    """
    distinct = np.unique(values[~np.isnan(values)])
    if len(distinct) <= BINS:
        return [float(edge) for edge in distinct[1:]]
    shares = np.linspace(0, 1, BINS + 1)[1:-1]
    edges = np.unique(np.nanquantile(values, shares, method="nearest"))
    return [float(edge) for edge in edges if edge > distinct[0]]


def _signals(trees: Iterable[Merged]) -> tuple[str, ...]:
    # an empty tree has no raw signals, so every tree is asked
    return tuple(dict.fromkeys(signal for merged in trees for signal in all_signals(merged)))


def _labels(merged: Merged, truth: TokenArray) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Nodes below the true path, and which of them lie on it."""
    path = true_path(merged.tokens, merged.parents, truth)
    rows = np.flatnonzero(np.isin(merged.parents, [-1, *path]))
    return rows, np.isin(rows, path)


def _regress(
    cells: NDArray[np.intp], sizes: Sequence[int], taken: NDArray[np.bool_]
) -> tuple[float, list[NDArray[np.float64]]]:
    """Bias and, signal by signal, one weight for each cell."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    onehot = OneHotEncoder(categories=[np.arange(size) for size in sizes]).fit_transform(cells)
    model = LogisticRegression(C=STRENGTH, max_iter=2000).fit(onehot, taken)
    return float(model.intercept_[0]), np.split(model.coef_[0], np.cumsum(sizes)[:-1])
