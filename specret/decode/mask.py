"""Which row may look at which: additive attention masks and positions of a tree.

In: parents arrays and the number of cached rows. Out: tensors for the target's forward.
Additive (0 and the dtype's minimum), since boolean masks are silently wrong under eager attention.
"""

import numpy as np
import torch

from specret import tree


def row_positions(parents: tree.Parents, cached: int) -> np.ndarray:
    """Absolute position of every row (N+1,): the root stands at `cached`, a node at its depth."""
    positions = np.empty(len(parents) + 1, np.int64)
    positions[0] = cached
    positions[1:] = cached + tree.depths(parents)
    return positions


def visible(parents: tree.Parents, cached: int, window: int | None) -> np.ndarray:
    """(N+1, cached+N+1): may row i see column j? Columns are the cached rows, then the rows.

    With a sliding `window` a row at position p sees only positions above p - window; distance
    is counted in positions (depth), not in rows.
    """
    n = len(parents) + 1
    out = np.ones((n, cached + n), np.bool_)
    out[:, cached:] = tree.ancestor_mask(parents)
    if window is not None:
        rows = row_positions(parents, cached)
        columns = np.concatenate([np.arange(cached), rows])
        out &= columns[None, :] > rows[:, None] - window
    return out


def additive(seen: np.ndarray, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """(B, 1, rows, columns) of `seen` (B, rows, columns): 0, or the least where it may not."""
    hidden = torch.from_numpy(~seen).to(device)
    mask = torch.zeros(seen.shape, dtype=dtype, device=device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None]
