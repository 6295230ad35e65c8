"""`specret eval`: drafters and rivals in one run, held against plain decoding."""

import sys
from pathlib import Path
from typing import Annotated

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
    read_names,
)


def evaluate(
    drafter: Annotated[
        str, typer.Option(parser=read_drafter, metavar="NAME", help="What is measured.")
    ] = "hybrid",
    compare: Annotated[
        str | None,
        typer.Option(
            parser=read_names,
            metavar="A,B,...",
            help="Other drafters, measured beside it.",
            show_default=False,
        ),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(help="Also transformers' own hf-generate and hf-lookup (3, 5, 10 tokens)."),
    ] = True,
    prompts: Annotated[
        str, typer.Option(help="humaneval, spec-bench:FILE or FILE.jsonl")
    ] = "humaneval",
    skip: Annotated[int, typer.Option(min=0, help="Leave out so many prompts first.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Of the rest take each so many-th.")] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take at most so many.", show_default=False)
    ] = None,
    sources: Sources = None,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Also hybrid without each of its sources.")
    ] = False,
    max_new_tokens: NewTokens = 128,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results.json and samples.jsonl.", show_default=False),
    ] = None,
    trace: Trace = None,
    model: Model = None,
    store: Stores = None,
    nodes: Nodes = "auto",
    dtype: Dtype = "auto",
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Compare drafters and rivals on the same prompts.

    Speed, tokens per step, and whether each text is the one of plain decoding. Exit status 1 where
    one is not.
    """
    if max_new_tokens < 1:
        raise typer.BadParameter("--max-new-tokens is 0, expected 1 or more to measure")
    from specret.cli.opening import open_engine
    from specret.evaluation import harness
    from specret.evaluation.prompts import load_prompts
    from specret.evaluation.report import as_text

    methods = [drafter, *(name.strip() for name in (compare or "").split(",") if name.strip())]
    methods += ["hf-generate", "hf-lookup"] if baselines else []
    _check_names(methods)
    if sources is not None and "hybrid" not in methods:
        raise typer.BadParameter("--sources belongs to hybrid, which is not among the methods")
    chosen = load_prompts(prompts, skip=skip, every=every, limit=limit)
    engine = open_engine(
        Machine(model, dtype, device, threads),
        "plain",
        stores=store or [],
        reads_store=_reads_store(methods, sources),
        nodes=nodes,
        options={},
    )
    with output.progress_bars() as progress:
        result = harness.run(
            engine,
            methods,
            chosen,
            nodes=nodes,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
            sources=sources,
            leave_one_out=leave_one_out,
            progress=lambda done, total: progress("answers", done, total),
            command=["specret", *sys.argv[1:]],
            out=out,
            trace=trace,
        )
    if json:
        output.record("eval", result)
    else:
        output.data(as_text(result), end="")
    if not result["lossless"]:
        raise typer.Exit(1)


def _reads_store(methods: list[str], sources: str | None) -> bool:
    from specret.registry import DRAFTERS, needs_store

    drafters = [name for name in methods if name in DRAFTERS]
    return any(
        needs_store(name, {"sources": sources} if name == "hybrid" else {}) for name in drafters
    )


def _check_names(methods: list[str]) -> None:
    from specret.evaluation.methods import RIVALS
    from specret.registry import DRAFTERS

    for name in methods:
        if name not in DRAFTERS and name not in RIVALS:
            known = ", ".join([*DRAFTERS, *RIVALS])
            raise typer.BadParameter(f"unknown method {name!r}, expected some of {known}")
