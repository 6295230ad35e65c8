"""Fits the confidences that ship with the package, or evaluates them.

The target answers HumanEval prompts 1-60 (through its chat template, greedy); at every position of
every answer each source's candidate tree is held against what really followed; the calibrations
and the gain curves are fitted to that and written as one JSON file: that of the store's kind, or
for several stores, where all sources are fitted together, the one named. With --evaluate nothing
is fitted: prompts 61-120 are replayed with the confidences that hybrid would use.
"""

import argparse
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from replaying import (
    HELD_OUT,
    alone,
    answers_to,
    arguments,
    load_engine,
    merge_all,
    method,
    record_all,
    report,
    say,
    together,
)

from specret import engine as engines
from specret.evaluation.prompts import load_prompts
from specret.hybrid.budget import GRID
from specret.hybrid.confidences import (
    Confidences,
    Gain,
    SourceSet,
    confidences_of,
    joined,
    save_confidences,
    shipped_for,
    source_set,
)
from specret.hybrid.fitting import fit
from specret.hybrid.fused import FusedOptions, available_sources
from specret.hybrid.recording import Moment
from specret.hybrid.replay import Needed, tokens_per_step
from specret.hybrid.several import calibration_for


def main() -> None:
    args = _arguments()
    engine = load_engine(args)
    prompts = load_prompts("humaneval", skip=HELD_OUT if args.evaluate else 0, limit=args.limit)
    answers = answers_to(engine, prompts, args.tokens, args.answers)
    everything = available_sources(None, engine.stores)
    recorded = record_all(engine, answers, everything, lambda _: engine.resources)
    sets = _source_sets(everything) if len(args.store) == 1 else [everything]
    if args.evaluate:
        known = confidences_of(args.out, engine.stores)
        report(recorded, {sources: calibration_for(sources, known) for sources in sets})
        return
    confidences = _fit(recorded, sets, _provenance(engine, args))
    save_confidences(confidences, args.out or shipped_for(engine.stores[0]))
    report(recorded, confidences.calibrations)


def _arguments() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--limit", type=int, default=HELD_OUT, help="how many prompts")
    parser.add_argument(
        "--out", type=Path, help="the confidences; without it those that ship for the store's kind"
    )
    parser.add_argument("--evaluate", action="store_true", help="replay prompts 61-120 instead")
    args = parser.parse_args()
    if len(args.store) > 1 and args.out is None and not args.evaluate:
        parser.error("what several stores give together is not shipped: name a file with --out")
    return args


def _source_sets(everything: SourceSet) -> list[SourceSet]:
    return [
        source_set(some)
        for size in range(1, len(everything) + 1)
        for some in combinations(everything, size)
    ]


def _fit(
    recorded: Sequence[Sequence[Moment]], sets: Sequence[SourceSet], provenance: dict[str, Any]
) -> Confidences:
    calibrations, gains = {}, {}
    for name in recorded[0][0].drafts:
        gains[method(name)] = _gain(alone(recorded, name), recorded, (name,))
    for sources in sets:
        start = perf_counter()
        merged = merge_all(recorded, sources)
        calibrations[sources] = fit(
            (one, moment.truth)
            for trees, moments in zip(merged, recorded, strict=True)
            for one, moment in zip(trees, moments, strict=True)
        )
        needed = together(merged, recorded, calibrations[sources])
        gains[f"hybrid:{joined(sources)}"] = _gain(needed, recorded, sources)
        say(f"fitted {joined(sources)} in {perf_counter() - start:.0f} s")
    return Confidences(calibrations, gains, provenance)


def _gain(
    needed: list[list[Needed]], recorded: Sequence[Sequence[Moment]], names: Sequence[str]
) -> Gain:
    spent = [sum(m.seconds[name] for name in names) for moments in recorded for m in moments]
    tokens = tuple(tokens_per_step(needed, nodes) for nodes in GRID)
    return Gain(GRID, tokens, float(f"{np.median(spent):.3g}"))


def _provenance(engine: engines.Engine, args: argparse.Namespace) -> dict[str, Any]:
    target = engine.loaded.fingerprint
    options = FusedOptions()
    return {
        "command": f"build_scripts/make_confidences.py --limit {args.limit} --tokens {args.tokens}",
        "prompts": f"humaneval 1-{args.limit}, chat template, greedy, {args.tokens} new tokens",
        "prompt_ids": [prompt.id for prompt in load_prompts("humaneval", limit=args.limit)],
        "candidates": {"nodes": options.candidate_nodes, "depth": options.candidate_depth},
        "model": {
            "id": target.model_id,
            "weights": target.weights,
            "tokenizer": target.tokenizer,
            "dtype": str(engine.loaded.dtype).removeprefix("torch."),
        },
        "stores": [store.manifest.parameters for store in engine.stores],
    }


if __name__ == "__main__":
    main()
