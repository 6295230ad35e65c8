"""What drafts cost where they cannot help, and bring where they cannot fail: wall time over plain.

Two stores are built in a temporary folder: `hostile` holds random tokens as text, `own` holds the
target's own answers to the prompts that are then decoded. Every run decodes each prompt with plain
and every drafter, interleaved, end-of-text ignored; a ratio is one run's time for all prompts,
prefill apart, over plain's. Prints JSON with the median and all ratios.
Expected: hostile at most 1.15, own at most 1 / 1.5.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from specret import engine as engines
from specret.datastore.build import build_store
from specret.datastore.corpus import open_corpus
from specret.datastore.plan import BuildOptions, plan_build
from specret.datastore.store import Store, open_store
from specret.evaluation.prompts import load_prompts
from specret.models.encoder import TransformersEncoder
from specret.types import TokenArray

DRAFTERS = "rest,suffix,dresd,hybrid"


def main() -> None:
    args = _arguments()
    engine = engines.load(args.model, drafter="plain", dtype=args.dtype, threads=args.threads)
    prompts = [
        engine.encode(prompt.turns[0])
        for prompt in load_prompts("humaneval", skip=args.skip, limit=args.prompts)
    ]
    rng = np.random.default_rng(0)
    decode = engine.tokenizer.decode
    answers = [
        decode(engine.generate(ids, max_new_tokens=args.tokens, eos=()).tokens.tolist())
        for ids in prompts
    ]
    noise = [
        decode(rng.integers(0, engine.target.vocab_size, args.noise // 8).tolist())
        for _ in range(8)
    ]
    found: dict[str, Any] = {
        "command": sys.argv,
        "dtype": str(engine.loaded.dtype).removeprefix("torch."),
        "new_tokens": args.tokens,
    }
    with TemporaryDirectory() as folder:
        for name, texts in (("hostile", noise), ("own", answers)):
            store = _build(engine, texts, Path(folder) / name)
            found[name] = _ratios(engine, store, prompts, args)
    print(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", help="default: the packaged small model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--drafters", default=DRAFTERS)
    parser.add_argument("--nodes", default="auto", help="a number, or auto")
    parser.add_argument("--skip", type=int, default=60)
    parser.add_argument("--prompts", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--noise", type=int, default=20_000, help="tokens of the hostile store")
    parser.add_argument("--runs", type=int, default=10)
    return parser.parse_args()


def _build(engine: engines.Engine, texts: Iterable[str], folder: Path) -> Store:
    loaded = engine.loaded
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text, "utf-8")
    corpus, encoder = open_corpus(str(folder)), TransformersEncoder(loaded)
    parts = (corpus, loaded.tokenizer, encoder, loaded.fingerprint)
    plan = plan_build(*parts, folder / "store", BuildOptions())
    build_store(plan, *parts)
    return open_store(folder / "store", loaded.fingerprint)


def _ratios(
    engine: engines.Engine, store: Store, prompts: Sequence[TokenArray], args: argparse.Namespace
) -> dict[str, Any]:
    nodes = int(args.nodes) if args.nodes.isdigit() else args.nodes
    first, *others = args.drafters.split(",")
    # a store belongs to all engines that come from one
    opened = engines.Engine(
        engines.Parts(engine.loaded, engine.target, (store,)),
        drafter=first,
        nodes=nodes,
        options={},
    )
    methods = {"plain": opened.using("plain"), first: opened}
    methods |= {name: opened.using(name) for name in others}
    spent: dict[str, list[float]] = {name: [] for name in methods}
    for run in range(-1, args.runs):  # the first run warms up
        for name, method in methods.items():
            seconds = sum(_decode(method, ids, args.tokens) for ids in prompts)
            if run >= 0:
                spent[name].append(seconds)
    return {
        name: {
            "nodes": methods[name].nodes,
            "median": median(ratios),
            "ratios": ratios,
        }
        for name in methods
        if name != "plain"
        for ratios in [[a / b for a, b in zip(spent[name], spent["plain"], strict=True)]]
    }


def _decode(engine: engines.Engine, prompt: TokenArray, tokens: int) -> float:
    begin = perf_counter()
    result = engine.generate(prompt, max_new_tokens=tokens, eos=())
    return perf_counter() - begin - result.prefill_s


if __name__ == "__main__":
    main()
