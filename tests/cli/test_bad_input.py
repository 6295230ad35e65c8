"""What a user can get wrong ends in a clear message and the right exit status."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_folder import save_tiny

Run = Callable[..., Any]

USAGE = {
    "unknown command": (["decod"], "No such command 'decod'"),
    "unknown option": (["decode", "--frobnicate"], "No such option: --frobnicate"),
    "unknown drafter": (
        ["decode", "--prompt", "a", "--drafter", "magic"],
        "Invalid value for '--drafter': 'magic' is not one of plain, rest, suffix, dresd, prompt",
    ),
    "nodes": (
        ["decode", "--prompt", "a", "--nodes", "-1"],
        "Invalid value for '--nodes': '-1' is neither a number from 0 on nor auto",
    ),
    "dtype": (["decode", "--prompt", "a", "--dtype", "int8"], "Invalid value for '--dtype'"),
    "device": (["decode", "--prompt", "a", "--device", "tpu"], "Invalid value for '--device'"),
    "threads": (
        ["decode", "--prompt", "a", "--threads", "0"],
        "greater than or equal to 1, seen '0'",
    ),
    "temperature": (
        ["decode", "--prompt", "a", "--temperature", "-1"],
        "Invalid value for '--temperature'",
    ),
    "new tokens": (
        ["decode", "--prompt", "a", "--max-new-tokens", "-1"],
        "Invalid value for '--max-new-tokens'",
    ),
    "empty prompt": (["decode", "--prompt", ""], "the prompt is empty, expected some text"),
    "blank prompt": (["decode", "--prompt", " \n"], "the prompt is empty, expected some text"),
    "sources without hybrid": (
        ["decode", "--prompt", "a", "--drafter", "rest", "--sources", "suffix"],
        "--sources belongs to the drafter hybrid, not to rest",
    ),
    "sources with a hole": (
        ["decode", "--prompt", "a", "--sources", "suffix,,dense"],
        "'suffix,,dense' is not a list of names with commas between them",
    ),
    "unknown method": (
        ["eval", "--compare", "rest,magic"],
        "unknown method 'magic', expected some of plain, rest, suffix, dresd, prompt, hybrid, "
        "hf-generate, hf-lookup",
    ),
    "nothing to measure": (
        ["eval", "--max-new-tokens", "0"],
        "--max-new-tokens is 0, expected 1 or more to measure",
    ),
    "eval sources without hybrid": (
        ["eval", "--drafter", "rest", "--sources", "suffix"],
        "--sources belongs to hybrid, which is not among the methods",
    ),
    "dense tokens": (["build-index", "--dense-tokens", "-1"], "Invalid value for '--dense-tokens'"),
    "own answers without generate": (
        ["build-index", "--answer-tokens", "9"],
        "--answer-tokens belongs to --generate",
    ),
    "prompts without answers": (
        ["build-index", "--with-prompts"],
        "--with-prompts belongs to --generate or --from-traces",
    ),
    "features without answers": (
        ["build-index", "--keep-features"],
        "--keep-features belongs to --generate",
    ),
    "bad lines without traces": (
        ["build-index", "--bad-lines", "refuse"],
        "--bad-lines belongs to --from-traces",
    ),
    "traces with generate": (
        ["build-index", "--from-traces", "t.jsonl", "--seed", "1"],
        "--from-traces takes answers as they are",
    ),
    "generate with max tokens": (
        ["build-index", "--generate", "--max-tokens", "9"],
        "with --generate it is --generate-tokens",
    ),
    "max tokens": (["build-index", "--max-tokens", "0"], "Invalid value for '--max-tokens'"),
}


@pytest.mark.parametrize("case", USAGE)
def test_a_senseless_command_line_exits_2_and_points_to_help(case: str, run: Run) -> None:
    arguments, message = USAGE[case]
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    first, hint = ran.err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    command = f"specret {arguments[0]}" if arguments[0] != "decod" else "specret"
    assert hint == f"hint: {command} --help"


def failed(ran: Any, message: str, hint: str = "") -> None:
    assert ran.code == 1, ran.err
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert "Traceback" not in ran.err
    assert next(line for line in lines if line.startswith("error: ")).find(message) > 0, ran.err
    assert any(line.startswith("hint: ") and hint in line for line in lines) or not hint, ran.err


def decode(run: Run, model: object, *more: object, drafter: str = "suffix") -> Any:
    asked = ["--prompt", "the cat", "--nodes", 4, "--max-new-tokens", 4, "--drafter", drafter]
    return run("decode", *asked, "--model", model, *more)


def test_a_missing_store_names_the_command_that_builds_it(run: Run, model: Path) -> None:
    ran = decode(run, model, "--store", "nowhere")
    failed(ran, "no datastore at 'nowhere'", "specret build-index --corpus code --out nowhere")


def test_nobody_is_told_to_build_a_store_among_other_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    failed(
        run("inspect", tmp_path), "no datastore at ", "the folder that specret build-index wrote"
    )


def test_a_missing_default_store_names_the_command_that_builds_it(run: Run, model: Path) -> None:
    ran = decode(run, model)
    failed(
        ran,
        "there is no datastore yet for this model (looked at ",
        f"specret build-index --corpus code --model {model}",
    )


@pytest.mark.parametrize("command", ["decode", "eval"])
def test_hybrid_over_the_text_alone_needs_no_store(
    command: str, run: Run, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "the cat the cat"}\n')
    asked = {
        "decode": ["--prompt", "the cat the cat"],
        "eval": ["--prompts", tmp_path / "prompts.jsonl", "--no-baselines"],
    }
    hybrid = ["--drafter", "hybrid", "--sources", "prompt", "--nodes", 4]
    ran = run(command, *asked[command], *hybrid, "--model", model, "--max-new-tokens", 4)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("drafter", ["plain", "suffix"])
def test_a_missing_model_is_told(drafter: str, run: Run) -> None:
    ran = decode(run, "./nowhere", drafter=drafter)
    failed(ran, "model './nowhere' is no folder, file or hub id", "a folder with config.json")


def test_a_hub_model_offline_is_told(run: Run) -> None:
    ran = decode(run, "someone/something", drafter="plain")
    failed(ran, "model 'someone/something' is not a folder here", "check the path")


def test_another_tokenizer_is_refused_with_both_sides_named(
    run: Run, model: Path, store: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(model, tmp_path / "permuted")
    content = json.loads((other / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (other / "tokenizer.json").write_text(json.dumps(content))
    ran = decode(run, other, "--store", store)
    failed(
        ran,
        "built with the tokenizer of tiny",
        "specret build-index --out DIR, with the same --model",
    )
    assert "the model at hand is permuted" in ran.err


def test_other_weights_are_warned_of_for_sparse_and_refused_for_dense(
    run: Run, store: Path, tmp_path: Path
) -> None:
    other = save_tiny(tmp_path / "other", seed=3)
    sparse = decode(run, other, "--store", store)
    assert sparse.code == 0
    assert "warning: the store at " in sparse.err
    assert "its sparse side can be used all the same" in sparse.err
    failed(decode(run, other, "--store", store, drafter="dresd"), "was built from the states of")


def test_a_prompt_longer_than_the_context_is_told(run: Run, model: Path, store: Path) -> None:
    ran = run(
        "decode", "--drafter", "prompt", "--nodes", 4, "--prompt", "q" * 200, "--model", model
    )
    failed(ran, "the prompt has 200 tokens, the model's context holds 128", "shorten the prompt")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def lose(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [cut, flip, lose])
@pytest.mark.parametrize(
    "role", ["tokens", "offsets", "documents", "suffix", "index", "projection"]
)
def test_a_damaged_store_is_told_by_file(
    damage: Callable[[Path], None], role: str, run: Run, model: Path, store: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(store, tmp_path / "copy")
    file = json.loads((copy / "manifest.json").read_bytes())["files"][role]["path"]
    damage(copy / file)
    ran = run("inspect", copy, "--samples", 0)
    again = "build the store again for tiny: specret build-index --corpus "
    failed(ran, file, again)
    assert f" --out {copy} --dense-tokens " in ran.err
    if role == "suffix":
        failed(decode(run, model, "--store", copy), file, "build the store again")


CORPORA: dict[str, tuple[dict[str, bytes], str]] = {
    "no file": ({}, "holds no file"),
    "only empty files": ({"a.txt": b"", "b.txt": b" \n"}, "no usable document"),
    "only rows without a text": (
        {"a.jsonl": b'{"question": "a"}\n'},
        "no column text, content, code, messages, conversations; it has question",
    ),
    "only undecodable files": ({"a.txt": b"\xff\xfe\xfa", "b.bin": b"\0\0"}, "no usable document"),
}


@pytest.mark.parametrize("case", CORPORA)
def test_a_corpus_of_nothing_is_told(case: str, run: Run, model: Path, tmp_path: Path) -> None:
    files, message = CORPORA[case]
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    out = tmp_path / "store"
    ran = run("build-index", "--corpus", folder, "--out", out, "--model", model)
    failed(ran, "corpus ")
    assert message in ran.err
    assert not out.exists()


def test_a_file_in_the_store_s_place_is_told(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text, enough for a store")
    asked = ["--corpus", tmp_path / "text.txt", "--model", model]
    ran = run("build-index", *asked, "--out", tmp_path / "text.txt")
    failed(ran, "text.txt is a file, expected a folder for the store")


def test_a_cache_that_cannot_be_made_names_the_variable(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECRET_CACHE", str(tmp_path / "file" / "cache"))
    failed(decode(run, model), "cache cannot be made: Not a directory", "SPECRET_CACHE=DIR")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--recipe", "poem"], "unknown recipe 'poem', expected one of code, text, chat"),
        (["--recipe", "code"], "gives no prompt of 1 to 118 tokens by the recipe code"),
        (["--answer-tokens", "120", "--recipe", "text"], "gives no prompt of 1 to 8 tokens"),
    ],
)
def test_a_corpus_that_asks_nothing_is_told(
    more: list[str], message: str, run: Run, model: Path, corpus: Path, tmp_path: Path
) -> None:
    asked = ["--corpus", corpus, "--model", model, "--out", tmp_path / "s", "--generate"]
    failed(run("build-index", *asked, "--answer-tokens", 10, *more), message)
    assert not (tmp_path / "s").exists()


def test_a_missing_corpus_is_told_before_the_model_loads(run: Run) -> None:
    ran = run("build-index", "--corpus", "nowhere", "--model", "./also-nowhere")
    failed(ran, "corpus 'nowhere': no such file or folder", "specret build-index --corpus code")


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_a_corpus_of_few_tokens_builds_or_is_told(
    tokens: int, run: Run, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "few.txt").write_text("q" * tokens)
    asked = ["--corpus", tmp_path / "few.txt", "--model", model, "--out", tmp_path / "store"]
    ran = run("build-index", *asked)
    if tokens < 3:
        failed(ran, "no document of the corpus", "--dense-tokens 0")
        ran = run("build-index", *asked, "--dense-tokens", 0)
    assert ran.code == 0, ran.err
    answer = decode(run, model, "--store", tmp_path / "store")
    assert answer.code == 0, answer.err
