"""All samples of a run into one dict of plain values.

In: the methods, the prompts and everything that was written. Out: what `eval --json` prints, less
its provenance. The target is asked again only where two decodings part, for the gap there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from specret.decode.call import Call
from specret.engine import Engine
from specret.evaluation.figures import difference_interval, figures, pooled_steps
from specret.evaluation.identity import compare
from specret.evaluation.methods import LOOKUP, without
from specret.evaluation.overlap import overlap
from specret.evaluation.prompts import Prompt
from specret.evaluation.sample import Answer, Method, Sample, Writing
from specret.hybrid.confidences import confidences_of
from specret.types import SOURCES, Prices, TokenArray

SCHEMA_VERSION = 1

Row = dict[str, Any]


def summarise(
    engine: Engine,
    methods: Sequence[Method],
    prompts: Sequence[Prompt],
    answers: Sequence[Answer],
    how: Writing,
) -> dict[str, Any]:
    """The result of a run; see `harness.run` for its keys."""
    rows: dict[str, Row] = {
        method.name: {
            "nodes": method.nodes,
            **_figures(method.name, answers, engine.prices),
            **_identity(engine, method, prompts, answers, how),
        }
        for method in methods
    }
    # transformers' lookup may part from transformers' own greedy text: its affair, not ours
    judged = [row for name, row in rows.items() if not name.startswith(LOOKUP)]
    result: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "settings": {"prompts": len(prompts), **how.options()},
        "prices": asdict(engine.prices),
        "methods": _best_lookup(rows),
        "lossless": all(d["near_tie"] for row in judged for d in row["differences"]),
        "categories": _categories(methods, prompts, answers, engine.prices),
        "leave_one_out": _leave_one_out(answers),
        "overlap": None,
        "fitted_on": _fitted_on(engine, methods, prompts),
    }
    if engine.stores:
        indexes = [store.suffix for store in engine.stores]
        result["overlap"] = overlap(indexes, prompts, engine.tokenizer)
    return result | {"notes": _notes(result)}


def gap_after(engine: Engine, prompt: TokenArray, how: Writing) -> Callable[[Sequence[int]], float]:
    """`gap(new)`: how far apart the best two tokens after the prompt and the new ones are."""
    call = Call(**how.options())

    def gap(new: Sequence[int]) -> float:
        prefix = np.concatenate([prompt, np.array(new, np.int64)])
        return engine.gap(prefix, call, prompt_len=len(prompt))

    return gap


def _figures(name: str, answers: Sequence[Answer], prices: Prices) -> Row:
    samples, plain = _samples(name, answers), _samples("plain", answers)
    return figures(samples, plain, _numbers(answers), prices)


def _samples(name: str, answers: Sequence[Answer]) -> list[Sample]:
    return [answer.samples[name] for answer in answers]


def _numbers(answers: Sequence[Answer]) -> list[int]:
    """Which prompt each answer belongs to, counted from 0 without holes."""
    _, numbers = np.unique([answer.prompt for answer in answers], return_inverse=True)
    found: list[int] = numbers.tolist()
    return found


def _identity(
    engine: Engine,
    method: Method,
    prompts: Sequence[Prompt],
    answers: Sequence[Answer],
    how: Writing,
) -> Row:
    if not method.same_text(how.temperature):
        unknown: Row = {"identical": None, "near_ties": None, "differences": []}
        return {"answers": len(answers), **unknown}
    half = engine.loaded.dtype != torch.float32
    differences = []
    for answer in answers:
        expected, got = answer.samples["plain"].tokens, answer.samples[method.name].tokens
        found = compare(expected, got, gap_after(engine, answer.ids, how), half=half)
        if found is not None:
            place = {"prompt": prompts[answer.prompt].id, "turn": answer.turn}
            differences.append({**place, **found.record()})
    return {
        "answers": len(answers),
        "identical": len(answers) - len(differences),
        "near_ties": sum(d["near_tie"] for d in differences),
        "differences": differences,
    }


def _best_lookup(rows: Mapping[str, Row]) -> dict[str, Row]:
    """The rows with the fastest lookup in the place of all that were tried."""
    tried = {name: row for name, row in rows.items() if name.startswith(LOOKUP)}
    if not tried:
        return dict(rows)
    best = max(tried.values(), key=lambda row: row["tokens_per_s"] or 0.0)
    speeds = {str(row["nodes"]): row["tokens_per_s"] for row in tried.values()}
    kept = {name: row for name, row in rows.items() if name not in tried}
    return {**kept, LOOKUP: {**best, "tried_tokens_per_s": speeds}}


def _categories(
    methods: Sequence[Method],
    prompts: Sequence[Prompt],
    answers: Sequence[Answer],
    prices: Prices,
) -> dict[str, dict[str, Row]]:
    """Tokens per step and speed-up of each method in each category, where there are several."""
    names = list(dict.fromkeys(prompt.category for prompt in prompts))
    if len(names) < 2:
        return {}
    out: dict[str, dict[str, Row]] = {}
    for category in names:
        some = [a for a in answers if prompts[a.prompt].category == category]
        rows = {method.name: _figures(method.name, some, prices) for method in methods}
        out[category] = {
            name: {key: row[key] for key in ("tokens_per_step", "speedup")}
            for name, row in rows.items()
        }
    return out


def _leave_one_out(answers: Sequence[Answer]) -> dict[str, Row]:
    """Tokens per step that each source adds to hybrid: with it less without it."""
    numbers, out = _numbers(answers), {}
    for source in SOURCES:
        if without(source) not in answers[0].samples:
            continue
        full = pooled_steps(_samples("hybrid", answers), numbers)
        less = pooled_steps(_samples(without(source), answers), numbers)
        adds = float(full[0].sum() / full[1].sum() - less[0].sum() / less[1].sum())
        out[source] = {"adds_tokens_per_step": adds, "ci95": difference_interval(full, less)}
    return out


def _fitted_on(
    engine: Engine, methods: Sequence[Method], prompts: Sequence[Prompt]
) -> list[str] | None:
    """Prompts on which hybrid's confidences were fitted; None where that cannot be known."""
    if not any(method.name.startswith("hybrid") for method in methods):
        return []
    known: set[str] = set()
    for one in confidences_of(None, engine.stores):
        if "prompt_ids" not in one.provenance:
            return None
        known.update(one.provenance["prompt_ids"])
    return [prompt.id for prompt in prompts if prompt.id in known]


def _notes(result: Mapping[str, Any]) -> list[str]:
    """What a reader of the figures must know, in sentences."""
    notes = []
    fitted, count = result["fitted_on"], result["settings"]["prompts"]
    if fitted is None:
        notes.append("hybrid's confidences do not say which prompts they were fitted on")
    elif fitted:
        notes.append(
            f"{len(fitted)} of {count} prompts are among those that hybrid's confidences were "
            "fitted on: its figures are too good"
        )
    shared = result["overlap"]
    if shared is not None and shared["with_reference"]:
        notes.append(
            f"{shared['shared']} of {shared['with_reference']} reference answers share "
            f"{shared['min_run']} tokens in a row with the store (or stand there whole)"
        )
    for name, row in result["methods"].items():
        beyond = [d for d in row["differences"] if not d["near_tie"]]
        if beyond:
            first = beyond[0]
            notes.append(
                f"{name}: {len(beyond)} of {row['answers']} answers differ from plain's beyond "
                f"rounding, first {first['prompt']} at new token {first['position']} "
                f"(gap {first['gap']})"
            )
    return notes
