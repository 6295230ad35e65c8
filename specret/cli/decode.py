"""`specret decode`: a prompt in, the model's text out, streamed, and one line of figures."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from specret.cli import output
from specret.cli.options import (
    Device,
    Dtype,
    Json,
    Machine,
    Model,
    NewTokens,
    Nodes,
    Seed,
    Sources,
    Stores,
    Temperature,
    Threads,
    Trace,
    read_drafter,
)

if TYPE_CHECKING:
    from specret.engine import Engine
    from specret.types import Step


def decode(
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT|-", help="What to answer; - reads it from stdin."),
    ] = None,
    drafter: Annotated[
        str, typer.Option(parser=read_drafter, metavar="NAME", help="Who guesses.")
    ] = "hybrid",
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--raw",
            help="As a chat message, or as it is; without it chat where the model has a template.",
            show_default=False,
        ),
    ] = None,
    max_new_tokens: NewTokens = 128,
    temperature: Temperature = 0.0,
    top_p: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Without it the model's.", show_default=False),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=0, help="0: off; without it the model's.", show_default=False),
    ] = None,
    seed: Seed = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="A text that ends the answer before it; may be given several times."),
    ] = None,
    show_sources: Annotated[
        bool,
        typer.Option(
            "--show-sources", help="Then list which guesses held and where they are from."
        ),
    ] = False,
    trace: Trace = None,
    model: Model = None,
    store: Stores = None,
    nodes: Nodes = "auto",
    sources: Sources = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Answer a prompt: the model's own text, sooner.

    The text goes to stdout as it is written, one line of figures to stderr.
    """
    text = _read_prompt(prompt)
    if sources is not None and drafter != "hybrid":
        raise typer.BadParameter(f"--sources belongs to the drafter hybrid, not to {drafter}")
    if len(store or []) > 1 and drafter != "hybrid":
        raise typer.BadParameter(f"several stores belong to the drafter hybrid, not to {drafter}")
    from specret.cli.opening import open_engine
    from specret.cli.spans import accepted_spans
    from specret.datastore.traces import append_trace, trace_line
    from specret.registry import needs_store

    options = {} if sources is None else {"sources": sources}
    engine = open_engine(
        Machine(model, dtype, device, threads),
        drafter,
        stores=store or [],
        reads_store=needs_store(drafter, options),
        nodes=nodes,
        options=options,
    )
    ids = engine.encode(text, chat)
    if trace is not None:
        append_trace(trace, b"")  # a file that cannot be written is told before the answer
    chunks = []
    for chunk in engine.stream(
        ids,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop=tuple(stop or ()),
    ):
        chunks.append(chunk)
        if not json:
            output.data(chunk.text, end="")
    steps = [chunk.step for chunk in chunks]
    if trace is not None:
        answer = np.array([token for step in steps for token in step.emitted], np.int64)
        append_trace(trace, trace_line(engine.loaded.fingerprint, ids, answer))
    spans = accepted_spans(steps, engine.tokenizer, engine.stores) if show_sources else None
    figures = _figures(engine, steps, "length" if max_new_tokens == 0 else "context")
    if json:
        content = {"text": "".join(c.text for c in chunks), **figures}
        output.record("decode", content if spans is None else {**content, "spans": spans})
        return
    output.data("")
    for span in spans or ():
        output.data(f"{'+'.join(span['sources'])}  {span['text']!r}  {span['origin']}")
    output.note(_summary(figures))


def _read_prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise typer.BadParameter("no prompt: give --prompt TEXT, or --prompt - and text on stdin")
    text = sys.stdin.read() if prompt in (None, "-") else prompt
    assert text is not None
    if not text.strip():
        raise typer.BadParameter("the prompt is empty, expected some text")
    return text


def _figures(engine: "Engine", steps: Sequence["Step"], exhausted: str) -> dict[str, Any]:
    """What the run took; `exhausted` is the finish of a text that had no room for a step."""
    tokens = [token for step in steps for token in step.emitted]
    seconds = sum(step.seconds.total for step in steps)
    return {
        "model": engine.loaded.fingerprint.model_id,
        "dtype": engine.loaded.fingerprint.dtype,
        "device": str(engine.loaded.device),
        "drafter": engine.drafter_name,
        "nodes": engine.nodes,
        "tokens": tokens,
        "steps": len(steps),
        "tokens_per_step": len(tokens) / len(steps) if steps else None,
        "drafted": sum(step.drafted for step in steps),
        "accepted": sum(step.accepted for step in steps),
        "decode_s": seconds,
        "tokens_per_s": len(tokens) / seconds if seconds else None,
        "finish": steps[-1].finish if steps else exhausted,
    }


def _summary(figures: dict[str, Any]) -> str:
    count = len(figures["tokens"])
    if not count:
        return f"no new tokens (finish: {figures['finish']})"
    return (
        f"{count} tokens in {figures['decode_s']:.2f} s, {figures['tokens_per_s']:.1f} tokens/s, "
        f"{figures['tokens_per_step']:.2f} tokens per step (drafter {figures['drafter']}, "
        f"{figures['nodes']} nodes, {figures['dtype']} on {figures['device']}, "
        f"finish: {figures['finish']})"
    )
