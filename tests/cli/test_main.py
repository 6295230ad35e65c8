"""The command as a whole: light help, exit statuses, messages instead of tracebacks."""

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

from specret.cli import main
from specret.types import SpecretError

HEAVY = ("torch", "transformers", "faiss", "sklearn", "datasets")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["decode", "--help"], ["eval", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import json, sys\n"
        "from specret.cli.main import status\n"
        f"code = status({arguments!r})\n"
        f"print(json.dumps([code, [m for m in {HEAVY!r} if m in sys.modules]]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1]) == [0, []]
    assert "Usage: specret" in ran.stdout
    assert ran.stderr == ""


def test_the_version_is_that_of_the_package(run: Callable[..., Any]) -> None:
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"specret {version('specret')}\n")


def test_help_names_every_command(run: Callable[..., Any]) -> None:
    out = run("--help").out
    for name in ("build-index", "decode", "eval", "inspect", "bench", "doctor"):
        assert f"\n  {name} " in out


FAULTS = {
    SpecretError("seen 1, expected 2", "do this"): (
        1,
        "error: seen 1, expected 2\nhint: do this\n",
    ),
    SpecretError("seen 1, expected 2"): (1, "error: seen 1, expected 2\n"),
    OSError(28, "No space left on device", "store"): (
        1,
        "error: [Errno 28] No space left on device: 'store'\n",
    ),
    MemoryError(): (1, "error: out of memory\nhint: a smaller model, corpus or --max-tokens\n"),
    KeyboardInterrupt(): (130, "interrupted\n"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: type(f).__name__)
def test_known_faults_end_in_one_message_and_their_status(
    fault: BaseException, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr("specret.datastore.manifest.open_manifest", fail)
    ran = run("inspect", "somewhere")
    assert (ran.code, ran.err) == FAULTS[fault]
    assert ran.out == ""


def test_a_fault_of_ours_is_not_hidden(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr("specret.datastore.manifest.open_manifest", fail)
    with pytest.raises(AssertionError, match="a defect"):
        run("inspect", "somewhere")


def test_our_warnings_are_lines_and_those_of_libraries_are_not_shown(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*_: object) -> None:
        code = "import warnings; warnings.warn('heard', stacklevel=1)"
        exec(code, {"__name__": "specret.engine"})
        exec(code.replace("heard", "not heard"), {"__name__": "elsewhere"})
        raise SpecretError("the end")

    monkeypatch.setattr("specret.datastore.manifest.open_manifest", warn)
    with warnings.catch_warnings():
        assert run("inspect", "somewhere").err == "warning: heard\nerror: the end\n"


def test_run_exits_with_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "status", lambda arguments: 7)
    with pytest.raises(SystemExit, match="7"):
        main.run(["anything"])


def test_a_reader_that_leaves_early_is_no_fault(store: Any, model: Any) -> None:
    script = "from specret.cli.main import run; run()"
    command = f"{sys.executable} -c '{script}' inspect {store} --samples 0 | true"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
