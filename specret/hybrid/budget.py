"""How many draft nodes pay: the one number a method keeps for a run.

In: measured prices and a method's gain curve. Out: a number of nodes; 0 is plain decoding.
Which nodes those are is decided at each step by `tree.best_nodes`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specret.hybrid.confidences import confidences_of, joined, source_set
from specret.hybrid.several import by_store, kinds
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


def nodes_for(
    drafter: str, options: Mapping[str, Any], prices: Prices, stores: Sequence[Any] = ()
) -> int:
    """The number of nodes for a drafter with its options, by the gain curve of its first store.

    What further stores add is not known beforehand; what they cost is: hybrid looks up in all.

    Raises:
        SpecretError: there is no curve for it.
    """
    confidences = confidences_of(options.get("confidences"), stores)
    if drafter != "hybrid":
        gain = confidences[0].gain(drafter)
        return choose_nodes(prices, gain, gain.lookup_s)
    groups = by_store(source_set(options.get("sources") or ("prompt", "suffix", "dense")))
    gains = [confidences[i].gain(f"hybrid:{joined(kinds(own))}") for i, own in groups.items()]
    return choose_nodes(prices, gains[0], sum(gain.lookup_s for gain in gains))
