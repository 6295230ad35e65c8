"""Several `--store`: hybrid reads all, others the first; each guess tells where it is from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

QUESTION = ["--prompt", "q", "--max-new-tokens", 24, "--nodes", 8]


@pytest.fixture(name="own")
def _own(run: Run, model: Path, tmp_path: Path) -> Path:
    """A store of the answer to the question, recorded."""
    trace = tmp_path / "trace.jsonl"
    ask = [*QUESTION, "--model", model, "--drafter", "plain", "--trace", trace]
    assert run("decode", *ask).code == 0
    build = ["--from-traces", trace, "--out", tmp_path / "own", "--model", model]
    assert run("build-index", *build).code == 0
    return tmp_path / "own"


def test_a_guess_of_the_second_store_names_a_document_of_that_store(
    run: Run, model: Path, store: Path, own: Path
) -> None:
    ask = [*QUESTION, "--model", model, "--store", store, "--store", own, "--show-sources"]
    ran = run("decode", *ask, "--sources", "suffix,dense,suffix2,dense2", "--json")
    content = json.loads(ran.out)
    spans = [span for span in content["spans"] if "suffix2" in span["sources"]]
    assert spans, content["spans"]
    assert content["tokens_per_step"] > 2
    for span in spans:
        if not {"suffix", "dense"} & set(span["sources"]):
            assert span["origin"].startswith("trace.jsonl:1, token ")


def test_eval_over_two_stores_is_lossless_and_records_both(
    run: Run, model: Path, store: Path, own: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "q"}\n')
    ask = ["--prompts", tmp_path / "prompts.jsonl", "--max-new-tokens", 24, "--nodes", 8]
    ask += ["--compare", "suffix", "--no-baselines", "--model", model, "--leave-one-out"]
    result = json.loads(run("eval", *ask, "--store", store, "--store", own, "--json").out)
    rows = result["methods"]
    assert result["lossless"]
    assert len(result["provenance"]["stores"]) == 2
    assert rows["hybrid"]["tokens_per_step"] > rows["suffix"]["tokens_per_step"]
    assert set(result["leave_one_out"]) == {"prompt", "suffix", "dense", "suffix2", "dense2"}


def test_several_stores_without_hybrid_are_refused(run: Run, store: Path, own: Path) -> None:
    ran = run("decode", *QUESTION, "--drafter", "suffix", "--store", store, "--store", own)
    assert ran.code == 2
    assert "several stores belong to the drafter hybrid, not to suffix" in ran.err


def test_one_store_twice_and_too_many_are_refused(
    run: Run, model: Path, store: Path, own: Path, tmp_path: Path
) -> None:
    ask = ["decode", *QUESTION, "--model", model]
    again = run(*ask, "--store", store, "--store", own, "--store", store)
    assert again.code == 1
    assert f"the store at {store.resolve()} is given twice" in again.err
    four = run(*ask, *(word for _ in range(4) for word in ("--store", own)))
    assert "4 stores, expected at most 3" in four.err


def test_a_source_of_a_store_that_is_not_open_is_refused(
    run: Run, model: Path, store: Path
) -> None:
    ran = run("decode", *QUESTION, "--model", model, "--store", store, "--sources", "suffix2")
    assert "source 'suffix2' needs a store that has it, 1 is open" in ran.err
