"""What a store adds to the text so far, category by category.

Spec-Bench prompts (first turns) are answered by the target and replayed: hybrid over the text so
far alone against hybrid over that and all that the stores have. Prints, for each category, tokens
per step of both, the difference and its 95 % interval (bootstrap over prompts).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from replaying import (
    Answer,
    answers_to,
    arguments,
    load_engine,
    merge_all,
    record_all,
    together,
)

from specret.evaluation.figures import Pooled, difference_interval
from specret.evaluation.prompts import Prompt, load_prompts
from specret.hybrid.confidences import Confidences, SourceSet, confidences_of
from specret.hybrid.fused import available_sources
from specret.hybrid.recording import Moment
from specret.hybrid.replay import count_steps
from specret.hybrid.several import calibration_for

TASKS = ("translation", "summarization", "qa", "math_reasoning", "rag")
"""Categories of their own in Spec-Bench; its others are those of MT-Bench, counted as one."""

TEXT: SourceSet = ("prompt",)


def main() -> None:
    args = _arguments()
    engine = load_engine(args)
    chosen = _choose(load_prompts(f"spec-bench:{args.prompts}"), args.each)
    flat = [prompt for prompts in chosen.values() for prompt in prompts]
    answers = answers_to(engine, flat, args.tokens, args.answers)
    assert all(len(answer) for _, answer in answers), "an answer without a token"
    everything = available_sources(None, engine.stores)
    recorded = record_all(engine, answers, everything, lambda _: engine.resources)
    known = confidences_of(None, engine.stores)
    steps = {
        sources: _steps(recorded, answers, sources, known, args.nodes)
        for sources in (TEXT, everything)
    }
    numbers = np.repeat(np.arange(len(chosen)), [len(prompts) for prompts in chosen.values()])
    print(f"tokens per step at {args.nodes} nodes")
    print(f"{'category':16}{'prompts':>8}{'text':>8}{'all':>8}{'gain':>8}  95 % interval")
    for number, name in enumerate(chosen):
        _print_row(name, [_part(steps[s], numbers == number) for s in (everything, TEXT)])
    _print_row("all", [steps[everything], steps[TEXT]])


def _choose(prompts: Sequence[Prompt], each: int) -> dict[str, list[Prompt]]:
    """Evenly spaced prompts of each category."""
    found: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        name = prompt.category if prompt.category in TASKS else "mt-bench"
        found.setdefault(name, []).append(prompt)
    return {name: some[:: max(1, len(some) // each)][:each] for name, some in found.items()}


def _steps(
    recorded: Sequence[Sequence[Moment]],
    answers: Sequence[Answer],
    sources: SourceSet,
    known: Sequence[Confidences],
    nodes: int,
) -> tuple[Pooled, Pooled]:
    """Tokens and steps of each answer."""
    needed = together(merge_all(recorded, sources), recorded, calibration_for(sources, known))
    tokens = np.array([len(answer) for _, answer in answers], np.float64)
    return tokens, np.array([count_steps(one, nodes) for one in needed], np.float64)


def _part(steps: tuple[Pooled, Pooled], rows: np.ndarray) -> tuple[Pooled, Pooled]:
    return steps[0][rows], steps[1][rows]


def _print_row(name: str, steps: Sequence[tuple[Pooled, Pooled]]) -> None:
    full, text = (tokens.sum() / passes.sum() for tokens, passes in steps)
    low, high = difference_interval(*steps) or (np.nan, np.nan)
    count = len(steps[0][0])
    print(f"{name:16}{count:8}{text:8.3f}{full:8.3f}{full - text:+8.3f}  {low:+.3f} to {high:+.3f}")


def _arguments() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--prompts", type=Path, required=True, help="Spec-Bench's question.jsonl")
    parser.add_argument("--each", type=int, default=10, help="prompts of each category")
    parser.add_argument("--nodes", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
