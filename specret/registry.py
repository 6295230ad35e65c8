"""Names of drafters and verifiers, and where their factories live.

Adding one is a file plus a line here. Nothing is imported before it is asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, TypeVar

from specret.protocols import Drafter, Verifier
from specret.types import SpecretError

DRAFTERS = {
    "plain": "specret.retrieval.plain:make",
    "rest": "specret.retrieval.rest:make",
    "suffix": "specret.retrieval.suffix:make",
    "dresd": "specret.retrieval.dense:make",
    "prompt": "specret.retrieval.prompt:make",
    "hybrid": "specret.hybrid.fused:make",
}

VERIFIERS = {"follow": "specret.decode.verify.follow:follow"}

STORELESS = frozenset({"plain", "prompt"})
"""Drafters (and sources of hybrid of the same name) that work without a datastore."""

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a drafter may use: opened stores, the target's sizes, the way to other drafters."""

    vocab_size: int
    hidden_size: int
    store: Any = None  # an opened specret.datastore.store.Store, or None
    further: tuple[Any, ...] = ()  # more of them, which only hybrid reads
    make: Callable[..., Drafter] | None = field(default=None, compare=False)

    @property
    def stores(self) -> tuple[Any, ...]:
        """All that are open."""
        return () if self.store is None else (self.store, *self.further)


def make_drafter(name: str, resources: Resources, options: Mapping[str, Any]) -> Drafter:
    """Build the drafter of that name.

    Raises:
        SpecretError: the name is not in the table, or an option is not one of its own.
    """
    factory = _load(DRAFTERS, "drafter", name)
    drafter: Drafter = factory(resources, options)
    return drafter


def needs_store(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the drafter reads a datastore; hybrid does unless none of its sources does."""
    sources = options.get("sources")
    if isinstance(sources, str):
        sources = [source.strip() for source in sources.split(",")]
    return not STORELESS.issuperset(sources or [name])


def need_store(resources: Resources, drafter: str) -> Any:
    """The opened store.

    Raises:
        SpecretError: no store is open.
    """
    if resources.store is None:
        raise SpecretError(
            f"drafter {drafter!r} needs a datastore, none is open",
            "build one with: specret build-index --corpus code",
        )
    return resources.store


def load_verifier(name: str) -> Verifier:
    """The verifier of that name.

    Raises:
        SpecretError: the name is not in the table.
    """
    verifier: Verifier = _load(VERIFIERS, "verifier", name)
    return verifier


def read_options(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """A drafter's frozen config from a mapping.

    Raises:
        SpecretError: a name that the config does not have.
    """
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise SpecretError(
            f"{kind.__name__}: unknown option {unknown[0]!r}, expected one of {', '.join(known)}"
        )
    return kind(**given)


def _load(table: Mapping[str, str], noun: str, name: str) -> Any:
    if name not in table:
        raise SpecretError(f"unknown {noun} {name!r}, expected one of {', '.join(table)}")
    module, _, attribute = table[name].partition(":")
    return getattr(import_module(module), attribute)
