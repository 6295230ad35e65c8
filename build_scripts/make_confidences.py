"""Fits the confidences that ship with the package, or evaluates them.

The target answers HumanEval prompts 1-60 (through its chat template, greedy); at every position of
every answer each source's candidate tree is held against what really followed; the calibrations
and the gain curves are fitted to that and written as one JSON file. With --evaluate nothing is
fitted: prompts 61-120 are replayed with the confidences at --out.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from specret import engine as engines
from specret.evaluation.prompts import load_prompts
from specret.hybrid.budget import GRID
from specret.hybrid.calibration import Calibration
from specret.hybrid.confidences import (
    SHIPPED,
    Confidences,
    Gain,
    SourceSet,
    joined,
    load_confidences,
    save_confidences,
    source_set,
)
from specret.hybrid.fitting import fit
from specret.hybrid.fused import DRAFTER_OF, FusedOptions
from specret.hybrid.merge import Merged, merge
from specret.hybrid.recording import Moment, record
from specret.hybrid.replay import Needed, nodes_needed, tokens_per_step, true_path
from specret.models.encoder import TransformersEncoder
from specret.registry import make_drafter
from specret.types import Budget

HELD_OUT = 60
"""Prompts 1-60 are for fitting, 61-120 for evaluation."""

RIVALS = ("rest",)
"""Drafters that are no source of hybrid but have a gain curve of their own."""

Answer = tuple[np.ndarray, np.ndarray]
"""Tokens of a prompt and of the target's answer to it."""


def main() -> None:
    args = _arguments()
    engine = engines.load(
        args.model, drafter="plain", store=args.store, dtype=args.dtype, threads=args.threads
    )
    skip = HELD_OUT if args.evaluate else 0
    answers = _answers(engine, args.answers, skip, args.limit, args.tokens)
    recorded = _record(engine, answers)
    if args.evaluate:
        _report(recorded, load_confidences(args.out))
        return
    confidences = _fit(recorded, _provenance(engine, args))
    save_confidences(confidences, args.out)
    _report(recorded, confidences)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--store", required=True, help="a finished datastore")
    parser.add_argument("--model", help="default: the packaged small model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--limit", type=int, default=HELD_OUT, help="how many prompts")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens for each prompt")
    parser.add_argument("--answers", type=Path, help="keep the answers here and reuse them")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the confidences")
    parser.add_argument("--evaluate", action="store_true", help="replay prompts 61-120 instead")
    return parser.parse_args()


def _answers(
    engine: engines.Engine, file: Path | None, skip: int, limit: int, tokens: int
) -> list[Answer]:
    """The target's own greedy answers, from the file as far as it has them."""
    head = {"model": engine.loaded.fingerprint.weights, "dtype": str(engine.loaded.dtype)}
    head |= {"tokens": tokens}
    known: dict[str, Any] = {}
    if file is not None and file.exists():
        held = json.loads(file.read_text())
        known = held["answers"] if held["head"] == head else {}
    out = []
    for prompt in load_prompts("humaneval", skip=skip, limit=limit):
        ids = engine.encode([{"role": "user", "content": prompt.turns[0]}])
        if prompt.id not in known:
            _say(f"answering {prompt.id}")
            known[prompt.id] = engine.generate(ids, max_new_tokens=tokens).tokens.tolist()
        out.append((ids, np.array(known[prompt.id], np.int64)))
    if file is not None:
        file.write_text(json.dumps({"head": head, "answers": known}))
    return out


def _record(engine: engines.Engine, answers: Sequence[Answer]) -> list[list[Moment]]:
    """The moments of each answer."""
    options = FusedOptions()
    budget = Budget(options.candidate_nodes, options.candidate_depth)
    resources = engine.resources
    drafters = {source: make_drafter(name, resources, {}) for source, name in DRAFTER_OF.items()}
    drafters |= {name: make_drafter(name, resources, {}) for name in RIVALS}
    encoder = TransformersEncoder(engine.loaded)
    start = perf_counter()
    out = []
    for prompt, answer in answers:
        (states,) = encoder.encode([np.concatenate([prompt, answer])])
        out.append(record(drafters, prompt, answer, torch.from_numpy(states), budget))
    _say(f"recorded {sum(map(len, out))} positions in {perf_counter() - start:.0f} s")
    return out


