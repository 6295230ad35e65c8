import json
from dataclasses import replace

import numpy as np
import pytest

from specret.evaluation import harness, methods, report, summary
from specret.evaluation.prompts import Prompt
from specret.hybrid import fused
from specret.hybrid.calibration import Calibration, Table
from specret.hybrid.confidences import Confidences, source_set
from specret.types import SpecretError

PROMPTS = [
    Prompt("a", "one", ("the cat sat on the mat",), references=(" of the cat on the mat",)),
    Prompt("b", "one", ("on the mat of the",), references=("zebra",)),
    Prompt("c", "two", ("and sat and",)),
]
ALL = ["rest", "suffix", "dresd", "prompt", "hf-generate", "hf-lookup"]
FIGURES = {
    "nodes", "tokens_per_step", "coverage", "acceptance_rate", "tokens_per_s", "speedup",
    "speedup_ci95", "lookup_ms", "draft_ms", "score_ms", "verify_ms", "commit_ms", "other_ms",
    "outside_share", "identical", "near_ties",
}  # fmt: skip


@pytest.fixture
def fitted(monkeypatch):
    """Confidences for every set of sources, said to be fitted on prompt b."""
    subsets = ("prompt", "suffix", "dense", "prompt,suffix", "prompt,dense", "suffix,dense")
    sets = [source_set(names) for names in (*subsets, "prompt,suffix,dense")]
    calibrations = {
        names: Calibration(
            names, 0.0, [Table(f"{name}.prob", (0.35,), (-2.0, 0.0, 2.0)) for name in names]
        )
        for names in sets
    }
    found = Confidences(calibrations, {}, {"prompt_ids": ["b", "elsewhere"]})
    for module in (fused, summary):
        monkeypatch.setattr(module, "confidences_of", lambda *_: [found])


def test_every_method_is_measured_and_equal_to_plain(engine):
    seen = []
    result = harness.run(
        engine,
        ALL,
        PROMPTS,
        nodes=6,
        max_new_tokens=60,
        progress=lambda done, total: seen.append((done, total)),
        command=["specret", "eval"],
    )
    rows = result["methods"]
    assert list(rows) == ["plain", *ALL]
    assert result["lossless"]
    for name, row in rows.items():
        assert set(row) >= FIGURES
        assert row["identical"] + row["near_ties"] == row["answers"] == 3, name
    assert rows["plain"]["tokens_per_step"] == rows["hf-generate"]["tokens_per_step"] == 1.0
    assert rows["prompt"]["tokens_per_step"] > 1.5, "nothing was accepted: the test is vacuous"
    assert all(0 < rows[name]["coverage"] <= 1 for name in ("suffix", "dresd", "prompt"))
    assert rows["hf-lookup"]["nodes"] in (3, 5, 10)
    assert set(rows["hf-lookup"]["tried_tokens_per_s"]) == {"3", "5", "10"}
    assert seen[-1] == (27, 27)
    assert len(seen) == 27
    assert set(result["categories"]) == {"one", "two"}
    assert result["overlap"]["shared"] == 1
    assert result["overlap"]["with_reference"] == 2
    json.dumps(result, allow_nan=False)


def test_parts_of_a_step_add_up_to_the_time_that_speed_is_taken_from(engine):
    row = harness.run(engine, ["prompt"], PROMPTS, nodes=4, max_new_tokens=30)["methods"]["prompt"]
    parts = ("lookup", "draft", "score", "verify", "commit", "other")
    spent = sum(row[f"{part}_ms"] for part in parts) * row["steps"] / 1e3
    assert spent == pytest.approx(row["decode_s"])
    assert all(row[f"{part}_ms"] >= 0 for part in parts)
    outside = 1 - row["score_ms"] * row["steps"] / 1e3 / row["decode_s"]
    assert row["outside_share"] == pytest.approx(outside)


def test_a_seed_writes_the_text_of_plain_and_rivals_are_not_compared(engine):
    result = harness.run(
        engine, ["suffix", "hf-generate"], PROMPTS, nodes=6, max_new_tokens=20, temperature=0.8,
        seed=5,
    )  # fmt: skip
    assert result["methods"]["suffix"]["identical"] == 3
    assert result["methods"]["hf-generate"]["identical"] is None
    assert result["lossless"]


