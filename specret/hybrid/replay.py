"""Drafts against a known answer: what would have been accepted, with no model in sight.

In: the trees drafted at each position of a finished text, and that text. Out: tokens per step.
For greedy decoding this is what the target itself would have accepted. Knows no drafter.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specret import tree
from specret.types import TokenArray

Needed = NDArray[np.int64]
"""(K,) ascending: of a tree's best nodes, how many must be kept to accept 1, 2 ... K tokens."""


def true_path(tokens: TokenArray, parents: tree.Parents, truth: TokenArray) -> tuple[int, ...]:
    """The nodes, from the root's child down, that agree with the text that really followed."""
    keys = zip(parents.tolist(), tokens.tolist(), strict=True)
    children = {key: node for node, key in enumerate(keys)}
    path: list[int] = []
    for token in truth.tolist():
        below = children.get((path[-1] if path else -1, token))
        if below is None:
            break
        path.append(below)
    return tuple(path)


def nodes_needed(parents: tree.Parents, prob: NDArray[np.floating], path: Sequence[int]) -> Needed:
    """How large a budget of best nodes (by path product) must be to reach along `path`."""
    rank = np.empty(len(parents), np.int64)
    rank[tree.by_product(parents, prob)] = np.arange(len(parents))
    return rank[list(path)] + 1


def count_steps(needed: Sequence[Needed], max_nodes: int) -> int:
    """Steps to write an answer of `len(needed)` tokens, one entry for each of its positions."""
    steps = position = 0
    while position < len(needed):
        position += 1 + int(np.searchsorted(needed[position], max_nodes, side="right"))
        steps += 1
    return steps


def tokens_per_step(answers: Sequence[Sequence[Needed]], max_nodes: int) -> float:
    """Tokens of all answers over the steps that write them."""
    steps = sum(count_steps(answer, max_nodes) for answer in answers)
    return sum(map(len, answers)) / steps
