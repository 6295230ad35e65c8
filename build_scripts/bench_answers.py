"""How fast the target answers many prompts together, against one by one, and does it say the same?

Prompts are made from the standard library by the recipe `code`. In one process and interleaved:
plain decoding of single prompts, and a whole build of a store of own answers with and without its
dense side. Prints one JSON object. Exit status 1 where an answer differs beyond rounding.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

from specret import engine as engines
from specret.datastore.answers import read_shard
from specret.datastore.asking import ask
from specret.datastore.build import Built
from specret.datastore.corpus import open_corpus
from specret.datastore.durable import Marker
from specret.datastore.own import build_own
from specret.datastore.own_plan import OwnOptions, OwnPlan, plan_own
from specret.decode.call import Call
from specret.evaluation.identity import compare
from specret.evaluation.sample import Writing
from specret.evaluation.summary import gap_after

NONE = {"identical": 0, "near_ties": 0, "failures": 0}
OTHER_ROWS = (3, 11)
"""Rows of the batches that are held against the one the plan chose."""


def main() -> None:
    args = _arguments()
    engine = engines.load(args.model, drafter="plain", dtype=args.dtype, threads=args.threads)
    room = engine.target.context_len - args.answer_tokens
    asked = ask(open_corpus("code"), "code", engine.tokenize, room, args.tokens)
    call = Call(max_new_tokens=args.answer_tokens)
    folder = Path(tempfile.mkdtemp(prefix="answers-"))
    rates: dict[str, list[float]] = {"one by one": [], "with keys": [], "without keys": []}
    memory: dict[str, Any] = {}
    counts = dict(NONE)
    for round_ in range(args.rounds):
        for dense in (300_000, 0):
            name = "with keys" if dense else "without keys"
            options = OwnOptions(
                generate_tokens=args.tokens, answer_tokens=args.answer_tokens, dense_tokens=dense
            )
            writer = engine.writer(call)
            place = folder / f"{round_}-{dense}"
            plan = plan_own(asked, writer, engine.loaded.fingerprint, place, options)
            _forget_peak()
            before = psutil.Process().memory_info().rss
            begin = perf_counter()
            built = build_own(plan, writer, engine.loaded.fingerprint)
            seconds = perf_counter() - begin
            answers = _answers(plan, built)
            rates[name].append(sum(map(len, answers)) / seconds)
            if not memory:  # later builds take what this one has given back
                memory = {"planned": plan.plan.memory, "grown": _peak() - before}
        _one_by_one(engine, plan, answers, args, rates["one by one"], counts, round_)
    sizes = _sizes(engine, plan, args)
    best = {name: max(found_rates) for name, found_rates in rates.items()}
    print(
        json.dumps(
            {
                "command": sys.argv,
                "dtype": str(engine.loaded.dtype),
                "rows": plan.how.rows,
                "shard_prompts": plan.how.shard_prompts,
                "tokens_per_second": rates,
                "together_over_one_by_one": best["with keys"] / best["one by one"],
                "with_over_without_keys": best["with keys"] / best["without keys"],
                "memory": memory,
                "answers_against_one_by_one": counts,
                "answers_against_the_whole_batch": sizes,
            },
            indent=1,
        )
    )
    failures = [counts["failures"], *(some["failures"] for some in sizes.values())]
    sys.exit(1 if any(failures) else 0)


def _forget_peak() -> None:
    """Linux: the highest resident size counts anew from here, so loading's own peak is not ours."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Bytes: the highest resident size of this process since `_forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _answers(plan: OwnPlan, built: Built) -> list[Any]:
    roles = sorted(role for role in built.manifest.files if role.startswith("answers-"))
    markers = [Marker({"answers": built.manifest.files[role]}, {}) for role in roles]
    shards = [read_shard(plan.plan.folder, marker) for marker in markers]
    return [answer for shard in shards for answer in shard.answers]


def _one_by_one(
    engine: engines.Engine,
    plan: OwnPlan,
    answers: list[Any],
    args: argparse.Namespace,
    rates: list[float],
    counts: dict[str, int],
    round_: int,
) -> None:
    """Evenly spaced prompts alone: their speed, and whether the batch said the same."""
    written, seconds = 0, 0.0
    how = Writing(args.answer_tokens, 0.0, 0)
    for number in range(round_, len(answers), max(1, len(answers) // args.alone)):
        prompt = plan.asked.prompts[number]
        begin = perf_counter()
        alone = engine.generate(prompt, max_new_tokens=args.answer_tokens).tokens
        seconds += perf_counter() - begin
        written += len(alone)
        _count(engine, prompt, how, alone, answers[number].astype("int64"), counts)
    rates.append(written / seconds)


def _sizes(
    engine: engines.Engine, plan: OwnPlan, args: argparse.Namespace
) -> dict[int, dict[str, int]]:
    """The first prompts again in batches of other sizes."""
    prompts = plan.asked.prompts[: plan.how.rows]
    writer = engine.writer(Call(max_new_tokens=args.answer_tokens))
    capacity = max(map(len, prompts)) + args.answer_tokens
    how = Writing(args.answer_tokens, 0.0, 0)

    def answers(rows: int) -> dict[int, Any]:
        written = writer.write(list(enumerate(prompts)), rows, capacity)
        return {answer.number: answer.tokens for answer in written}

    whole, out = answers(len(prompts)), {}
    for rows in OTHER_ROWS:
        out[rows] = dict(NONE)
        for number, got in answers(rows).items():
            _count(engine, prompts[number], how, whole[number], got, out[rows])
    return out


def _count(
    engine: engines.Engine,
    prompt: Any,
    how: Writing,
    expected: Any,
    got: Any,
    counts: dict[str, int],
) -> None:
    half = engine.loaded.dtype.itemsize < 4
    found = compare(expected, got, gap_after(engine, prompt, how), half=half)
    counts["identical" if found is None else "near_ties" if found.near_tie else "failures"] += 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", help="default: the packaged small model")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--answer-tokens", type=int, default=OwnOptions().answer_tokens)
    parser.add_argument("--alone", type=int, default=10, help="prompts answered one by one")
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
