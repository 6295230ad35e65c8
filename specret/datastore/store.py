"""An opened datastore: token file, suffix index, dense index, and where each token came from.

In: a folder and the fingerprint of the model that shall use it. Out: a `Store` whose files were
verified before they were opened. Knows no draft. faiss is loaded only if the dense side is used.
"""

import json
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from specret._suffix import SuffixIndex
from specret.datastore.manifest import Manifest, open_manifest, verify
from specret.datastore.projection import Projection
from specret.types import MOST_STORES, Fingerprint, SpecretError

if TYPE_CHECKING:
    from specret.datastore.vectors import DenseIndex, Placement


class Store:
    """A verified datastore.

    Args:
        path: its folder.
        manifest: its manifest.
        refusal: why the dense side does not fit the model at hand, or None.
        placement: where the dense index shall live.

    Attributes:
        tokens: (T,) ids, mapped from the file.
        offsets: (D + 1,) where each document starts, and the end.
        suffix: the suffix index over the tokens.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        refusal: SpecretError | None = None,
        placement: "Placement" = "cpu",
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._refusal = refusal
        self._placement = placement
        width = manifest.counts["width"]
        self.tokens: NDArray[Any] = np.memmap(self._file("tokens"), f"<u{width}", "r")
        self.offsets: NDArray[np.uint64] = np.fromfile(self._file("offsets"), "<u8")
        self.suffix = SuffixIndex.open(
            str(self._file("tokens")),
            width,
            str(self._file("suffix")),
            manifest.fingerprint.vocab_size,
        )

    @property
    def own_answers(self) -> bool:
        """Whether it holds answers of the target, written for it or recorded, not other text."""
        return "recipe" in self.manifest.parameters

    def _file(self, role: str) -> Path:
        return self.path / self.manifest.files[role].path

    @cached_property
    def dense(self) -> "DenseIndex | None":
        """The dense index, or None where the store has none.

        Raises:
            SpecretError: it was built from other weights or another layer, or is damaged.
        """
        if not self.manifest.has_dense:
            return None
        if self._refusal is not None:
            raise self._refusal
        from specret.datastore.vectors import DenseIndex

        return DenseIndex.open(
            self._file("index"),
            self._file("lists"),
            keys=self.manifest.counts["keys"],
            dim=self.manifest.counts["dim"],
            placement=self._placement,
        )

    @cached_property
    def projection(self) -> Projection | None:
        """What turns states of the target into keys, or None where the store has no dense side.

        Raises:
            SpecretError: as for `dense`.
        """
        if not self.manifest.has_dense:
            return None
        if self._refusal is not None:
            raise self._refusal
        return Projection.load(self._file("projection"))

    @cached_property
    def _documents(self) -> list[dict[str, str]]:
        with self._file("documents").open("rb") as file:
            return [json.loads(line) for line in file]

    def _document(self, position: int) -> int:
        assert 0 <= position < len(self.tokens), position
        return int(np.searchsorted(self.offsets, position, side="right")) - 1

    def document_of(self, position: int) -> str:
        """Name of the document that holds a token position."""
        return self._documents[self._document(position)]["name"]

    def describe(self, position: int) -> str:
        """Where a token position lies, for people: document, place in it, licence if known."""
        number = self._document(position)
        start, end = int(self.offsets[number]), int(self.offsets[number + 1])
        licence = self._documents[number]["licence"]
        of = f"{self._documents[number]['name']}, token {position - start + 1} of {end - start}"
        return f"{of} ({licence})" if licence else of

    def skipped(self) -> list[tuple[str, str]]:
        """(name, reason) of what the build passed over."""
        with self._file("skipped").open("rb") as file:
            rows = [json.loads(line) for line in file]
        return [(row["name"], row["reason"]) for row in rows]


def open_store(
    path: str | Path,
    fingerprint: Fingerprint,
    *,
    placement: "Placement" = "cpu",
    digests: bool = True,
) -> Store:
    """Open a datastore for a model.

    Another tokenizer is refused. Other weights or another layer: the sparse side works, with a
    warning, and asking for the dense side is refused. Another dtype: a warning.

    Args:
        path: the store's folder.
        fingerprint: of the model that shall use it.
        placement: where the dense index shall live: "cpu", "gpu" or "auto".
        digests: verify every byte (about 0.1 s for 100 MB); otherwise sizes only.

    Raises:
        SpecretError: no store there, a damaged one, or one for another tokenizer.
    """
    folder = Path(path)
    manifest = open_manifest(folder)
    refusal = _compare(folder, manifest.fingerprint, fingerprint)
    verify(folder, manifest, digests=digests)
    return Store(folder, manifest, refusal, placement)


def open_stores(
    given: Sequence["str | Path | Store"], fingerprint: Fingerprint
) -> tuple[Store, ...]:
    """Open several datastores for one model; open ones are taken as they are.

    Raises:
        SpecretError: as for `open_store`; one given twice; more than `MOST_STORES`.
    """
    if len(given) > MOST_STORES:
        raise SpecretError(
            f"{len(given)} stores, expected at most {MOST_STORES}",
            "build one store of what several hold",
        )
    paths = [(one.path if isinstance(one, Store) else Path(one)).resolve() for one in given]
    for path in paths:
        if paths.count(path) > 1:
            raise SpecretError(f"the store at {path} is given twice", "give each store once")
    return tuple(one if isinstance(one, Store) else open_store(one, fingerprint) for one in given)


def _compare(folder: Path, built: Fingerprint, used: Fingerprint) -> SpecretError | None:
    """Refuse, warn, or give the reason why the dense side must not be used."""
    hint = "build one for this model: specret build-index --out DIR, with the same --model"
    if built.tokenizer != used.tokenizer:
        raise SpecretError(
            f"the store at {folder} was built with the tokenizer of {built.model_id} "
            f"({built.tokenizer[:12]}), the model at hand is {used.model_id} with tokenizer "
            f"{used.tokenizer[:12]}",
            hint,
        )
    names = ("weights", "layer", "final_norm", "hidden_size")
    other = [name for name in names if getattr(built, name) != getattr(used, name)]
    if not other:
        if built.dtype != used.dtype:
            warnings.warn(
                f"the store at {folder} was built in {built.dtype}, the model runs in "
                f"{used.dtype}: dense matches may be a little worse",
                stacklevel=3,
            )
        return None
    sides = ", ".join(f"{n} {_short(built, n)} against {_short(used, n)}" for n in other)
    message = (
        f"the store at {folder} was built from the states of {built.model_id}, the model at "
        f"hand is {used.model_id}: {sides}"
    )
    warnings.warn(f"{message}; its sparse side can be used all the same", stacklevel=3)
    return SpecretError(message, hint)


def _short(fingerprint: Fingerprint, name: str) -> str:
    return str(getattr(fingerprint, name))[:12]
