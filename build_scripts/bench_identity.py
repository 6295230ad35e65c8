"""Is every drafter's text that of plain decoding, and plain's that of transformers' `generate`?

Float32 on all 164 HumanEval prompts by default. Works in pieces: each prompt's verdict is appended
to a JSONL file, a later call goes on where the last one stopped, and the summary covers all that
the file holds for the same question. Exit status 1 where a text differs beyond rounding.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from specret import engine as engines
from specret.evaluation.identity import compare
from specret.evaluation.methods import make_methods
from specret.evaluation.prompts import Prompt, load_prompts
from specret.evaluation.sample import Method, Sample, Writing
from specret.evaluation.summary import gap_after

DRAFTERS = "rest,suffix,dresd,prompt,hybrid"


def main() -> None:
    args = _arguments()
    engine = engines.load(
        args.model, drafter="plain", store=args.store, dtype=args.dtype, threads=args.threads
    )
    names = args.drafters.split(",") + ["hf-generate"] * (args.temperature == 0)
    methods = make_methods(engine, names, nodes=args.nodes, sources=None, leave_one_out=False)
    how = Writing(args.tokens, args.temperature, args.seed)
    question = {
        "weights": engine.loaded.fingerprint.weights,
        "dtype": str(engine.loaded.dtype).removeprefix("torch."),
        "store": None if engine.store is None else dict(engine.store.manifest.parameters),
        "methods": {method.name: method.nodes for method in methods},
        **how.options(),
    }
    known = _read(args.out, question)
    begin = perf_counter()
    prompts = load_prompts("humaneval", skip=args.skip, limit=args.limit)
    for prompt in prompts:
        if prompt.id in known:
            continue
        if args.seconds is not None and perf_counter() - begin > args.seconds:
            break
        verdict = _judge(engine, methods, prompt, how)
        known[prompt.id] = verdict
        with args.out.open("a") as file:
            file.write(json.dumps({"question": question, "prompt": prompt.id, **verdict}) + "\n")
        print(prompt.id, "done", file=sys.stderr)
    summary = _summary(known)
    asked = {"command": sys.argv, "question": question, "wanted": len(prompts)}
    print(json.dumps({**asked, **summary}, indent=1))
    sys.exit(0 if summary["lossless"] else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--store", required=True, help="a finished datastore of the model")
    parser.add_argument("--out", type=Path, required=True, help="JSONL file of verdicts")
    parser.add_argument("--model", help="default: the packaged small model")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--drafters", default=DRAFTERS)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seconds", type=float, help="begin no prompt after so long")
    return parser.parse_args()


def _judge(
    engine: engines.Engine, methods: Sequence[Method], prompt: Prompt, how: Writing
) -> dict[str, Any]:
    """Per method: the first difference to plain or null, and what was drafted and accepted."""
    ids = engine.encode(prompt.turns[0])
    samples: dict[str, Sample] = {method.name: method.write(ids, how) for method in methods}
    plain = samples.pop("plain")
    half = engine.loaded.dtype.itemsize < 4
    out = {}
    for name, sample in samples.items():
        found = compare(plain.tokens, sample.tokens, gap_after(engine, ids, how), half=half)
        out[name] = {
            "difference": None if found is None else found.record(),
            "passes": len(sample.accept_lengths),
            "drafted": sum(sample.drafted or ()),
            "accepted": sample.accepted,
        }
    return {"tokens": len(plain.tokens), "methods": out}


def _read(file: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    """Verdicts that the file holds for this question, by prompt."""
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["prompt"]: row for row in rows if row["question"] == question}


def _summary(known: Mapping[str, Any]) -> dict[str, Any]:
    """Counts per method, and every difference by prompt."""
    methods: dict[str, Any] = {}
    for prompt, row in known.items():
        for name, verdict in row["methods"].items():
            one = methods.setdefault(
                name,
                {"identical": 0, "near_ties": 0, "failures": 0}
                | {"passes": 0, "drafted": 0, "accepted": 0, "differences": {}},
            )
            for count in ("passes", "drafted", "accepted"):
                one[count] += verdict[count]
            found = verdict["difference"]
            if found is None:
                one["identical"] += 1
                continue
            one["near_ties" if found["near_tie"] else "failures"] += 1
            one["differences"][prompt] = found
    return {
        "prompts": len(known),
        "new_tokens": sum(row["tokens"] for row in known.values()),
        "lossless": not any(one["failures"] for one in methods.values()),
        "methods": methods,
    }


if __name__ == "__main__":
    main()
