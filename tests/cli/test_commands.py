"""What each command prints: data on stdout, the rest on stderr, one object with --json."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specret.cli import doctor
from specret.registry import DRAFTERS

Run = Callable[..., Any]

PROMPT = ["--prompt", "the cat sat on the mat, the", "--max-new-tokens", 12, "--nodes", 6]


@pytest.fixture(name="asked")
def _asked(model: Path, store: Path) -> list[Any]:
    return [*PROMPT, "--model", model, "--store", store]


def parsed(ran: Any) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert len(lines) == 1
    content: dict[str, Any] = json.loads(lines[0])
    assert content["schema_version"] == 1
    return content


def test_decode_writes_the_text_and_one_line_of_figures(run: Run, asked: list[Any]) -> None:
    ran = run("decode", *asked, "--drafter", "suffix")
    text = parsed(run("decode", *asked, "--drafter", "suffix", "--json"))["text"]
    assert (ran.code, ran.out) == (0, text + "\n")
    assert len(ran.err.splitlines()) == 1
    assert "12 tokens in " in ran.err
    assert "(drafter suffix, 6 nodes, float32 on cpu, finish: length)" in ran.err


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_every_drafter_decodes_to_the_same_text(
    temperature: float, run: Run, asked: list[Any]
) -> None:
    how = ["--temperature", temperature, "--seed", 5, "--dtype", "float32", "--json"]
    texts = {parsed(run("decode", *asked, *how, "--drafter", name))["text"] for name in DRAFTERS}
    assert len(texts) == 1


def test_decode_reads_a_prompt_from_stdin(
    run: Run, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = parsed(run("decode", *asked, "--drafter", "plain", "--json"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(asked[1]))
    read = parsed(run("decode", *asked, "--prompt", "-", "--drafter", "plain", "--json"))
    assert read["tokens"] == given["tokens"]


def test_no_new_tokens_is_an_empty_text(run: Run, asked: list[Any]) -> None:
    ran = run("decode", *asked, "--drafter", "prompt", "--max-new-tokens", 0)
    assert (ran.code, ran.out, ran.err) == (0, "\n", "no new tokens (finish: length)\n")


def test_a_one_token_prompt_decodes(run: Run, asked: list[Any]) -> None:
    content = parsed(run("decode", *asked, "--prompt", "q", "--drafter", "suffix", "--json"))
    assert len(content["tokens"]) == 12


def test_show_sources_names_the_file_of_each_accepted_guess(
    run: Run, model: Path, corpus: Path, tmp_path: Path
) -> None:
    # the model's own answer, stored, is what a store can guess
    ask = ["--prompt", "q", "--model", model, "--max-new-tokens", 24, "--nodes", 6]
    answer = parsed(run("decode", *ask, "--drafter", "plain", "--raw", "--json"))["text"]
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "own.txt").write_text("q" + answer)
    (tmp_path / "answers" / "other.txt").write_text("something else")
    place = tmp_path / "store"
    build = ["--corpus", tmp_path / "answers", "--out", place, "--dense-tokens", 0]
    assert run("build-index", *build, "--model", model).code == 0
    ask += ["--drafter", "suffix", "--store", place, "--show-sources"]
    spans = parsed(run("decode", *ask, "--json"))["spans"]
    assert spans
    assert all(span["sources"] == ["suffix"] for span in spans)
    assert all(span["origin"].startswith("own.txt, token ") for span in spans)
    lines = run("decode", *ask).out.splitlines()
    assert lines[-1].startswith("suffix  ")
    assert "own.txt, token " in lines[-1]


def test_build_index_says_its_plan_first_and_names_skipped_files(
    run: Run, model: Path, corpus: Path, tmp_path: Path
) -> None:
    asked = ["build-index", "--corpus", corpus, "--model", model, "--out", tmp_path / "s"]
    asked += ["--dense-tokens", 100]
    plan = run(*asked, "--dry-run")
    assert (plan.code, plan.out) == (0, "")
    assert not (tmp_path / "s").exists()
    for name in ("documents", "tokens", "dense keys", "time", "size", "folder"):
        assert f"\n{name}" in "\n" + plan.err
    built = run(*asked)
    assert built.err.startswith(plan.err.split("time")[0])
    assert "skipped: blank.txt: blank\n" in built.err
    assert "skipped: picture.bin: holds NUL bytes\n" in built.err
    assert built.out.startswith(f"{tmp_path / 's'}: built\n2 documents, ")
    again = parsed(run(*asked, "--json"))
    assert again["fresh"] is False
    assert [row["name"] for row in again["skipped"]] == ["blank.txt", "picture.bin"]
    assert f"{tmp_path / 's'}: finished already" in run(*asked).out


def test_decode_finds_the_store_that_build_index_puts_in_the_cache(run: Run, model: Path) -> None:
    build = ["--dense-tokens", 0, "--max-tokens", 2000, "--model", model]
    place = Path(parsed(run("build-index", *build, "--json"))["store"])
    assert place.name == "code"
    assert run("decode", *PROMPT, "--drafter", "suffix", "--model", model).code == 0
    assert str(place) in run("inspect", "--model", model).out


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_build_goes_on_and_ends_identical(
    kill: signal.Signals, run: Run, model: Path, corpus: Path, store: Path, tmp_path: Path
) -> None:
    script = (
        "import sys, time\n"
        "from specret.models.encoder import TransformersEncoder\n"
        "from specret.cli.main import run\n"
        "own = TransformersEncoder.encode\n"
        "calls = []\n"
        "def slow(self, windows):\n"
        "    calls.append(1)\n"
        "    if len(calls) > 2: print('in the middle', flush=True); time.sleep(60)\n"
        "    return own(self, windows)\n"
        "TransformersEncoder.encode = slow\n"
        "run()\n"
    )
    place = tmp_path / "store"
    asked = ["--corpus", corpus, "--out", place, "--dense-tokens", 200, "--model", model]
    command = [sys.executable, "-c", script, "build-index", *map(str, asked)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "in the middle\n"
    process.send_signal(kill)
    _, err = process.communicate(timeout=60)
    if kill == signal.SIGINT:
        assert process.returncode == 130
        assert err.endswith("the same command goes on where this one stopped\ninterrupted\n")
    assert run("build-index", *asked).code == 0
    for path in store.rglob("*"):
        if path.is_file() and path.name != "_lock":
            assert (place / path.relative_to(store)).read_bytes() == path.read_bytes(), path


def test_inspect_shows_counts_sizes_and_samples(run: Run, model: Path, store: Path) -> None:
    ran = run("inspect", store, "--model", model, "--samples", 2)
    assert ran.code == 0
    rows = [line.split(maxsplit=1) for line in ran.out.splitlines()]
    assert [row[0] for row in rows] == [
        *(
            "store",
            "model",
            "tokenizer",
            "corpus",
            "content",
            "documents",
            "tokens",
            "keys",
            "size",
        ),
        *("sample", "sample"),
    ]
    assert rows[-1][1].startswith("text1.txt: 'on the mat the cat sat")
    assert "2 (2 skipped)" in ran.out
    content = parsed(run("inspect", store, "--model", model, "--json"))
    assert content["counts"]["documents"] == 2
    assert 60 < content["bytes_per_key"] < 90


def test_inspect_without_the_right_tokenizer_shows_ids(run: Run, store: Path) -> None:
    ran = run("inspect", store)
    assert ran.code == 0
    assert "samples are ids: text needs the tokenizer of tiny (--model)" in ran.err
    assert "text0.txt: [" in ran.out


def test_eval_compares_on_given_prompts(run: Run, model: Path, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"the cat {i}"}) + "\n" for i in range(3)))
    asked = ["--drafter", "suffix", "--compare", "rest,prompt", "--prompts", file, "--nodes", 4]
    asked += ["--model", model, "--store", store, "--max-new-tokens", 8, "--dtype", "float32"]
    content = parsed(run("eval", *asked, "--limit", 2, "--json", "--out", tmp_path / "out"))
    ours, theirs = ["plain", "suffix", "rest", "prompt"], ["hf-generate", "hf-lookup"]
    assert list(content["methods"]) == [*ours, *theirs]
    assert all(row["identical"] == 2 for row in content["methods"].values())
    assert content["settings"]["prompts"] == 2
    assert (tmp_path / "out" / "results.json").exists()
    assert "tokens/step" in run("eval", *asked).out


def test_doctor_names_what_is_there_and_what_to_do(run: Run) -> None:
    ran = run("doctor", "--json")
    content = json.loads(ran.out)
    seen = {finding["name"]: finding for finding in content["findings"]}
    assert {"python", "torch", "transformers", "suffix index", "faiss", "cpu", "model"} <= set(seen)
    assert seen["faiss"]["state"] == "ok"
    store = seen["default store"]
    assert (store["state"], store["hint"]) == ("warning", "specret build-index --corpus code")
    assert ran.code == (0 if content["healthy"] else 1)


@pytest.mark.parametrize(
    ("installed", "state"),
    [
        ({}, "fault"),
        ({"faiss-cpu": "1"}, "ok"),
        ({"faiss-gpu": "1"}, "ok"),
        ({"faiss-cpu": "1", "faiss-gpu": "1"}, "warning"),
    ],
)
def test_doctor_warns_of_faiss_packages_that_overwrite_each_other(
    installed: dict[str, str], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", installed.get)
    [finding] = doctor._faiss()
    assert finding.state == state
    assert ("overwrite each other" in finding.seen) == (state == "warning")


def test_doctor_fails_where_something_needed_is_missing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {name: "1" for name in (*doctor.PACKAGES, "faiss-cpu") if name != "torch"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    ran = run("doctor")
    assert ran.code == 1
    assert "fault   torch         not installed\n" in ran.out
    assert "-> pip install torch\n" in ran.out


def test_bench_prints_every_measurement(
    run: Run, model: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["--model", model, "--store", store, "--lookups", 5, "--build-tokens", 1000]
    content = parsed(run("bench", *asked, "--json"))
    assert content["forward_ms"]["1"] > 0
    assert set(content["lookup_ms"]) == {"prompt", "suffix", "rest", "dresd"}
    assert content["build"]["tokens"] == 1000
    assert content["extraction"]["of_bare_forward"] > 0
    out = run("bench", *asked).out
    assert "rows" in out
    assert "p99 ms" in out