def _fit(recorded: Sequence[Sequence[Moment]], provenance: dict[str, Any]) -> Confidences:
    calibrations, gains = {}, {}
    for name in (*DRAFTER_OF, *RIVALS):
        gains[DRAFTER_OF.get(name, name)] = _gain(_alone(recorded, name), recorded, (name,))
    for sources in _source_sets():
        start = perf_counter()
        merged = _merge_all(recorded, sources)
        calibrations[sources] = fit(
            (one, moment.truth)
            for trees, moments in zip(merged, recorded, strict=True)
            for one, moment in zip(trees, moments, strict=True)
        )
        needed = _together(merged, recorded, calibrations[sources])
        gains[f"hybrid:{joined(sources)}"] = _gain(needed, recorded, sources)
        _say(f"fitted {joined(sources)} in {perf_counter() - start:.0f} s")
    return Confidences(calibrations, gains, provenance)


def _source_sets() -> list[SourceSet]:
    return [
        source_set(some)
        for size in range(1, len(DRAFTER_OF) + 1)
        for some in combinations(DRAFTER_OF, size)
    ]


def _merge_all(recorded: Sequence[Sequence[Moment]], sources: SourceSet) -> list[list[Merged]]:
    return [
        [merge({name: moment.drafts[name] for name in sources}) for moment in moments]
        for moments in recorded
    ]


def _together(
    merged: Sequence[Sequence[Merged]],
    recorded: Sequence[Sequence[Moment]],
    calibration: Calibration,
) -> list[list[Needed]]:
    """How many best nodes of the calibrated tree each accepted token needs."""
    return [
        [
            nodes_needed(
                one.parents,
                calibration.prob(one),
                true_path(one.tokens, one.parents, moment.truth),
            )
            for one, moment in zip(trees, moments, strict=True)
        ]
        for trees, moments in zip(merged, recorded, strict=True)
    ]


def _alone(recorded: Sequence[Sequence[Moment]], name: str) -> list[list[Needed]]:
    """The same for one drafter's tree in its own order."""
    return [
        [
            nodes_needed(
                draft.parents, draft.prob, true_path(draft.tokens, draft.parents, moment.truth)
            )
            for moment in moments
            for draft in [moment.drafts[name]]
        ]
        for moments in recorded
    ]


def _gain(
    needed: list[list[Needed]], recorded: Sequence[Sequence[Moment]], names: Sequence[str]
) -> Gain:
    spent = [sum(m.seconds[name] for name in names) for moments in recorded for m in moments]
    tokens = tuple(tokens_per_step(needed, nodes) for nodes in GRID)
    return Gain(GRID, tokens, float(f"{np.median(spent):.3g}"))


def _report(recorded: Sequence[Sequence[Moment]], confidences: Confidences) -> None:
    """Tokens per step of every drafter alone and of every set of sources, at each budget."""
    rows = {DRAFTER_OF.get(name, name): _alone(recorded, name) for name in (*RIVALS, *DRAFTER_OF)}
    for sources, calibration in confidences.calibrations.items():
        merged = _merge_all(recorded, sources)
        rows[f"hybrid:{joined(sources)}"] = _together(merged, recorded, calibration)
    grid = [nodes for nodes in GRID if nodes]
    print(f"{'tokens per step at nodes':28}" + "".join(f"{n:7}" for n in grid))
    for name, needed in rows.items():
        found = [tokens_per_step(needed, nodes) for nodes in grid]
        print(f"{name:28}" + "".join(f"{value:7.3f}" for value in found))


def _provenance(engine: engines.Engine, args: argparse.Namespace) -> dict[str, Any]:
    target = engine.loaded.fingerprint
    options = FusedOptions()
    assert engine.store is not None
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
        "store": {"parameters": engine.store.manifest.parameters},
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
