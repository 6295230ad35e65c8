"""`specret bench`: what this machine takes for a forward, a lookup, a build and an extraction."""

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from specret.cli import output
from specret.cli.options import Device, Dtype, Json, Machine, Model, Store, Threads

if TYPE_CHECKING:
    from specret.engine import Engine
    from specret.models.load import LoadedModel

LOOKED_UP = ("prompt", "suffix", "rest", "dresd")
PROMPTS = (
    "Write a Python class that keeps the k largest numbers of a stream.",
    'def read_config(path):\n    """Read an INI file into nested dictionaries."""\n',
    "Explain what a binary heap is, then implement one in Python with push and pop.",
)
NODES = 16
EXTRACTED_TOKENS = 8192
WINDOW = 256
ROUNDS = 3


def bench(
    lookups: Annotated[
        int, typer.Option(min=1, help="Steps to look up in, for each source, at least.")
    ] = 100,
    build_tokens: Annotated[
        int, typer.Option(min=1000, help="Tokens of the standard library to index.")
    ] = 500_000,
    model: Model = None,
    store: Store = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure forwards, lookups and builds on this machine."""
    from specret.cli.opening import open_engine

    engine = open_engine(
        Machine(model, dtype, device, threads),
        "plain",
        stores=[] if store is None else [store],
        reads_store=True,
        nodes=NODES,
        options={},
    )
    prices = engine.prices
    content = {
        "model": engine.loaded.fingerprint.model_id,
        "dtype": engine.loaded.fingerprint.dtype,
        "device": str(engine.loaded.device),
        "context": prices.context,
        "forward_ms": {
            str(rows): 1e3 * seconds
            for rows, seconds in zip(prices.rows, prices.seconds, strict=True)
        },
        "lookup_ms": {name: _lookups(engine, name, lookups) for name in LOOKED_UP},
        "build": _build(engine.loaded, build_tokens),
        "extraction": _extraction(engine.loaded),
    }
    if json:
        output.record("bench", content)
    else:
        output.data(_describe(content))


def _lookups(engine: "Engine", name: str, wanted: int) -> dict[str, float]:
    """Milliseconds of the lookups of real steps, over the prompts again and again."""
    drafting = engine.using(name, nodes=NODES)
    seconds: list[float] = []
    while len(seconds) < wanted:
        for prompt in PROMPTS:
            steps = drafting.generate(prompt, max_new_tokens=64).steps
            seconds += [step.seconds.lookup for step in steps]
    p50, p95, p99 = np.percentile(1e3 * np.array(seconds), (50, 95, 99)).tolist()
    return {"p50": p50, "p95": p95, "p99": p99, "steps": len(seconds)}


def _build(loaded: "LoadedModel", tokens: int) -> dict[str, float]:
    """Tokens a second of the sparse part: reading, tokenising, sorting suffixes, writing."""
    from tempfile import TemporaryDirectory

    from specret.datastore.build import build_store
    from specret.datastore.corpus import open_corpus
    from specret.datastore.plan import BuildOptions, plan_build

    options = BuildOptions(max_tokens=tokens, dense_tokens=0)
    with TemporaryDirectory() as folder:
        corpus = open_corpus("code")
        plan = plan_build(corpus, loaded.tokenizer, None, loaded.fingerprint, folder, options)
        started = perf_counter()
        built = build_store(plan, corpus, loaded.tokenizer, None, loaded.fingerprint)
        elapsed = perf_counter() - started
    count = built.manifest.counts["tokens"]
    return {"tokens": count, "seconds": elapsed, "tokens_per_s": count / elapsed}


def _extraction(loaded: "LoadedModel") -> dict[str, float]:
    """Tokens a second of the encoder, and of the bare model body on the same batches."""
    from specret.models.encoder import BATCH_TOKENS, TransformersEncoder

    length = min(WINDOW, loaded.context_len)
    rows = max(1, BATCH_TOKENS // length)
    batches = max(1, EXTRACTED_TOKENS // (rows * length))
    rng = np.random.default_rng(0)
    ids = rng.integers(0, loaded.fingerprint.vocab_size, (batches, rows, length))
    encoder = TransformersEncoder(loaded)
    encoder.encode(list(ids[0, :1]))
    ours, bare = [], []
    for _ in range(ROUNDS):
        ours.append(_seconds(lambda: encoder.encode(list(ids.reshape(-1, length)))))
        bare.append(_seconds(lambda: [_forward(loaded, batch) for batch in ids]))
    best = ids.size / min(ours)
    return {"tokens_per_s": best, "of_bare_forward": min(bare) / min(ours)}


def _forward(loaded: "LoadedModel", ids: Any) -> Any:
    import torch

    with torch.inference_mode():
        batch = torch.from_numpy(ids).to(loaded.device)
        states = loaded.model.base_model(batch, use_cache=False).last_hidden_state
        return float(states[-1, -1, 0])  # waits for the device


def _seconds(work: Any) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def _describe(content: dict[str, Any]) -> str:
    forward = content["forward_ms"]
    one = forward["1"]
    curve = output.table(
        ("rows", "ms", "of one row"),
        [(rows, f"{ms:.1f}", f"{ms / one:.2f}") for rows, ms in forward.items()],
    )
    lookups = output.table(
        ("lookup", "p50 ms", "p95 ms", "p99 ms"),
        [
            (name, *(f"{row[key]:.3f}" for key in ("p50", "p95", "p99")))
            for name, row in content["lookup_ms"].items()
        ],
    )
    build, extraction = content["build"], content["extraction"]
    return (
        f"{content['model']}, {content['dtype']} on {content['device']}, "
        f"context {content['context']}\n\n{curve}\n\n{lookups}\n\n"
        f"build of the sparse part: {build['tokens_per_s']:,.0f} tokens/s\n"
        f"extraction of states: {extraction['tokens_per_s']:,.0f} tokens/s, "
        f"{extraction['of_bare_forward']:.2f} of a bare forward"
    )
