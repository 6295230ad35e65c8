"""`specret doctor`: what is installed here, whether it fits, and what to do about what does not."""

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import typer

from specret.cli import output
from specret.cli.options import Json

PACKAGES = ("specret", "torch", "transformers", "tokenizers", "safetensors", "numpy", "datasets")
FAISS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `hint` says what to do about it."""

    name: str
    state: Literal["ok", "warning", "fault"]
    seen: str
    hint: str = ""


def doctor(json: Json = False) -> None:
    """Say what is installed, and what to do about it."""
    findings = [finding for look in LOOKS for finding in look()]
    faults = [finding for finding in findings if finding.state == "fault"]
    if json:
        output.record("doctor", {"healthy": not faults, "findings": [asdict(f) for f in findings]})
    else:
        for finding in findings:
            output.data(f"{finding.state:<8}{finding.name:<14}{finding.seen}")
            if finding.hint:
                output.data(f"{'':<8}{'':<14}-> {finding.hint}")
    if faults:
        raise typer.Exit(1)


def _versions() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    for name in PACKAGES:
        found = _version(name)
        if found is None:
            yield Finding(name, "fault", "not installed", f"pip install {name}")
        else:
            yield Finding(name, "ok", found)


def _index() -> Iterator[Finding]:
    try:
        from specret import _suffix
    except ImportError as error:
        yield Finding("suffix index", "fault", str(error), "make setup (it compiles the crate)")
    else:
        yield Finding("suffix index", "ok", str(_suffix.__name__))


def _faiss() -> Iterator[Finding]:
    found = {name: known for name in FAISS if (known := _version(name)) is not None}
    seen = ", ".join(f"{name} {known}" for name, known in found.items()) or "not installed"
    if not found:
        yield Finding("faiss", "fault", seen, "pip install faiss-cpu")
    elif len(found) > 1:
        # they install one module of the same name over each other
        cure = f"pip uninstall {' '.join(found)}, then pip install just one of them"
        yield Finding("faiss", "warning", f"{seen}: they overwrite each other", cure)
    else:
        yield Finding("faiss", "ok", seen)


def _devices() -> Iterator[Finding]:
    import torch

    from specret.models.load import choose_dtype

    cpu = torch.device("cpu")
    kind = str(choose_dtype("auto", cpu)).removeprefix("torch.")
    yield Finding("cpu", "ok", f"{torch.get_num_threads()} threads, {kind} by default")
    if not torch.cuda.is_available():
        yield Finding("gpu", "ok", "none that torch sees: everything runs on the CPU")
    for i in range(torch.cuda.device_count()):
        size = torch.cuda.get_device_properties(i).total_memory / 2**30
        yield Finding("gpu", "ok", f"{torch.cuda.get_device_name(i)}, {size:.0f} GiB")


def _model() -> Iterator[Finding]:
    from specret.models.default import packaged_gguf
    from specret.types import SpecretError

    try:
        source = packaged_gguf()
    except SpecretError as error:
        yield Finding("model", "warning", str(error), error.hint)
        return
    yield Finding("model", "ok", f"{source.name} (used where no --model is given)")


def _store() -> Iterator[Finding]:
    from specret.cli.opening import CODE, store_place
    from specret.datastore.manifest import open_manifest, verify
    from specret.models.cache import file_sha256
    from specret.models.default import MODEL_ID, packaged_gguf
    from specret.types import SpecretError

    build = "specret build-index --corpus code"
    try:
        folder = store_place(MODEL_ID, file_sha256(packaged_gguf()), CODE)
        if not folder.exists():
            yield Finding("default store", "warning", f"not built yet ({folder})", build)
            return
        manifest = open_manifest(folder)
        verify(folder, manifest)
    except SpecretError as error:
        yield Finding("default store", "warning", str(error), error.hint or build)
        return
    tokens, keys = manifest.counts["tokens"], manifest.counts.get("keys", 0)
    yield Finding("default store", "ok", f"{tokens:,} tokens, {keys:,} keys ({folder})")


LOOKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _versions,
    _index,
    _faiss,
    _devices,
    _model,
    _store,
)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