@pytest.fixture
def cheat(monkeypatch):
    """A function after which every drafted answer has one token replaced, or the last dropped."""

    def install(position):
        write = methods.Drafted.write

        def wrong(self, prompt, how):
            sample = write(self, prompt, how)
            if self.name == "plain":
                return sample
            tokens = list(sample.tokens)
            if position is None:
                return replace(sample, tokens=tuple(tokens[:-1]))
            tokens[position] = (tokens[position] + 1) % 270
            return replace(sample, tokens=tuple(tokens))

        monkeypatch.setattr(methods.Drafted, "write", wrong)

    return install


def test_a_wrong_token_is_found_named_and_fails_the_run(engine, cheat):
    cheat(7)
    result = harness.run(engine, ["prompt"], PROMPTS[:2], nodes=4, max_new_tokens=20)
    row = result["methods"]["prompt"]
    assert not result["lossless"]
    assert row["identical"] == 0
    assert [d["prompt"] for d in row["differences"]] == ["a", "b"]
    assert all(d["position"] == 7 and d["gap"] > 1e-3 for d in row["differences"])
    assert any(note.startswith("prompt: 2 of 2 answers differ") for note in result["notes"])
    assert "NOT LOSSLESS" in report.as_text(result)
    assert "0/2 (2 FAILED)" in report.as_text(result)


def test_a_lost_last_token_is_found(engine, cheat):
    cheat(None)
    result = harness.run(engine, ["prompt"], PROMPTS[:1], nodes=4, max_new_tokens=20)
    assert not result["lossless"]
    assert result["methods"]["prompt"]["differences"][0]["gap"] is None


def test_the_gap_is_that_of_the_models_own_logits(engine):
    import torch

    ids = engine.encode("the cat sat")
    plain = engine.generate(ids, max_new_tokens=5).tokens
    gap = summary.gap_after(engine, ids, methods.Writing(20))(plain[:3].tolist())
    whole = torch.from_numpy(np.concatenate([ids, plain[:3]]))[None]
    best = engine.loaded.model(whole).logits[0, -1].topk(2).values
    assert gap == pytest.approx(float(best[0] - best[1]), abs=1e-4)


def test_hybrid_is_measured_without_each_source_and_the_fit_is_owned_up_to(engine, fitted):
    result = harness.run(
        engine, ["hybrid"], PROMPTS, nodes=6, max_new_tokens=30, leave_one_out=True
    )
    assert set(result["leave_one_out"]) == {"prompt", "suffix", "dense"}
    assert list(result["methods"]) == [
        "plain",
        "hybrid",
        *(f"hybrid without {source}" for source in ("prompt", "suffix", "dense")),
    ]
    rows = result["methods"]
    for source, row in result["leave_one_out"].items():
        less = rows[f"hybrid without {source}"]["tokens_per_step"]
        assert row["adds_tokens_per_step"] == pytest.approx(
            rows["hybrid"]["tokens_per_step"] - less
        )
        assert len(row["ci95"]) == 2
    assert result["leave_one_out"]["prompt"]["adds_tokens_per_step"] > 0.3
    assert result["fitted_on"] == ["b"]
    text = report.as_text(result)
    assert "prompt adds +" in text
    assert "1 of 3 prompts are among those that hybrid's confidences were fitted on" in text


def test_sources_choose_what_hybrid_merges(engine, fitted):
    result = harness.run(
        engine, ["hybrid"], PROMPTS[:1], nodes=4, max_new_tokens=10, sources="suffix,dense",
        leave_one_out=True,
    )  # fmt: skip
    assert set(result["leave_one_out"]) == {"suffix", "dense"}


