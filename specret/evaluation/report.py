"""A run's figures as a table for people.

In: the dict of `harness.run`. Out: a table and a few lines, on a rich console or as plain text.
"""

import io
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

COLUMNS = (
    "method",
    "nodes",
    "tokens/step",
    "speed-up",
    "95 % interval",
    "by prices",
    "tok/s",
    "coverage",
    "accepted",
    "outside",
    "identical",
)

PLAIN_WIDTH = 160
"""Columns of plain text: enough for every row on one line."""


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print the table, what each source adds, and the notes."""
    console.print(_table(result))
    for source, row in result["leave_one_out"].items():
        console.print(_adds(source, row), highlight=False)
    lookup = result["methods"].get("hf-lookup")
    if lookup is not None:
        tried = ", ".join(f"{n}: {_number(v, 1)}" for n, v in lookup["tried_tokens_per_s"].items())
        console.print(f"hf-lookup: the fastest of (guessed tokens: tok/s) {tried}", highlight=False)
    for note in result["notes"]:
        console.print(f"note: {note}", highlight=False, markup=False)
    if not result["lossless"]:
        console.print("NOT LOSSLESS: see the notes", style="bold red", highlight=False)


def as_text(result: Mapping[str, Any]) -> str:
    """The same as plain text."""
    out = io.StringIO()
    show(result, Console(file=out, width=PLAIN_WIDTH, color_system=None))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _table(result: Mapping[str, Any]) -> Table:
    settings = result["settings"]
    how = "greedy" if settings["temperature"] == 0 else f"temperature {settings['temperature']}"
    count = settings["prompts"]
    prompts = "1 prompt" if count == 1 else f"{count} prompts"
    title = f"{prompts}, {settings['max_new_tokens']} new tokens, {how}"
    table = Table(title=title, box=box.SIMPLE, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for name, row in result["methods"].items():
        table.add_row(name, *_cells(row))
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    interval = row["speedup_ci95"]
    return [
        str(row["nodes"]),
        _number(row["tokens_per_step"], 2),
        _number(row["speedup"], 2),
        "–" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
        _number(row["predicted_speedup"], 2),
        _number(row["tokens_per_s"], 1),
        _percent(row["coverage"]),
        _percent(row["acceptance_rate"]),
        _percent(row["outside_share"]),
        _identical(row),
    ]


def _identical(row: Mapping[str, Any]) -> str:
    if row["identical"] is None:
        return "–"
    text = f"{row['identical']}/{row['answers']}"
    ties = row["near_ties"]
    failed = len(row["differences"]) - ties
    extra = [f"{ties} near ties"] * (ties > 0) + [f"{failed} FAILED"] * (failed > 0)
    return text + (f" ({', '.join(extra)})" if extra else "")


def _adds(source: str, row: Mapping[str, Any]) -> str:
    interval = row["ci95"]
    sure = "" if interval is None else f" (95 %: {interval[0]:+.2f} to {interval[1]:+.2f})"
    return f"{source} adds {row['adds_tokens_per_step']:+.2f} tokens per step to hybrid{sure}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
