"""Opens what commands work on: a model, its datastore, an engine with both.

In: what the options say. Out: an `Engine`. Knows where stores lie that were given no place.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specret.cli import output
from specret.cli.options import Machine
from specret.models.cache import user_cache
from specret.types import SpecretError

if TYPE_CHECKING:
    from specret.engine import Engine

CODE = "code"


def store_place(model_id: str, weights: str, corpus: str, *, own: bool = False) -> Path:
    """The folder in the user's cache for a model and a corpus.

    Args:
        model_id: name of the model, without a path.
        weights: digest of its weights.
        corpus: as given to build-index; a path counts with all its folders.
        own: whether the store holds the model's own answers instead of the corpus' text.
    """
    if Path(corpus).exists() and corpus != CODE:
        full = str(Path(corpus).resolve())
        corpus = f"{Path(full).name}-{sha256(full.encode()).hexdigest()[:8]}"
    name = _slug(corpus) + ("-answers" if own else "")
    return user_cache() / "stores" / f"{_slug(model_id)}-{weights[:8]}" / name


def default_store(model: str | None) -> Path:
    """Where the store of a model over the `code` corpus lies, there or not.

    Raises:
        SpecretError: there is no such model.
    """
    from specret.models.fingerprint import weights_digest
    from specret.models.source import find_source

    source = find_source(model)
    return store_place(source.model_id, weights_digest(source), CODE)


def open_engine(
    machine: Machine,
    drafter: str,
    *,
    stores: Sequence[Path],
    reads_store: bool,
    nodes: int | str,
    options: Mapping[str, Any],
) -> "Engine":
    """A target with a drafter, and stores where some are named or what will run reads one.

    Raises:
        SpecretError: the model or the store is not there or does not fit.
    """
    from specret.datastore.manifest import open_manifest

    if not stores and reads_store:
        store = default_store(machine.model)
        if not store.exists():
            raise SpecretError(
                f"there is no datastore yet for this model (looked at {store})", _build(machine)
            )
        stores = [store]
    for folder in stores:
        open_manifest(folder)  # a wrong folder is told before the model loads

    output.working("loading the model")
    from specret import engine

    return engine.load(
        machine.model,
        drafter=drafter,
        store=stores,
        dtype=machine.dtype,
        device=machine.device,
        threads=machine.threads,
        nodes=nodes,
        options=options,
    )


def _build(machine: Machine) -> str:
    named = f" --model {machine.model}" if machine.model else ""
    return f"specret build-index --corpus code{named}"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or "unnamed"
