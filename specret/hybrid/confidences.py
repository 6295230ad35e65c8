"""The fitted coefficients as a file: calibrations for each set of sources, and gain curves.

In: a small JSON file, by default the one that ships with the package. Out: `Confidences`, checked.
Knows neither how they were fitted nor how they are used.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from specret.hybrid.calibration import Calibration, Table
from specret.types import SOURCES, SpecretError

SCHEMA_VERSION = 1
SHIPPED = Path(__file__).with_name("confidences.json")
"""Fitted with a store of text that others wrote."""

SHIPPED_ANSWERS = Path(__file__).with_name("confidences_answers.json")
"""Fitted with a store of the target's own answers."""

SourceSet = tuple[str, ...]
"""Names of `types.SOURCES`, in that order, each once."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean tokens per step of a method at each number of draft nodes, and what its lookup takes.

    Attributes:
        nodes: (K,) ascending, from 0 (plain decoding).
        tokens: (K,) tokens per step, at least 1.
        lookup_s: median seconds of one proposal where the curve was measured.
    """

    nodes: tuple[int, ...]
    tokens: tuple[float, ...]
    lookup_s: float

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.tokens) or not self.nodes:
            raise ValueError(f"{len(self.nodes)} nodes and {len(self.tokens)} tokens")
        if list(self.nodes) != sorted(set(self.nodes)) or self.nodes[0] != 0:
            raise ValueError("nodes are not ascending from 0")
        if not np.isfinite([*self.tokens, self.lookup_s]).all() or min(self.tokens) < 1:
            raise ValueError("tokens per step below 1, or not finite")

    def __call__(self, nodes: int) -> float:
        """Tokens per step at `nodes` (linear between measured points)."""
        return float(np.interp(nodes, self.nodes, self.tokens))


@dataclass(frozen=True, slots=True)
class Confidences:
    """Everything that was fitted, and where it came from."""

    calibrations: Mapping[SourceSet, Calibration]
    gains: Mapping[str, Gain]
    provenance: Mapping[str, Any]

    def calibration(self, sources: SourceSet) -> Calibration:
        """The calibration of exactly these sources.

        Raises:
            SpecretError: there is none.
        """
        if sources not in self.calibrations:
            known = ", ".join(joined(names) for names in self.calibrations)
            raise SpecretError(
                f"no confidences for the sources {joined(sources)}, expected one of: {known}",
                "fit them with: python build_scripts/make_confidences.py",
            )
        return self.calibrations[sources]

    def gain(self, method: str) -> Gain:
        """The gain curve of a drafter, or of hybrid with its sources (`hybrid:prompt+dense`).

        Raises:
            SpecretError: there is none.
        """
        if method not in self.gains:
            raise SpecretError(
                f"no gain curve for {method}, expected one of: {', '.join(self.gains)}",
                "give the number of draft nodes, for instance: --nodes 16",
            )
        return self.gains[method]


def joined(sources: SourceSet) -> str:
    """One name for a set of sources: `prompt+suffix+dense`."""
    return "+".join(sources)


def source_set(given: str | Sequence[str]) -> SourceSet:
    """The sources that were asked for, as names or as `suffix,dense`, in the order of `SOURCES`.

    Raises:
        SpecretError: none, an unknown one, or one twice.
    """
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    for name in names:
        if name not in SOURCES or names.count(name) > 1:
            fault = "named twice" if name in SOURCES else "unknown"
            raise SpecretError(f"source {name!r} is {fault}, expected some of {', '.join(SOURCES)}")
    if not names:
        raise SpecretError(f"no sources, expected some of {', '.join(SOURCES)}")
    return tuple(name for name in SOURCES if name in names)


@cache
def load_confidences(path: Path = SHIPPED) -> Confidences:
    """Read a file of `save_confidences`.

    Raises:
        SpecretError: it is missing, of another version, or does not hold what it should.
    """
    hint = "write one with: python build_scripts/make_confidences.py"
    if not path.exists():
        raise SpecretError(f"no confidences at {path}", hint)
    try:
        held = json.loads(path.read_text())
        if held["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {held['schema_version']}, expected {SCHEMA_VERSION}")
        calibrations = {
            source_set(name.split("+")): _calibration(name, body)
            for name, body in held["calibrations"].items()
        }
        gains = {name: _gain(body) for name, body in held["gains"].items()}
        return Confidences(calibrations, gains, held["provenance"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecretError(f"{path} does not hold confidences: {error}", hint) from error


def shipped_for(store: Any) -> Path:
    """The file that ships for stores of this kind."""
    return SHIPPED_ANSWERS if store.own_answers else SHIPPED


def confidences_of(given: str | Path | None, stores: Sequence[Any]) -> list["Confidences"]:
    """Those that belong to each store, or without one those of the text so far alone.

    Args:
        given: a file for all of them; None: for each the one that ships for its kind.
        stores: opened ones.

    Raises:
        SpecretError: as for `load_confidences`.
    """
    shipped = [shipped_for(store) for store in stores] or [SHIPPED]
    return [load_confidences(Path(given or path)) for path in shipped]


def save_confidences(confidences: Confidences, path: Path) -> None:
    """Write the file, whole or not at all; numbers keep five digits."""
    body = {
        "schema_version": SCHEMA_VERSION,
        "provenance": dict(confidences.provenance),
        "gains": {
            name: {"nodes": gain.nodes, "tokens": _short(gain.tokens), "lookup_s": gain.lookup_s}
            for name, gain in confidences.gains.items()
        },
        "calibrations": {
            joined(sources): {
                "bias": _short([one.bias])[0],
                "tables": [
                    {"signal": t.signal, "edges": _short(t.edges), "weights": _short(t.weights)}
                    for t in one.tables
                ],
            }
            for sources, one in confidences.calibrations.items()
        },
    }
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(body, indent=1) + "\n")
    unfinished.replace(path)


def _short(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _calibration(name: str, body: Mapping[str, Any]) -> Calibration:
    tables = [
        Table(str(t["signal"]), tuple(map(float, t["edges"])), tuple(map(float, t["weights"])))
        for t in body["tables"]
    ]
    return Calibration(source_set(name.split("+")), float(body["bias"]), tables)


def _gain(body: Mapping[str, Any]) -> Gain:
    return Gain(tuple(body["nodes"]), tuple(map(float, body["tokens"])), float(body["lookup_s"]))
