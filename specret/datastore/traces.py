"""Traces: recorded prompts and answers, read from JSON lines and written to them.

In: a JSONL file that others may have written, and what turns text into ids. Out: prompt and
answer ids, and by name every line that gives none. Knows no model.

A line is one of: {"prompt_tokens": [...], "answer_tokens": [...]}, perhaps with "tokenizer" (its
digest) and "licence"; {"messages": [...]}, whose last turn is the answer; {"prompt": TEXT or
messages, "answer": TEXT}; {"text": TEXT}, an answer without a prompt.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specret.types import Fingerprint, SpecretError, TokenArray

Tokenize = Callable[[str | Sequence[Mapping[str, str]]], TokenArray]
"""Ids of a prompt: text or messages as `decode` would feed them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How lines become ids.

    Attributes:
        prompt: ids of a prompt.
        answer: ids of an answer's text, nothing added.
        fingerprint: of the model; lines of another tokenizer are no use.
        context_len: positions that the model can hold.
    """

    prompt: Tokenize
    answer: Callable[[str], TokenArray]
    fingerprint: Fingerprint
    context_len: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded answer: where it stands, ids of the prompt (perhaps none) and of the answer."""

    name: str
    prompt: TokenArray
    answer: TokenArray
    licence: str = ""


class _Bad(ValueError):
    """Why a line gives no trace."""


def read_traces(path: Path, reading: Reading) -> tuple[list[Trace], list[tuple[str, str]]]:
    """Every usable line, and (name, reason) of every other one; blank lines count as neither.

    Raises:
        SpecretError: the file cannot be read.
    """
    traces: list[Trace] = []
    skipped: list[tuple[str, str]] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                name = f"{path.name}:{number}"
                try:
                    traces.append(_trace(name, line, reading))
                except _Bad as reason:
                    skipped.append((name, str(reason)))
    except OSError as fault:
        raise SpecretError(
            f"traces {path}: {fault.strerror}", "name a JSONL file, such as decode --trace writes"
        ) from fault
    return traces, skipped


def trace_line(fingerprint: Fingerprint, prompt: TokenArray, answer: TokenArray) -> bytes:
    """One line in the first of the forms, exact for this tokenizer."""
    record = {
        "model": fingerprint.model_id,
        "tokenizer": fingerprint.tokenizer,
        "prompt_tokens": prompt.tolist(),
        "answer_tokens": answer.tolist(),
    }
    return (json.dumps(record) + "\n").encode()


def append_trace(path: Path, line: bytes) -> None:
    """Add a line in one write, so that those of several processes never mix."""
    with path.open("ab", buffering=0) as file:
        file.write(line)


def _trace(name: str, line: bytes, reading: Reading) -> Trace:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise _Bad("not JSON") from None
    if not isinstance(row, dict):
        raise _Bad("not a JSON object")
    prompt, answer = _ids(row, reading)
    if not len(answer):
        raise _Bad("an empty answer")
    for ids in (prompt, answer):
        outside = ids[(ids < 0) | (ids >= reading.fingerprint.vocab_size)]
        if len(outside):
            raise _Bad(f"id {outside[0]} outside 0 to {reading.fingerprint.vocab_size - 1}")
    total = len(prompt) + len(answer)
    if total > reading.context_len:
        raise _Bad(f"{total} tokens, the model's context holds {reading.context_len}")
    licence = row.get("licence", row.get("license"))
    return Trace(name, prompt, answer, licence if isinstance(licence, str) else "")


def _ids(row: Mapping[str, Any], reading: Reading) -> tuple[TokenArray, TokenArray]:
    if "prompt_tokens" in row or "answer_tokens" in row:
        digest = row.get("tokenizer", reading.fingerprint.tokenizer)
        if digest != reading.fingerprint.tokenizer:
            raise _Bad(f"ids of another tokenizer ({str(digest)[:12]})")
        return _numbers(row, "prompt_tokens"), _numbers(row, "answer_tokens")
    if "messages" in row:
        turns = _turns(row["messages"])
        if len(turns) < 2 or turns[-1]["role"] != "assistant":
            raise _Bad("its messages do not end with an answer")
        return _prompt(turns[:-1], reading), reading.answer(turns[-1]["content"])
    if "prompt" in row and "answer" in row:
        asked = row["prompt"]
        prompt = _text(asked, "prompt") if isinstance(asked, str) else _turns(asked)
        return _prompt(prompt, reading), reading.answer(_text(row["answer"], "answer"))
    if "text" in row:
        return np.empty(0, np.int64), reading.answer(_text(row["text"], "text"))
    raise _Bad("none of prompt_tokens, messages, prompt with answer, text")


def _prompt(prompt: str | list[dict[str, str]], reading: Reading) -> TokenArray:
    try:
        return reading.prompt(prompt)
    except SpecretError as reason:  # messages, and a tokenizer without a template
        raise _Bad(str(reason)) from None


def _numbers(row: Mapping[str, Any], name: str) -> TokenArray:
    ids = row.get(name, [])
    if not isinstance(ids, list) or not all(type(i) is int and abs(i) < 1 << 62 for i in ids):
        raise _Bad(f"{name} is no list of ids")
    return np.array(ids, np.int64)


def _turns(messages: Any) -> list[dict[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise _Bad("messages is no list of turns")
    turns = []
    for turn in messages:
        if not isinstance(turn, dict):
            raise _Bad("a turn is no object")
        turns.append({name: _text(turn.get(name), name) for name in ("role", "content")})
    return turns


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _Bad(f"its {name} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Bad(f"its {name} holds half of a surrogate pair") from None
    return value
