"""`specret build-index`: a corpus and a model in, a datastore folder out."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specret.cli import output
from specret.cli.options import Device, Dtype, Json, Machine, Model, Threads

if TYPE_CHECKING:
    from specret.datastore.plan import Plan

SHOWN = 20
"""Skipped files named on the terminal; all of them stand in the store and in --json."""


def build_index(
    corpus: Annotated[
        str,
        typer.Option(
            metavar="code|PATH|hf:NAME[:CONFIG]",
            help="code: the standard library of the running Python; a folder, a .jsonl, .parquet "
            "or text file; or a data set of the hub, streamed.",
        ),
    ] = "code",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the store; without it one in the user's cache.", show_default=False
        ),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Stop after that many tokens.", show_default=False)
    ] = None,
    dense_tokens: Annotated[
        int,
        typer.Option(min=0, help="Positions whose hidden states become keys; 0: no dense side."),
    ] = 300_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only.")] = False,
    model: Model = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Build a datastore from a corpus.

    The hidden states of the model become keys of its dense side. A build that was stopped goes
    on where it was when the same command runs again.
    """
    from specret.cli.opening import store_place
    from specret.datastore.build import build_store
    from specret.datastore.corpus import open_corpus
    from specret.datastore.plan import BuildOptions, plan_build
    from specret.datastore.store import Store

    output.working("loading the model")
    from specret.models.encoder import TransformersEncoder
    from specret.models.load import load_model

    options = BuildOptions(max_tokens=max_tokens, dense_tokens=dense_tokens)
    texts = open_corpus(corpus)
    machine = Machine(model, dtype, device, threads)
    loaded = load_model(machine.model, dtype=dtype, device=device, threads=threads)
    known = loaded.fingerprint
    folder = out or store_place(known.model_id, known.weights, corpus)
    encoder = TransformersEncoder(loaded) if dense_tokens else None
    plan = plan_build(texts, loaded.tokenizer, encoder, known, folder, options)
    output.note(str(plan))
    if dry_run:
        if json:
            output.record("build-index", {"plan": _plan(plan), "dry_run": True})
        return
    try:
        with output.progress_bars() as progress:
            built = build_store(plan, texts, loaded.tokenizer, encoder, known, progress)
    except KeyboardInterrupt:
        output.note("the same command goes on where this one stopped")
        raise
    skipped = Store(folder, built.manifest).skipped()
    content = {
        "store": str(folder),
        "fresh": built.fresh,
        "counts": dict(built.manifest.counts),
        "bytes": built.manifest.bytes,
        "skipped": [{"name": name, "reason": reason} for name, reason in skipped],
        "plan": _plan(plan),
    }
    _report(content, json)


def _report(content: Mapping[str, Any], json: bool) -> None:
    skipped = content["skipped"]
    for row in skipped[:SHOWN]:
        output.note(f"skipped: {row['name']}: {row['reason']}")
    if len(skipped) > SHOWN:
        output.note(f"skipped: {len(skipped) - SHOWN} more (all of them with --json)")
    if json:
        output.record("build-index", content)
        return
    counts = content["counts"]
    state = "built" if content["fresh"] else "finished already, nothing to do"
    output.data(f"{content['store']}: {state}")
    output.data(
        f"{output.counted(counts['documents'], 'document')}, "
        f"{output.counted(counts['tokens'], 'token')}, "
        f"{output.counted(counts.get('keys', 0), 'dense key')}, "
        f"{content['bytes'] / 1e6:,.1f} MB, {len(skipped):,} skipped"
    )


def _plan(plan: "Plan") -> dict[str, Any]:
    return {
        "corpus": plan.parameters["corpus"],
        "documents": plan.documents,
        "tokens": plan.tokens,
        "keys": plan.keys,
        "seconds": dict(plan.seconds),
        "bytes": plan.bytes,
        "folder": str(plan.folder),
        "finished": plan.finished,
    }
