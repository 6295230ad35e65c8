"""Stores of answers through the command line: generated, and recorded in traces."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]

PROMPT = ["--prompt", "the cat sat on the mat, the", "--max-new-tokens", 12, "--nodes", 6]


def parsed(ran: Any) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    content: dict[str, Any] = json.loads(ran.out)
    return content


@pytest.fixture(name="questions", scope="module")
def _questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    for number in range(12):
        (folder / f"{number:02d}.txt").write_text(" ".join("abcdefghijklmnop") + f" {number}")
    return folder


@pytest.mark.parametrize("manner", [[], ["--temperature", 0.9, "--seed", 3]])
def test_a_store_of_own_answers_holds_what_decode_answers(
    manner: list[Any], run: Run, model: Path, questions: Path, tmp_path: Path
) -> None:
    place = tmp_path / "s"
    build = ["--corpus", questions, "--model", model, "--out", place, "--generate", *manner]
    build += ["--generate-tokens", 150, "--answer-tokens", 16, "--dtype", "float32"]
    plan = run("build-index", *build, "--dry-run")
    assert "prompts     12\n" in plan.err
    assert "memory      at most " in plan.err
    assert not place.exists()
    content = parsed(run("build-index", *build, "--json"))
    assert content["counts"]["tokens"] == 150
    assert content["counts"]["keys"] == 150 - 2 * content["counts"]["documents"]
    manifest = json.loads((place / "manifest.json").read_bytes())
    ids = np.fromfile(place / manifest["files"]["tokens"]["path"], "<u2")
    ends = np.fromfile(place / manifest["files"]["offsets"]["path"], "<u8")[1:-1]
    shown = parsed(run("inspect", place, "--model", model, "--json", "--samples", 99))["samples"]
    how = ["--model", model, "--max-new-tokens", 16, "--drafter", "plain", "--dtype", "float32"]
    answers = np.split(ids, ends.astype(int))
    for number, (row, answer) in enumerate(zip(shown, answers, strict=True)):
        text = (questions / row["document"]).read_text()
        keyed = [*manner[:2], "--seed", manner[3] + number] if manner else []
        alone = parsed(run("decode", *how, *keyed, "--prompt", text, "--json"))["tokens"]
        assert answer.tolist() == alone[: len(answer)]
    used = run("decode", *PROMPT, "--model", model, "--store", place, "--drafter", "dresd")
    assert used.code == 0, used.err
    assert "answers to prompts of the recipe text" in run("inspect", place, "--model", model).out


def test_a_killed_build_of_answers_goes_on_and_ends_identical(
    run: Run, model: Path, questions: Path, tmp_path: Path
) -> None:
    script = (
        "import time\n"
        "from specret.datastore import answers, own_plan\n"
        "from specret.decode.writing import BatchWriter\n"
        "from specret.cli.main import run\n"
        "own_plan.MOST_ROWS = answers.FULL_SHARD = 2\n"
        "own = BatchWriter.write\n"
        "calls = []\n"
        "def slow(self, *given):\n"
        "    calls.append(1)\n"
        "    for n, answer in enumerate(own(self, *given)):\n"
        "        if SLOW and len(calls) == 2 and n == 1:\n"
        "            print('in the middle', flush=True); time.sleep(60)\n"
        "        yield answer\n"
        "BatchWriter.write = slow\n"
        "run()\n"
    )
    asked = ["--corpus", questions, "--model", model, "--generate", "--dtype", "float32"]
    asked += ["--generate-tokens", 150, "--answer-tokens", 16]
    command = ["build-index", *map(str, asked), "--out"]
    start = [sys.executable, "-c", "SLOW = True\n" + script, *command, str(tmp_path / "killed")]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "in the middle\n"
        finally:
            process.kill()
    assert not (tmp_path / "killed" / "manifest.json").exists()
    for name in ("killed", "whole"):
        again = [sys.executable, "-c", "SLOW = False\n" + script, *command, str(tmp_path / name)]
        subprocess.run(again, check=True, capture_output=True)
    whole = {p for p in (tmp_path / "whole").rglob("*") if p.is_file() and p.name != "_lock"}
    assert len([p for p in whole if p.parent.name == "answers"]) > 2
    for path in whole:
        same = tmp_path / "killed" / path.relative_to(tmp_path / "whole")
        assert same.read_bytes() == path.read_bytes(), path


def test_a_trace_becomes_a_store(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    trace, place = tmp_path / "t.jsonl", tmp_path / "s"
    how = [*PROMPT, "--model", model, "--drafter", "prompt", "--trace", trace, "--json"]
    tokens = parsed(run("decode", *how))["tokens"]
    text = {"turns": ["the cat sat"], "category": "c", "question_id": 1}
    (tmp_path / "p.jsonl").write_text(json.dumps(text))
    eval_ = ["--prompts", tmp_path / "p.jsonl", "--max-new-tokens", 8, "--trace", trace]
    parsed(run("eval", *eval_, "--model", model, "--drafter", "prompt", "--no-baselines", "--json"))
    with trace.open("ab") as file:
        file.write(b"{broken\n")
    build = ["build-index", "--from-traces", trace, "--model", model, "--out", place]
    refused = run(*build, "--bad-lines", "refuse")
    assert refused.code == 1
    assert "1 of 3 lines of no use\n  t.jsonl:3: not JSON" in refused.err
    built = run(*build)
    assert built.out.startswith(f"{place}: built\n2 documents, 20 tokens, 16 dense keys")
    assert "skipped: t.jsonl:3: not JSON\n" in built.err
    shown = parsed(run("inspect", place, "--model", model, "--json"))
    assert [row["document"] for row in shown["samples"]] == ["t.jsonl:1", "t.jsonl:2"]
    assert shown["samples"][0]["ids"] == tokens
    assert "recorded answers, without the prompts" in run("inspect", place, "--model", model).out
    used = parsed(run("decode", *PROMPT, "--model", model, "--store", place, "--json"))
    assert (used["tokens"], used["accepted"] > 4) == (tokens, True)


def test_a_trace_that_cannot_be_written_is_told_before_the_answer(
    run: Run, model: Path, tmp_path: Path
) -> None:
    how = [*PROMPT, "--model", model, "--drafter", "prompt"]
    ran = run("decode", *how, "--trace", tmp_path / "no" / "t.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert "No such file or directory" in ran.err


def test_missing_traces_are_told_before_the_model_loads(run: Run) -> None:
    ran = run("build-index", "--from-traces", "nowhere.jsonl", "--model", "./also-nowhere")
    assert ran.code == 1
    assert "error: traces nowhere.jsonl: no such file\nhint: decode --trace" in ran.err


def test_inspect_tells_that_kept_features_are_checked_by_size_alone(
    run: Run, model: Path, questions: Path, tmp_path: Path
) -> None:
    place = tmp_path / "s"
    build = ["build-index", "--corpus", questions, "--model", model, "--out", place, "--generate"]
    built = run(*build, "--generate-tokens", 60, "--answer-tokens", 16, "--keep-features")
    assert built.code == 0, built.err
    told = run("inspect", place, "--model", model).out
    assert "(every file as its manifest says, features by their sizes)\n" in told
    assert "for training a draft head" in told
    file = sorted((place / "features").iterdir())[0]
    file.write_bytes(file.read_bytes()[:-1])
    cut = run("inspect", place, "--model", model)
    assert cut.code == 1
    assert f"bytes, expected {file.stat().st_size + 1}" in cut.err
