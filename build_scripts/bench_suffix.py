"""Times of the sparse index: build, open, drafts from a corpus, drafts from the text so far.

    python build_scripts/bench_suffix.py                       # 9 M tokens made here
    python build_scripts/bench_suffix.py --tokenizer FOLDER    # the standard library, tokenized

Queries are ends of the corpus's own texts whose older tokens were replaced, so that they match
1 to 8 tokens. Prints one line a figure, or one JSON object.
"""

import argparse
import json
import sysconfig
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specret._suffix import LiveIndex, SuffixIndex, build_suffix

VOCAB = 49_152
Tokens = NDArray[np.int64]


def made_corpus(n: int, rng: np.random.Generator) -> list[Tokens]:
    """Zipf tokens in documents of 5,000; half of every document repeats earlier spans."""
    docs: list[Tokens] = []
    for _ in range(max(1, n // 5000)):
        doc = rng.zipf(1.15, 5000) % VOCAB
        for at in range(0, 4900, 100):
            source = docs[rng.integers(len(docs))] if docs else doc
            start = rng.integers(4900)
            doc[at : at + 50] = source[start : start + 50]
        docs.append(doc)
    return docs


def library_corpus(folder: str) -> list[Tokens]:
    """The running interpreter's standard library."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [p for p in sorted(root.rglob("*.py")) if "site-packages" not in p.parts]
    texts = [p.read_text("utf-8", errors="replace") for p in files]
    return [np.array(ids, np.int64) for ids in tokenizer(texts)["input_ids"]]


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Milliseconds."""
    cuts = dict(zip(("p50", "p95", "p99"), np.percentile(seconds, [50, 95, 99]), strict=True))
    return {name: round(float(value) * 1e3, 4) for name, value in cuts.items()}


def timed(calls: list[Callable[[], Any]]) -> dict[str, float]:
    """Each call's best of three, so that other work on the machine does not count."""
    best = [float("inf")] * len(calls)
    for _ in range(3):
        for i, call in enumerate(calls):
            started = perf_counter()
            call()
            best[i] = min(best[i], perf_counter() - started)
    return percentiles(best)


def bench_corpus(docs: list[Tokens], queries: int, rng: np.random.Generator) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        tokens, suffix = Path(folder) / "tokens.bin", Path(folder) / "suffix.bin"
        text = np.concatenate(docs)
        text.astype("<u2").tofile(tokens)
        bounds = np.cumsum([0] + [len(doc) for doc in docs]).astype(np.uint64)
        started = perf_counter()
        build_suffix(tokens, 2, bounds, VOCAB, suffix)
        built = perf_counter()
        index = SuffixIndex.open(tokens, 2, suffix, VOCAB)
        opened = perf_counter()
        out: dict[str, Any] = {
            "tokens": len(index),
            "build_s": round(built - started, 2),
            "open_s": round(opened - built, 3),
            "suffix_bytes_per_token": round(suffix.stat().st_size / len(index), 2),
        }
        contexts = []
        for end in rng.integers(16, len(text), queries):
            context = text[end - 16 : end].copy()
            context[: 16 - rng.integers(1, 9)] = rng.integers(VOCAB)
            contexts.append(context)
        rest = {"rule": "rest", "min_match": 2, "samples": 5000, "max_nodes": 64, "max_depth": 10}
        blend = {"max_nodes": 64, "max_depth": 16}
        for name, options in {
            "blend_16_ms": blend | {"max_nodes": 16},
            "blend_64_ms": blend,
            "rest_64_ms": rest,
        }.items():
            calls = [partial(index.draft, context, **options) for context in contexts]
            out[name] = timed(calls)
        return out


def bench_live(docs: list[Tokens], rng: np.random.Generator) -> dict[str, Any]:
    text = np.concatenate(docs)[:101_000]
    out: dict[str, Any] = {}
    for n in (1_000, 10_000, 100_000):
        live = LiveIndex(VOCAB)
        started = perf_counter()
        live.extend(text[:n])
        extended = perf_counter() - started
        seconds = []
        for i in range(n, n + 500):
            live.extend(text[i : i + 1])
            started = perf_counter()
            live.draft(text[: i + 1], max_nodes=16, max_depth=16)
            seconds.append(perf_counter() - started)
        extend_us = round(extended / n * 1e6, 2)
        out[f"live_{n}"] = {"extend_us_per_token": extend_us, "draft_ms": percentiles(seconds)}
    first, last = (out[f"live_{n}"]["draft_ms"]["p50"] for n in (1_000, 100_000))
    out["live_ratio_100k_to_1k"] = round(last / first, 2)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=9_000_000, help="size of the made corpus")
    parser.add_argument("--tokenizer", help="tokenize the standard library with it instead")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    docs = library_corpus(args.tokenizer) if args.tokenizer else made_corpus(args.tokens, rng)
    figures = bench_corpus(docs, args.queries, rng) | bench_live(docs, rng)
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
