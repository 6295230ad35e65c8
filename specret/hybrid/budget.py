"""How many draft nodes pay: the one number a method keeps for a run.

In: measured prices and a method's gain curve. Out: a number of nodes; 0 is plain decoding.
Which nodes those are is decided at each step by `tree.best_nodes`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specret.hybrid.confidences import SHIPPED, joined, load_confidences, source_set
from specret.types import Prices

GRID = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def choose_nodes(
    prices: Prices,
    gain: Callable[[int], float],
    lookup_s: float,
    draft_s: float = 0.0,
    grid: Sequence[int] = GRID,
) -> int:
    """The number of nodes n that writes the most tokens per second; ties take the smaller.

    Maximises gain(n) / (lookup + draft + T(n + 1)). Without nodes nothing is looked up either.

    Args:
        prices: T(rows) of the target.
        gain: tokens per step at n nodes.
        lookup_s: seconds that one proposal spends searching.
        draft_s: seconds that one proposal spends besides.
        grid: the numbers to choose from.
    """

    def speed(nodes: int) -> float:
        outside = lookup_s + draft_s if nodes else 0.0
        return gain(nodes) / (outside + prices.forward(nodes + 1))

    return max(sorted(grid), key=speed)


def nodes_for(drafter: str, options: Mapping[str, Any], prices: Prices) -> int:
    """The number of nodes for a drafter with its options, by its shipped gain curve.

    Raises:
        SpecretError: there is no curve for it.
    """
    confidences = load_confidences(Path(options.get("confidences") or SHIPPED))
    gain = confidences.gain(method_name(drafter, options))
    return choose_nodes(prices, gain, gain.lookup_s)


def method_name(drafter: str, options: Mapping[str, Any]) -> str:
    """Under which name a gain curve is kept: hybrid has one for each set of sources."""
    if drafter != "hybrid":
        return drafter
    sources = options.get("sources") or ("prompt", "suffix", "dense")
    return f"{drafter}:{joined(source_set(sources))}"
