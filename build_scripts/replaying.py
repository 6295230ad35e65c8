"""Replay of the target's own answers, for the scripts that fit and evaluate on them.

In: an engine with its stores. Out: at every position of every answer what each source would have
proposed, and tokens per step by draft nodes. Nothing is decoded but the answers themselves.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from specret import engine as engines
from specret.decode.call import Call
from specret.evaluation.prompts import Prompt
from specret.hybrid.budget import GRID
from specret.hybrid.calibration import Calibration
from specret.hybrid.confidences import SourceSet, joined
from specret.hybrid.fused import DRAFTER_OF, FusedOptions, source_drafters
from specret.hybrid.merge import Merged, merge
from specret.hybrid.recording import Moment, record
from specret.hybrid.replay import Needed, nodes_needed, tokens_per_step, true_path
from specret.hybrid.several import kind_of, store_of
from specret.models.encoder import TransformersEncoder
from specret.protocols import Drafter
from specret.registry import Resources, make_drafter
from specret.types import Budget

HELD_OUT = 60
"""HumanEval prompts 1-60 are for fitting, 61-120 for evaluation."""

RIVALS = ("rest",)
"""Drafters that are no source of hybrid but have a gain curve of their own; they read one store."""

ROWS = 16
"""Prompts answered at once."""

Answer = tuple[np.ndarray, np.ndarray]
"""Tokens of a prompt and of the target's answer to it."""


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that every replay has; `description` is the script's own docstring."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument(
        "--store", required=True, action="append", help="a finished datastore; repeat for several"
    )
    parser.add_argument("--model", help="default: the packaged small model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", type=int, default=128, help="new tokens for each prompt")
    parser.add_argument("--answers", type=Path, help="keep the answers here and reuse them")
    return parser


def load_engine(args: argparse.Namespace) -> engines.Engine:
    """The target with the stores that the options name."""
    return engines.load(
        args.model, drafter="plain", store=args.store, dtype=args.dtype, threads=args.threads
    )


def answers_to(
    engine: engines.Engine, prompts: Sequence[Prompt], tokens: int, file: Path | None = None
) -> list[Answer]:
    """The target's own greedy answers, from the file as far as it has them.

    Args:
        engine: whose target answers.
        prompts: their first turn is the user's message.
        tokens: new ones for each prompt, at most.
        file: keeps the answers.
    """
    head = {"model": engine.loaded.fingerprint.weights, "dtype": str(engine.loaded.dtype)}
    head |= {"tokens": tokens}
    known: dict[str, Any] = {}
    if file is not None and file.exists():
        held = json.loads(file.read_text())
        known = held["answers"] if held["head"] == head else {}
    ids = [engine.encode([{"role": "user", "content": prompt.turns[0]}]) for prompt in prompts]
    asked = [(i, ids[i]) for i in range(len(prompts)) if prompts[i].id not in known]
    asked.sort(key=lambda row: -len(row[1]))
    if asked:
        say(f"answering {len(asked)} prompts")
        writer = engine.writer(Call(max_new_tokens=tokens))
        for answer in writer.write(asked, ROWS, len(asked[0][1]) + tokens):
            known[prompts[answer.number].id] = answer.tokens.tolist()
    if file is not None:
        file.write_text(json.dumps({"head": head, "answers": known}))
    return [
        (row, np.array(known[prompt.id], np.int64))
        for row, prompt in zip(ids, prompts, strict=True)
    ]


def record_all(
    engine: engines.Engine,
    answers: Sequence[Answer],
    sources: SourceSet,
    resources: Callable[[int], Resources],
) -> list[list[Moment]]:
    """The moments of each answer; `resources` gives those for the answer of a number."""
    options = FusedOptions()
    budget = Budget(options.candidate_nodes, options.candidate_depth)
    encoder = TransformersEncoder(engine.loaded)
    start, out = perf_counter(), []
    for number, (prompt, answer) in enumerate(answers):
        own = resources(number)
        drafters: dict[str, Drafter] = source_drafters(sources, own)
        drafters |= {name: make_drafter(name, own, {}) for name in RIVALS}
        (states,) = encoder.encode([np.concatenate([prompt, answer])])
        out.append(record(drafters, prompt, answer, torch.from_numpy(states), budget))
    say(f"recorded {sum(map(len, out))} positions in {perf_counter() - start:.0f} s")
    return out


def merge_all(recorded: Sequence[Sequence[Moment]], sources: SourceSet) -> list[list[Merged]]:
    """The merged tree of those sources at every position."""
    return [
        [merge({name: moment.drafts[name] for name in sources}) for moment in moments]
        for moments in recorded
    ]


def together(
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


def alone(recorded: Sequence[Sequence[Moment]], name: str) -> list[list[Needed]]:
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


def report(
    recorded: Sequence[Sequence[Moment]], calibrations: Mapping[SourceSet, Calibration]
) -> None:
    """Tokens per step of every drafter alone and of every set of sources, at each budget."""
    rows = {method(name): alone(recorded, name) for name in recorded[0][0].drafts}
    for sources, calibration in calibrations.items():
        merged = merge_all(recorded, sources)
        rows[f"hybrid:{joined(sources)}"] = together(merged, recorded, calibration)
    grid = [nodes for nodes in GRID if nodes]
    width = max(28, *map(len, rows))
    print(f"{'tokens per step at nodes':{width}}" + "".join(f"{n:7}" for n in grid))
    for name, needed in rows.items():
        found = [tokens_per_step(needed, nodes) for nodes in grid]
        print(f"{name:{width}}" + "".join(f"{value:7.3f}" for value in found))


def method(name: str) -> str:
    """What a source's drafter is called, with the number of its store where it is not the first."""
    drafter = DRAFTER_OF.get(kind_of(name), name)
    return drafter if store_of(name) == 0 else f"{drafter} (store {store_of(name) + 1})"


def say(text: str) -> None:
    """For whoever watches."""
    print(text, file=sys.stderr, flush=True)
