"""Stores of own answers: what they hold, and what they refuse."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_stores import (
    FINGERPRINT,
    OWN,
    ToyKeeper,
    ToyWriter,
    build_answers,
    contents,
    plan_answers,
    write_files,
)

from specret.datastore import own_plan
from specret.datastore.answers import read_shard, shard_prompts
from specret.datastore.durable import Marker
from specret.datastore.manifest import open_manifest, verify
from specret.datastore.own_plan import OwnPlan
from specret.datastore.store import Store, open_store
from specret.types import SpecretError


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_plan, "MOST_ROWS", 2)


@pytest.fixture(name="corpus", scope="module")
def _corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    texts = [" ".join(f"word{n}x{i}" for i in range(16 + n % 7)) for n in range(90)]
    texts += ["", " ".join(["a" * 40] * 30)]  # nothing, and a prompt over the limit
    return write_files(folder, texts)


def expected_documents(plan: OwnPlan, writer: ToyWriter) -> list[list[int]]:
    left, documents = plan.options.generate_tokens, []
    for number, ids in enumerate(plan.asked.prompts):
        answer = writer.answer(number, ids)[0][:left].tolist()
        left -= len(answer)
        if answer:
            before = ids.tolist() if plan.options.with_prompts else []
            documents.append(before + answer)
    return documents


@pytest.mark.parametrize("with_prompts", [False, True])
def test_documents_are_the_answers_and_keys_are_their_states(
    with_prompts: bool, corpus: Path, tmp_path: Path
) -> None:
    plan, result = build_answers(corpus, tmp_path / "s", replace(OWN, with_prompts=with_prompts))
    store = open_store(tmp_path / "s", FINGERPRINT)
    documents = np.split(store.tokens, store.offsets[1:-1].astype(np.int64))
    wanted = expected_documents(plan, ToyWriter())
    assert [d.tolist() for d in documents] == wanted
    answered = sum(map(len, wanted)) - with_prompts * sum(
        len(plan.asked.prompts[n]) for n in answers_in(plan, len(wanted))
    )
    assert answered == 400
    assert result.manifest.counts["keys"] == check_keys(plan, store)


def answers_in(plan: OwnPlan, count: int) -> list[int]:
    """Numbers of the first `count` prompts that have an answer."""
    numbers = [n for n, ids in enumerate(plan.asked.prompts) if len(ToyWriter().answer(n, ids)[0])]
    return numbers[:count]


def check_keys(plan: OwnPlan, store: Store) -> int:
    """Every answer token that two others follow is its own nearest key. Returns how many."""
    assert store.dense is not None
    assert store.projection is not None
    keys = 0
    starts = store.offsets[:-1].astype(np.int64)
    ends = store.offsets[1:].astype(np.int64)
    named = answers_in(plan, len(starts))
    for number, start, end in zip(named, starts, ends, strict=True):
        ids = plan.asked.prompts[number]
        begin = int(start) + len(ids) * plan.options.with_prompts
        states = ToyWriter().answer(number, ids)[1]
        for i in range(int(end) - begin - 2):
            query = store.projection.apply(states[i : i + 1])[0]
            _, positions = store.dense.search(query, int(store.tokens[begin + i + 1]), 1)
            assert positions[0] == begin + i
            keys += 1
    return keys


def test_prompt_and_answer_are_told_apart_in_the_shards(corpus: Path, tmp_path: Path) -> None:
    plan, result = build_answers(corpus, tmp_path / "s")
    number = 0
    for role in sorted(r for r in result.manifest.files if r.startswith("answers-")):
        shard = read_shard(tmp_path / "s", Marker({"answers": result.manifest.files[role]}, {}))
        for prompt, answer in zip(shard.prompts, shard.answers, strict=True):
            assert prompt.tolist() == plan.asked.prompts[number].tolist()
            assert (
                answer.tolist()
                == ToyWriter().answer(number, plan.asked.prompts[number])[0].tolist()
            )
            number += 1
    assert number > 2 * plan.how.shard_prompts


@pytest.mark.parametrize("kill_at", [3, 40])
def test_features_lie_beside_the_answers_and_change_nothing_else(
    kill_at: int, corpus: Path, tmp_path: Path
) -> None:
    _, bare = build_answers(corpus, tmp_path / "bare")
    with pytest.raises(KeyboardInterrupt):
        build_answers(corpus, tmp_path / "kept", writer=ToyWriter(kill_at, ToyKeeper()))
    plan, kept = build_answers(corpus, tmp_path / "kept", writer=ToyWriter(keeper=ToyKeeper()))
    files = kept.manifest.files
    assert {role for role in files if not role.startswith("features-")} == set(bare.manifest.files)
    for role, file in bare.manifest.files.items():
        assert files[role].sha256 == file.sha256, role
    held: list[Any] = []
    for role in sorted(role for role in files if role.startswith("features-")):
        held += json.loads((tmp_path / "kept" / files[role].path).read_text())
    answers = [ToyWriter().answer(i, ids)[0] for i, ids in enumerate(plan.asked.prompts)]
    assert held == [[i, *answers[i].tolist()] for i in range(len(held))]
    assert len(held) >= kept.manifest.counts["documents"]
    build_answers(corpus, tmp_path / "again", writer=ToyWriter(keeper=ToyKeeper()))
    assert contents(tmp_path / "kept") == contents(tmp_path / "again")
    plain = plan_answers(corpus, tmp_path / "x", ToyWriter()).plan
    assert plan.plan.bytes > plain.bytes
    assert plan.plan.memory > plain.memory


def test_features_of_another_size_are_told(corpus: Path, tmp_path: Path) -> None:
    _, kept = build_answers(corpus, tmp_path, writer=ToyWriter(keeper=ToyKeeper()))
    file = tmp_path / kept.manifest.files["features-00000"].path
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SpecretError, match=r"features/.* bytes, expected") as caught:
        open_store(tmp_path, FINGERPRINT)
    assert "--keep-features" in caught.value.hint


def test_a_larger_store_begins_with_the_answers_of_the_smaller(
    corpus: Path, tmp_path: Path
) -> None:
    small, large = replace(OWN, generate_tokens=350), replace(OWN, generate_tokens=500)
    assert build_answers(corpus, tmp_path / "s", small)[1].manifest.counts["tokens"] == 350
    writer = ToyWriter()
    _, result = build_answers(corpus, tmp_path / "s", large, writer)
    assert result.manifest.counts["tokens"] == 500
    assert 0 not in writer.batches[0]
    build_answers(corpus, tmp_path / "fresh", large)
    assert contents(tmp_path / "s") == contents(tmp_path / "fresh")


def test_too_few_prompts_give_what_there_is_and_say_what_was_skipped(
    corpus: Path, tmp_path: Path
) -> None:
    plan, result = build_answers(corpus, tmp_path / "s", replace(OWN, generate_tokens=10**6))
    assert 0 < result.manifest.counts["tokens"] < 2000
    assert plan.plan.documents == len(plan.asked.prompts) == 90
    skipped = Store(tmp_path / "s", result.manifest).skipped()
    assert skipped == [("0090.txt", "empty"), ("0091.txt", "a prompt over 512 tokens")]


@pytest.mark.parametrize("dense", [0, 1, 50])
def test_dense_tokens_bounds_the_keys(dense: int, corpus: Path, tmp_path: Path) -> None:
    _, result = build_answers(corpus, tmp_path / "s", replace(OWN, dense_tokens=dense))
    assert result.manifest.counts.get("keys", 0) == dense
    assert result.manifest.has_dense == (dense > 0)
    verify(tmp_path / "s", open_manifest(tmp_path / "s"))


def test_a_damaged_store_names_the_command_that_wrote_its_answers(
    corpus: Path, tmp_path: Path
) -> None:
    options = replace(OWN, temperature=0.5, seed=3, with_prompts=True)
    _, result = build_answers(corpus, tmp_path / "s", options)
    next((tmp_path / "s" / "answers").glob("*")).unlink()
    with pytest.raises(SpecretError) as caught:
        verify(tmp_path / "s", result.manifest)
    assert caught.value.hint == (
        f"build the store again for toy: specret build-index --corpus {corpus} --generate "
        f"--out {tmp_path / 's'} --dense-tokens 10000 --recipe text --generate-tokens 400 "
        "--answer-tokens 20 --temperature 0.5 --seed 3 --with-prompts"
    )


def test_a_file_in_the_store_s_place_is_told(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(SpecretError, match="s is a file, expected a folder"):
        plan_answers(corpus, tmp_path / "s", ToyWriter())


def test_states_that_are_not_finite_are_refused(corpus: Path, tmp_path: Path) -> None:
    class Broken(ToyWriter):
        def answer(self, number: int, ids: Any) -> Any:
            tokens, states = super().answer(number, ids)
            return tokens, states * np.float32("nan")

    with pytest.raises(SpecretError, match="not finite"):
        build_answers(corpus, tmp_path / "s", writer=Broken())


def test_answers_too_short_for_a_key_are_told(corpus: Path, tmp_path: Path) -> None:
    class Terse(ToyWriter):
        def answer(self, number: int, ids: Any) -> Any:
            tokens, states = super().answer(number, ids)
            return tokens[:2], states[:1]

    with pytest.raises(SpecretError, match="has three tokens") as caught:
        build_answers(corpus, tmp_path / "s", writer=Terse())
    assert "--dense-tokens 0" in caught.value.hint


def test_a_corpus_without_prompts_is_told(tmp_path: Path) -> None:
    corpus = write_files(tmp_path / "corpus", ["few words"])
    with pytest.raises(SpecretError, match="gives no prompt") as caught:
        build_answers(corpus, tmp_path / "s")
    assert "--recipe" in caught.value.hint


@pytest.mark.parametrize(
    ("rows", "width", "answer", "wanted", "expected"),
    [
        (32, 576, 256, 250_000, 256),  # eight a row
        (32, 576, 256, 30_000, 118),  # not more than are wanted
        (32, 576, 256, 10, 32),  # a full batch
        (8, 8192, 256, 250_000, 32),  # states held raw: 256 MiB
    ],
)
def test_a_shard_keeps_the_batch_full_within_its_memory(
    rows: int, width: int, answer: int, wanted: int, expected: int
) -> None:
    assert shard_prompts(rows, width, answer, wanted) == expected
