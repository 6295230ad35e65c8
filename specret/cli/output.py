"""What commands write: data on stdout, everything else on stderr.

In: records and lines. Out: text. Knows no command.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

SCHEMA_VERSION = 1

Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`."""


def data(text: str, end: str = "\n") -> None:
    """What was asked for, on stdout, at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def note(text: str) -> None:
    """What is said beside it, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def working(text: str) -> None:
    """What takes a while, told where somebody waits at a terminal."""
    if sys.stderr.isatty():
        note(f"{text} ...")


def counted(number: int, thing: str) -> str:
    """`1 token`, `2,000 tokens`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def failure(message: str, hint: str = "") -> None:
    """What went wrong, seen against expected, and the next command."""
    note(f"error: {message}")
    if hint:
        note(f"hint: {hint}")


def record(command: str, content: Mapping[str, Any]) -> None:
    """The one object that `--json` prints."""
    whole = {"schema_version": SCHEMA_VERSION, "command": command, **content}
    data(json.dumps(whole, ensure_ascii=False, default=_plain))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns wide enough for their content, the first one left, the others right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        first, *others = row
        right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]).rstrip())
    return "\n".join(lines)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A bar for each stage where stderr is a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        Speed(),
    )
    with Progress(*columns, TimeElapsedColumn(), Remaining(), console=Console(stderr=True)) as bars:
        stages: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total)
            bars.update(stages[stage], completed=done, total=total or None)

        yield show


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)
