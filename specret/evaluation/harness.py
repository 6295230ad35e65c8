"""One run: every method on every prompt, interleaved, timed, and held against plain decoding.

In: an engine, names of methods, prompts. Out: a dict of plain values (`specret eval --json`).
Order: prompt by prompt, all methods on one before the next, in an order that rotates, so that
drift of the machine falls on all alike. A later turn of a conversation continues plain's answers
for every method, so that all methods see the same prompts. Prints nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specret.datastore.traces import append_trace, trace_line
from specret.engine import Engine
from specret.evaluation import record, summary
from specret.evaluation.methods import make_methods
from specret.evaluation.prompts import Prompt
from specret.evaluation.sample import Answer, Method, Writing
from specret.types import SpecretError, TokenArray

WARM_UP_TOKENS = 16
"""New tokens of each method's warm-up on the first prompt, which is not counted."""

Progress = Callable[[int, int], None]
"""`progress(done, total)`: answers finished so far."""


def run(
    engine: Engine,
    methods: Sequence[str],
    prompts: Sequence[Prompt],
    *,
    nodes: int | str = "auto",
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    seed: int = 0,
    sources: Sequence[str] | str | None = None,
    leave_one_out: bool = False,
    progress: Progress | None = None,
    command: Sequence[str] = (),
    out: Path | None = None,
    trace: Path | None = None,
) -> dict[str, Any]:
    """Measure methods against plain decoding.

    Args:
        engine: whose model and store are used; its own drafter plays no part.
        methods: drafters of the registry, `hf-generate`, `hf-lookup`; `plain` is always there.
        prompts: from `load_prompts`.
        nodes: draft nodes per step for every method, or `auto` for each its own.
        max_new_tokens: for each answer, at least 1.
        temperature: 0 is greedy.
        seed: of the noise above temperature 0.
        sources: what hybrid merges; None: all that there are.
        leave_one_out: also measure hybrid without each of its sources.
        progress: called after each answer.
        command: the command line, for the record.
        out: a folder for results.json and samples.jsonl.
        trace: a JSONL file to which every prompt and plain's answer are added.

    Returns:
        `schema_version`, `provenance`, `settings`, `prices`, `methods` (name -> figures, see
        `figures`, with `nodes`, `answers`, `identical`, `near_ties` and `differences`),
        `lossless`, `categories`, `leave_one_out`, `overlap`, `fitted_on`, `notes`.

    Raises:
        SpecretError: an unknown method, a store that is missing, no prompt, a prompt that does
            not fit (by id), a number out of its range.
    """
    if max_new_tokens < 1:
        raise SpecretError(f"max_new_tokens is {max_new_tokens}, expected 1 or more to measure")
    if not prompts:
        raise SpecretError("no prompts, expected one or more")
    if trace is not None:
        append_trace(trace, b"")  # a file that cannot be written is told before the work
    how = Writing(max_new_tokens, temperature, seed)
    chosen = make_methods(
        engine, methods, nodes=nodes, sources=sources, leave_one_out=leave_one_out
    )
    answers = measure(engine, chosen, prompts, how, progress or _silent)
    result = summary.summarise(engine, chosen, prompts, answers, how)
    result["provenance"] = record.provenance(engine, command)
    result["settings"] |= {"nodes": nodes}
    if trace is not None:
        for answer in answers:
            tokens = np.array(answer.samples["plain"].tokens, np.int64)
            append_trace(trace, trace_line(engine.loaded.fingerprint, answer.ids, tokens))
    if out is not None:
        record.save(out, result, record.answer_lines(prompts, answers))
    return result


def measure(
    engine: Engine,
    methods: Sequence[Method],
    prompts: Sequence[Prompt],
    how: Writing,
    progress: Progress,
) -> list[Answer]:
    """Every method's sample on every turn of every prompt; `plain` must be among the methods."""
    first = _encode(engine, prompts[0], _conversation(prompts[0], []))
    short = replace(how, max_new_tokens=min(WARM_UP_TOKENS, how.max_new_tokens))
    for method in methods:
        method.write(first, short)
    answers: list[Answer] = []
    total = len(methods) * sum(len(prompt.turns) for prompt in prompts)
    done = 0
    for number, prompt in enumerate(prompts):
        given: list[str] = []
        for turn in range(len(prompt.turns)):
            ids = _encode(engine, prompt, _conversation(prompt, given))
            samples = {}
            at = len(answers) % len(methods)
            for method in (*methods[at:], *methods[:at]):
                samples[method.name] = method.write(ids, how)
                done += 1
                progress(done, total)
            answers.append(Answer(number, turn, ids, samples))
            given.append(samples["plain"].text)
    return answers


def _conversation(prompt: Prompt, given: Sequence[str]) -> str | list[Mapping[str, str]]:
    """What is to be answered next; a lone text stays text, so that base models take it too."""
    if not prompt.history and not given:
        return prompt.turns[0]
    messages = list(prompt.history)
    for turn, answer in zip(prompt.turns, given, strict=False):
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return [*messages, {"role": "user", "content": prompt.turns[len(given)]}]


def _encode(
    engine: Engine, prompt: Prompt, conversation: str | list[Mapping[str, str]]
) -> TokenArray:
    try:
        return engine.encode(conversation)
    except SpecretError as error:
        raise SpecretError(f"prompt {prompt.id}: {error}", error.hint) from error


def _silent(done: int, total: int) -> None:
    """Nobody watches."""
