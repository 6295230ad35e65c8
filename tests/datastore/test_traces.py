"""Traces: every form gives the ids it says, every line of no use is named with its reason."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_stores import FINGERPRINT, SumEncoder, in_bytes

from specret.datastore.answers import read_shard
from specret.datastore.asking import asked_before
from specret.datastore.durable import Marker
from specret.datastore.own import build_own
from specret.datastore.own_plan import OwnOptions, plan_own
from specret.datastore.recorded import RecordedWriter
from specret.datastore.store import open_store
from specret.datastore.traces import Reading, append_trace, read_traces, trace_line
from specret.types import SpecretError


def asked(prompt: Any) -> Any:
    if isinstance(prompt, str):
        return in_bytes(f"<{prompt}>")
    if any(turn["role"] == "tool" for turn in prompt):
        raise SpecretError("the template knows no tools")
    return in_bytes("".join(f"<{turn['content']}>" for turn in prompt))


READING = Reading(asked, in_bytes, FINGERPRINT, context_len=60)
USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "yes"}

GOOD: dict[str, tuple[dict[str, Any], str, str]] = {
    "ids": ({"prompt_tokens": [1, 2], "answer_tokens": [3]}, "\1\2", "\3"),
    "ids of this tokenizer": (
        {"prompt_tokens": [], "answer_tokens": [3], "tokenizer": FINGERPRINT.tokenizer},
        "",
        "\3",
    ),
    "messages": ({"messages": [USER, ANSWER]}, "<hi>", "yes"),
    "a longer dialogue": ({"messages": [USER, ANSWER, USER, ANSWER]}, "<hi><yes><hi>", "yes"),
    "text": ({"text": "all of it"}, "", "all of it"),
    "prompt and answer": ({"prompt": "a", "answer": "b"}, "<a>", "b"),
    "messages and answer": ({"prompt": [USER], "answer": "b"}, "<hi>", "b"),
}

BAD: dict[str, tuple[bytes, str]] = {
    "cut": (b'{"text": "a', "not JSON"),
    "not UTF-8": (b'{"text": "\xff"}', "not JSON"),
    "nested without end": (b"[" * 100_000, "not JSON"),
    "a list": (b"[1]", "not a JSON object"),
    "nothing known": (b'{"question": "a"}', "none of prompt_tokens, messages"),
    "an empty answer": (b'{"text": ""}', "an empty answer"),
    "ids without an answer": (b'{"prompt_tokens": [1]}', "an empty answer"),
    "ids as text": (b'{"answer_tokens": ["1"]}', "answer_tokens is no list of ids"),
    "ids as numbers with a point": (b'{"answer_tokens": [1.0]}', "is no list of ids"),
    "true is no id": (b'{"answer_tokens": [true]}', "is no list of ids"),
    "an id beyond any integer": (
        b'{"answer_tokens": [' + b"9" * 30 + b"]}",
        "is no list of ids",
    ),
    "an id outside the vocabulary": (b'{"answer_tokens": [1, 256]}', "id 256 outside 0 to 255"),
    "a negative id": (b'{"prompt_tokens": [-1], "answer_tokens": [1]}', "id -1 outside"),
    "another tokenizer": (
        b'{"answer_tokens": [1], "tokenizer": "cafe"}',
        "ids of another tokenizer (cafe)",
    ),
    "no answer at the end": (
        json.dumps({"messages": [ANSWER, USER]}).encode(),
        "do not end with an answer",
    ),
    "an answer to nothing": (
        json.dumps({"messages": [ANSWER]}).encode(),
        "do not end with an answer",
    ),
    "no turns": (b'{"messages": []}', "messages is no list of turns"),
    "a turn that is text": (b'{"messages": ["hi"]}', "a turn is no object"),
    "a turn without content": (b'{"messages": [{"role": "user"}]}', "its content is not a string"),
    "what the template refuses": (
        json.dumps({"messages": [{"role": "tool", "content": "x"}, ANSWER]}).encode(),
        "the template knows no tools",
    ),
    "half a pair": (b'{"text": "\\ud800"}', "half of a surrogate pair"),
    "longer than the context": (json.dumps({"text": "x" * 61}).encode(), "61 tokens, the model"),
}


@pytest.mark.parametrize("form", GOOD)
def test_every_form_gives_its_ids(form: str, tmp_path: Path) -> None:
    row, prompt, answer = GOOD[form]
    file = tmp_path / "t.jsonl"
    file.write_text("\n" + json.dumps({**row, "licence": "MIT"}) + "\n\n")
    traces, skipped = read_traces(file, READING)
    assert skipped == []
    (trace,) = traces
    assert (trace.name, trace.licence) == ("t.jsonl:2", "MIT")
    assert bytes(trace.prompt.tolist()).decode() == prompt
    assert bytes(trace.answer.tolist()).decode() == answer


@pytest.mark.parametrize("case", BAD)
def test_a_line_of_no_use_is_skipped_by_name_or_refuses_the_file(case: str, tmp_path: Path) -> None:
    line, reason = BAD[case]
    good = json.dumps(GOOD["text"][0]).encode()
    file = tmp_path / "t.jsonl"
    file.write_bytes(b"\n".join([good, line, good]))
    traces, skipped = read_traces(file, READING)
    assert [trace.name for trace in traces] == ["t.jsonl:1", "t.jsonl:3"]
    assert [name for name, _ in skipped] == ["t.jsonl:2"]
    assert reason in skipped[0][1]
    with pytest.raises(SpecretError, match=r"1 of 3 lines of no use\n  t.jsonl:2: ") as caught:
        asked_before(file, READING, refuse=True)
    assert "--bad-lines skip" in caught.value.hint
    file.write_bytes(line)
    with pytest.raises(SpecretError, match="no usable line"):
        asked_before(file, READING, refuse=False)


@settings(deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_named(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("any") / "t.jsonl"
    file.write_bytes(content)
    traces, skipped = read_traces(file, READING)
    lines = [line for line in content.split(b"\n") if line.strip()]
    assert len(traces) + len(skipped) == len(lines)


@settings(deadline=None)
@given(
    prompt=st.lists(st.integers(0, 255), max_size=20),
    answer=st.lists(st.integers(0, 255), min_size=1, max_size=40),
)
def test_what_is_written_is_read_back(
    prompt: list[int], answer: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("back") / "t.jsonl"
    for _ in range(2):
        append_trace(file, trace_line(FINGERPRINT, np.array(prompt, int), np.array(answer)))
    traces, skipped = read_traces(file, READING)
    assert skipped == []
    assert [(t.prompt.tolist(), t.answer.tolist()) for t in traces] == [(prompt, answer)] * 2


@pytest.mark.parametrize("with_prompts", [False, True])
def test_a_store_of_recorded_answers_has_the_states_in_their_context(
    with_prompts: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    rows = [(rng.integers(0, 256, p), rng.integers(0, 256, a)) for p, a in ((9, 30), (0, 12))]
    for prompt, answer in rows:
        append_trace(tmp_path / "t.jsonl", trace_line(FINGERPRINT, prompt, answer))
    found, traces = asked_before(tmp_path / "t.jsonl", READING, refuse=True)
    writer = RecordedWriter(traces, SumEncoder())
    options = OwnOptions("recorded", 42, 30, with_prompts=with_prompts)
    plan = plan_own(found, writer, FINGERPRINT, tmp_path / "s", options)
    built = build_own(plan, writer, FINGERPRINT)
    assert (built.manifest.counts["tokens"], plan.plan.tokens) == (42 + 9 * with_prompts, 42)
    store = open_store(tmp_path / "s", FINGERPRINT)
    assert store.projection is not None
    role = "answers-00000"
    shard = read_shard(tmp_path / "s", Marker({"answers": built.manifest.files[role]}, {}))
    states = [
        SumEncoder().states(np.concatenate([prompt, answer]))[len(prompt) :][:-2]
        for prompt, answer in rows
    ]
    wanted = store.projection.apply(np.concatenate(states))
    np.testing.assert_allclose(shard.keys, wanted, atol=2e-3)
    assert store.document_of(0) == "t.jsonl:1"
    (tmp_path / "s" / built.manifest.files[role].path).unlink()
    with pytest.raises(SpecretError) as caught:
        open_store(tmp_path / "s", FINGERPRINT)
    assert "specret build-index --from-traces t.jsonl --out " in caught.value.hint
