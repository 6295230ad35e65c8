"""The command `specret`: its subcommands, and what becomes of what goes wrong.

Exit status: 0 done, 1 failure, 2 a command line that makes no sense, 130 interrupted. Each
command imports what it needs inside its body, so that help is instant.
"""

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from specret.cli import output
from specret.cli.bench import bench
from specret.cli.build_index import build_index
from specret.cli.decode import decode
from specret.cli.doctor import doctor
from specret.cli.eval import evaluate
from specret.cli.inspect import inspect
from specret.types import SpecretError

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

# typer exports one of its usage errors; the others have the same parent
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Write several tokens per pass of a language model, by guessing them from stored text, "
    "and keep exactly the model's own output.",
)
app.command("build-index")(build_index)
app.command("decode")(decode)
app.command("eval")(evaluate)
app.command("inspect")(inspect)
app.command("bench")(bench)
app.command("doctor")(doctor)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run one command line (that of the process by default) and exit."""
    sys.exit(status(arguments))


def status(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit status. An empty one asks for help."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with _plain_messages():
        try:
            code = app(given or ["--help"], prog_name="specret", standalone_mode=False)
        except USAGE_ERROR as error:
            command = error.ctx.command_path if error.ctx else "specret"
            output.failure(error.format_message().rstrip(".") + _seen(error), f"{command} --help")
            return MISUSED
        except SpecretError as error:
            output.failure(str(error), error.hint)
            return FAILED
        except OSError as error:
            output.failure(str(error))
            return FAILED
        except MemoryError:
            output.failure("out of memory", "a smaller model, corpus or --max-tokens")
            return FAILED
        except KeyboardInterrupt:
            code = INTERRUPTED
    if code == INTERRUPTED:
        output.note("interrupted")
    return code if isinstance(code, int) else DONE


def _seen(error: Any) -> str:
    """The value that typer refused, where its message leaves it out."""
    details = getattr(error.__cause__, "errors", None)  # pydantic's error, in newer typers
    return f", seen {details()[0]['input']!r}" if details is not None else ""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        output.data(f"specret {version('specret')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    pass


@contextmanager
def _plain_messages() -> Iterator[None]:
    """Our own warnings and notices become lines on stderr; those of libraries are not shown."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logger, notes = logging.getLogger("specret"), _Notes()
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=UserWarning, module=r"specret\b")
            warnings.showwarning = lambda message, *_, **__: output.note(f"warning: {message}")
            yield
    finally:
        logger.removeHandler(notes)
        logger.setLevel(level)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        output.note(record.getMessage())
