"""Tree algebra over parents arrays: depths, ancestors, masks, order. Pure numpy.

A tree of N nodes is `parents` (N,) with parents[i] < i and -1 for the root, which is not a node.
"""

import numpy as np
from numpy.typing import NDArray

Parents = NDArray[np.int32]


def depths(parents: Parents) -> NDArray[np.int32]:
    """Depth of each node (N,); a child of the root has depth 1."""
    out = np.empty(len(parents), np.int32)
    for i, p in enumerate(parents.tolist()):
        out[i] = 1 if p < 0 else out[p] + 1
    return out


def ancestor_mask(parents: Parents) -> NDArray[np.bool_]:
    """(N+1, N+1): entry [i, j] says that row j is row i itself or above it. Row 0 is the root."""
    n = len(parents)
    mask = np.zeros((n + 1, n + 1), np.bool_)
    mask[:, 0] = True
    for i, p in enumerate(parents.tolist(), start=1):
        mask[i] = mask[p + 1]
        mask[i, i] = True
    return mask


def path_to(parents: Parents, node: int) -> tuple[int, ...]:
    """Nodes from the root's child down to `node`."""
    path = []
    while node >= 0:
        path.append(node)
        node = int(parents[node])
    return tuple(reversed(path))


def path_products(parents: Parents, prob: NDArray[np.floating]) -> NDArray[np.float64]:
    """Product of the conditional probabilities along each node's path (N,)."""
    out = np.empty(len(parents), np.float64)
    for i, (p, q) in enumerate(zip(parents.tolist(), prob.tolist(), strict=True)):
        out[i] = q if p < 0 else out[p] * q
    return out


def by_product(parents: Parents, prob: NDArray[np.floating]) -> NDArray[np.intp]:
    """All nodes, highest path products first; every prefix is closed under parents.

    Conditional probabilities are at most 1, so a parent's product is never below its child's;
    ties put the shallower node first and then the earlier one.
    """
    order: NDArray[np.intp] = np.lexsort(
        (np.arange(len(parents)), depths(parents), -path_products(parents, prob))
    )
    return order


def best_nodes(
    parents: Parents, prob: NDArray[np.floating], max_nodes: int, max_depth: int
) -> NDArray[np.intp]:
    """The nodes to keep, ascending: highest path products, closed under parents."""
    order = by_product(parents, prob)
    return np.sort(order[depths(parents)[order] <= max_depth][: max(0, max_nodes)])


def reindex(parents: Parents, keep: NDArray[np.intp]) -> Parents:
    """Parents array of the kept nodes, which must be ascending and closed under parents."""
    position = np.full(len(parents) + 1, -1, np.int32)
    position[keep] = np.arange(len(keep), dtype=np.int32)
    out: Parents = position[parents[keep]].astype(np.int32)
    return out
