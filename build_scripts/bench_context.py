"""How the time of one draft grows with the text, and what a dense search costs by threads.

For each length of the text so far: the median seconds of one step of each drafter (proposing and
reading the new token), over steps that go on along the store's own text. Queries of the dense side
are keys of a text that the target never saw: random states, as costly as any. Prints JSON.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import faiss
import numpy as np
import torch

from specret.datastore.manifest import open_manifest
from specret.datastore.store import Store, open_store
from specret.protocols import Drafter
from specret.registry import Resources, make_drafter
from specret.types import FINAL_NORM, Budget, Context, Features, Verdict

LENGTHS = (1_000, 10_000, 100_000)
DRAFTERS = "rest,suffix,dresd,prompt,hybrid"


def main() -> None:
    args = _arguments()
    manifest = open_manifest(args.store)
    store = open_store(args.store, manifest.fingerprint)
    fingerprint = manifest.fingerprint
    wanted = LENGTHS[-1] + args.steps
    if len(store.tokens) < wanted:
        sys.exit(f"error: the store holds {len(store.tokens)} tokens, expected {wanted} or more")
    resources = Resources(fingerprint.vocab_size, fingerprint.hidden_size, store)
    budget = Budget(args.nodes, 16)
    rows = {}
    for name in args.drafters.split(","):
        seconds = {
            length: _median_step(make_drafter(name, resources, {}), store, length, budget, args)
            for length in LENGTHS
        }
        rows[name] = {
            "step_ms": {str(length): 1e3 * spent for length, spent in seconds.items()},
            "longest_over_shortest": seconds[LENGTHS[-1]] / seconds[LENGTHS[0]],
        }
    found: dict[str, Any] = {"command": sys.argv, "nodes": args.nodes, "drafters": rows}
    if store.dense is not None:
        found["dense_search"] = _search_by_threads(store, args.steps)
    print(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--store", required=True, help="a finished datastore, 100,000 tokens at least"
    )
    parser.add_argument("--drafters", default=DRAFTERS)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args()


def _median_step(
    drafter: Drafter, store: Store, length: int, budget: Budget, args: argparse.Namespace
) -> float:
    text = np.asarray(store.tokens[: length + args.steps], np.int64)
    width = store.manifest.fingerprint.hidden_size
    states = torch.randn(args.steps, 1, width, generator=torch.Generator().manual_seed(0))
    context = Context.begin(text[:length], len(text))
    drafter.start(context)
    spent = []
    for state, token in zip(states, text[length:].tolist(), strict=True):
        context = context.with_features(Features(len(context.tokens) - 2, {FINAL_NORM: state}))
        begin = perf_counter()
        draft = drafter.propose(context, budget)
        proposed = perf_counter() - begin
        context = context.extend((token,), None)
        begin = perf_counter()
        drafter.observe(context, draft, Verdict((), token))
        spent.append(proposed + perf_counter() - begin)
    return float(np.median(spent))


def _search_by_threads(store: Store, searches: int) -> dict[str, Any]:
    """Median seconds of one search with one thread and with FAISS's own number."""
    assert store.dense is not None
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((searches, store.dense.dim)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    following = np.asarray(store.tokens[rng.integers(0, len(store.tokens), searches)])
    own = faiss.omp_get_max_threads()
    out: dict[str, Any] = {"threads": own}
    for name, threads in (("one_thread_ms", 1), ("default_ms", own)):
        faiss.omp_set_num_threads(threads)
        out[name] = 1e3 * _median_search(store, queries, following.tolist())
    return out | {"default_over_one_thread": out["default_ms"] / out["one_thread_ms"]}


def _median_search(store: Store, queries: np.ndarray, following: Sequence[int]) -> float:
    assert store.dense is not None
    spent = []
    for query, token in zip(queries, following, strict=True):
        begin = perf_counter()
        store.dense.search(query, int(token), 64)
        spent.append(perf_counter() - begin)
    return float(np.median(spent))


if __name__ == "__main__":
    main()
