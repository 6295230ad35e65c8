"""The drafter `hybrid`: several sources' drafts in one tree, calibrated, under one budget.

In: a context. Out: one `Draft` whose probabilities are the calibrated ones.
Knows the sources only as drafters of the registry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specret import tree
from specret.hybrid.calibration import Calibration
from specret.hybrid.confidences import SourceSet, confidences_of, source_set
from specret.hybrid.merge import Merged, merge
from specret.hybrid.several import calibration_for, kind_of, source_of, store_of
from specret.protocols import Drafter
from specret.registry import Resources, make_drafter, read_options
from specret.types import Budget, Context, Draft, SpecretError, Verdict

DRAFTER_OF = {"prompt": "prompt", "suffix": "suffix", "dense": "dresd"}
"""Kind of source -> the drafter that gives its candidates."""


@dataclass(frozen=True, slots=True)
class FusedOptions:
    """What hybrid merges.

    Attributes:
        sources: some of prompt, suffix, dense (of further stores suffix2, dense2 and so on), as
            names or as `suffix,dense`; None: all that the stores have.
        candidate_nodes: nodes that each source may propose (the budget then keeps the best).
        candidate_depth: how deep they may be.
        confidences: file of fitted coefficients; None: for each store the one that ships for its
            kind.
    """

    sources: str | Sequence[str] | None = None
    candidate_nodes: int = 24
    candidate_depth: int = 16
    confidences: str | Path | None = None


def make(resources: Resources, options: Mapping[str, Any]) -> "FusedDrafter":
    """The drafter `hybrid`.

    Raises:
        SpecretError: an unknown option or source, a source that the store does not have, a set
            of sources without confidences.
    """
    chosen = read_options(FusedOptions, options)
    sources = available_sources(chosen.sources, resources.stores)
    drafters = source_drafters(sources, resources)
    calibration = calibration_for(sources, confidences_of(chosen.confidences, resources.stores))
    candidates = Budget(chosen.candidate_nodes, chosen.candidate_depth)
    return FusedDrafter(drafters, calibration, candidates, resources)


def source_drafters(sources: SourceSet, resources: Resources) -> dict[str, Drafter]:
    """The drafter of each source, over the store that the source reads.

    Raises:
        SpecretError: a store does not fit the target.
    """
    build, stores = resources.make or make_drafter, resources.stores or (None,)
    return {
        name: build(
            DRAFTER_OF[kind_of(name)],
            replace(resources, store=stores[store_of(name)], further=()),
            {},
        )
        for name in sources
    }


class FusedDrafter:
    """Asks every source, merges, calibrates, keeps the best nodes."""

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        calibration: Calibration,
        candidates: Budget,
        resources: Resources,
    ) -> None:
        self.sources: SourceSet = tuple(drafters)
        self.layers = tuple(dict.fromkeys(layer for d in drafters.values() for layer in d.layers))
        self._drafters, self._calibration = drafters, calibration
        self._candidates, self._vocab_size = candidates, resources.vocab_size
        self._lookup_s = 0.0

    def start(self, context: Context) -> None:
        """A new sequence for every source."""
        for drafter in self._drafters.values():
            drafter.start(context)

    def propose(self, context: Context, budget: Budget) -> Draft:
        """The best nodes of the merged tree; `prob` is calibrated."""
        self._lookup_s = 0.0
        depth = min(self._candidates.max_depth, budget.max_depth)
        if budget.max_nodes <= 0 or depth <= 0:
            return Draft.empty(self._vocab_size)
        asked = Budget(self._candidates.max_nodes, depth)
        drafts = {name: one.propose(context, asked) for name, one in self._drafters.items()}
        self._lookup_s = sum(one.lookup_seconds() for one in self._drafters.values())
        merged = merge(drafts)
        prob = self._calibration.prob(merged)
        keep = tree.best_nodes(merged.parents, prob, budget.max_nodes, budget.max_depth)
        return _kept(merged, prob, keep, self._vocab_size)

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Every source learns what became of the merged draft."""
        for drafter in self._drafters.values():
            drafter.observe(context, draft, verdict)

    def lookup_seconds(self) -> float:
        """What the sources spent searching in the last proposal."""
        return self._lookup_s


def _kept(merged: Merged, prob: np.ndarray, keep: np.ndarray, vocab_size: int) -> Draft:
    return Draft(
        merged.tokens[keep],
        tree.reindex(merged.parents, keep),
        prob[keep],
        vocab_size,
        merged.sources[keep],
        merged.origins[keep],
        {
            f"{source}.{name}": values[keep, column]
            for name, values in merged.signals.items()
            for column, source in enumerate(merged.names)
        },
    )


def available_sources(asked: str | Sequence[str] | None, stores: Sequence[Any]) -> SourceSet:
    """The sources asked for, or all that there are.

    Raises:
        SpecretError: an unknown source, or one that no open store has.
    """
    if asked is None:
        held = [source_of("suffix", i) for i in range(len(stores))]
        held += [source_of("dense", i) for i, s in enumerate(stores) if s.dense is not None]
        return source_set(["prompt", *held])
    sources = source_set(asked)
    for name in sources:
        kind, number = kind_of(name), store_of(name)
        if kind == "prompt" or (number < len(stores) and (kind != "dense" or stores[number].dense)):
            continue
        if number < len(stores):
            seen = f"the one at {stores[number].path} does not"
        else:
            seen = f"{len(stores) or 'none'} {'are' if len(stores) > 1 else 'is'} open"
        raise SpecretError(
            f"source {name!r} needs a store that has it, {seen}",
            "build one with: specret build-index --corpus code, or leave it out of --sources",
        )
    return sources