def test_a_conversation_goes_on_from_plain_answers(engine, monkeypatch):
    told = []

    def encode(conversation):
        told.append(conversation)
        return np.arange(40, 50)

    monkeypatch.setattr(engine, "encode", encode)
    system = {"role": "system", "content": "be brief"}
    prompts = [Prompt("x", "chat", ("first", "second"), (system,)), Prompt("y", "chat", ("lone",))]
    chosen = methods.make_methods(engine, ["prompt"], nodes=3, sources=None, leave_one_out=False)
    answers = harness.measure(engine, chosen, prompts, methods.Writing(8), lambda *_: None)
    given = answers[0].samples["plain"].text
    assert told[1] == [system, {"role": "user", "content": "first"}]
    assert told[2] == [
        *told[1],
        {"role": "assistant", "content": given},
        {"role": "user", "content": "second"},
    ]
    assert told[3] == "lone"
    assert [(a.prompt, a.turn) for a in answers] == [(0, 0), (0, 1), (1, 0)]


def test_the_order_of_methods_rotates(engine, monkeypatch):
    order = []
    write = methods.Drafted.write

    def noted(self, prompt, how):
        order.append(self.name)
        return write(self, prompt, how)

    monkeypatch.setattr(methods.Drafted, "write", noted)
    harness.run(engine, ["rest", "suffix"], PROMPTS, nodes=3, max_new_tokens=4)
    names = ["plain", "rest", "suffix"]
    warm_up, measured = order[:3], order[3:]
    assert warm_up == names
    assert measured == [*names, *names[1:], names[0], names[2], *names[:2]]


def test_files_hold_the_result_and_spec_bench_lines(engine, tmp_path):
    out = tmp_path / "run"
    result = harness.run(
        engine,
        ["prompt"],
        PROMPTS,
        nodes=4,
        max_new_tokens=12,
        out=out,
        command=["specret", "eval"],
    )
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(result))
    lines = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert [(line["question_id"], line["model_id"]) for line in lines] == [
        (prompt.id, name) for prompt in PROMPTS for name in order_of(lines, prompt.id)
    ]
    for line in lines:
        (choice,) = line["choices"]
        assert sum(choice["accept_lengths"]) == sum(choice["new_tokens"])
        assert len(choice["accept_lengths"]) == sum(choice["decoding_steps"])
        assert choice["wall_time"][0] > choice["prefill_time"][0]
    told = result["provenance"]
    assert told["command"] == ["specret", "eval"]
    assert told["dtype"] == "float32"
    assert told["stores"][0]["fingerprint"]["weights"] == told["model"]["weights"]
    assert sorted(p.name for p in out.iterdir()) == ["results.json", "samples.jsonl"]


def order_of(lines, prompt):
    names = [line["model_id"] for line in lines if line["question_id"] == prompt]
    assert sorted(names) == ["plain", "prompt"]
    return names


@pytest.mark.parametrize(
    ("names", "prompts", "options", "fault"),
    [
        (["eager"], PROMPTS, {}, "unknown method 'eager', expected some of plain, rest"),
        (["rest"], [], {}, "no prompts"),
        (["rest"], PROMPTS, {"max_new_tokens": 0}, "max_new_tokens is 0, expected 1 or more"),
        (["rest"], PROMPTS, {"leave_one_out": True}, "needs hybrid among the methods"),
        (["plain"], [Prompt("long", "c", ("cat " * 500,))], {}, "prompt long: the prompt has"),
    ],
)
def test_what_cannot_be_measured_is_refused(engine, names, prompts, options, fault):
    with pytest.raises(SpecretError, match=fault):
        harness.run(engine, names, prompts, nodes=3, **options)


def test_one_source_cannot_be_left_out(engine, fitted):
    with pytest.raises(SpecretError, match="hybrid has only the source prompt"):
        harness.run(engine, ["hybrid"], PROMPTS, nodes=3, sources=["prompt"], leave_one_out=True)


def test_the_table_says_what_is_not_known(engine):
    result = harness.run(engine, ["hf-lookup"], PROMPTS[:1], nodes=3, max_new_tokens=8)
    text = report.as_text(result)
    assert "1 prompt, 8 new tokens, greedy" in text
    row = next(line for line in text.splitlines() if line.strip().startswith("hf-lookup "))
    assert "–" in row
    assert "hf-lookup: the fastest of (guessed tokens: tok/s) 3: " in text
