"""Sources of several stores: which store a source reads, and one calibration for all together.

In: names of sources, the confidences that belong to each store. Out: a `Calibration`.
Each source keeps the weights that were fitted for a store of its kind. Knows no store and no text.
"""

from collections.abc import Sequence
from dataclasses import replace

from specret.hybrid.calibration import Calibration, Table
from specret.hybrid.confidences import Confidences, SourceSet, source_set


def kind_of(source: str) -> str:
    """What kind of source it is, whichever store it reads: `suffix2` is a `suffix`."""
    return source.rstrip("0123456789")


def store_of(source: str) -> int:
    """Which store a source reads, counted from 0; the text so far counts with the first."""
    number = source[len(kind_of(source)) :]
    return int(number) - 1 if number else 0


def source_of(kind: str, store: int) -> str:
    """The source of that kind over a store, counted from 0."""
    return kind if store == 0 else f"{kind}{store + 1}"


def by_store(sources: SourceSet) -> dict[int, SourceSet]:
    """The sources of each store that has any; the text so far goes with the first of these."""
    reading = [name for name in sources if kind_of(name) != "prompt"]
    first = min(map(store_of, reading), default=0)
    groups: dict[int, SourceSet] = {}
    for name in sources:
        store = first if kind_of(name) == "prompt" else store_of(name)
        groups[store] = (*groups.get(store, ()), name)
    return dict(sorted(groups.items()))


def kinds(sources: SourceSet) -> SourceSet:
    """The sources of one store as they are called where there is only one."""
    return source_set([kind_of(name) for name in sources])


def calibration_for(sources: SourceSet, confidences: Sequence[Confidences]) -> Calibration:
    """One calibration for sources that read several stores.

    The one that was fitted for exactly these sources, where the first store's confidences have
    it. Otherwise their log-odds are added: bias, depth, agreement and the text so far count as
    fitted beside the first store's sources; to that each further source adds what it has to say,
    and nothing where it is silent.

    Args:
        sources: in the order of `SOURCES`.
        confidences: one for each store; at least one.

    Raises:
        SpecretError: a store's confidences do not know its sources.
    """
    if sources in confidences[0].calibrations:
        return confidences[0].calibrations[sources]
    (first, base), *further = by_store(sources).items()
    fitted = confidences[first].calibration(kinds(base))
    tables = [_renamed(table, first) for table in fitted.tables]
    for store, group in further:
        beside = ("prompt",) if "prompt" in sources else ()
        own = confidences[store].calibration(source_set([*beside, *kinds(group)]))
        tables += [
            _silent_is_nothing(_renamed(table, store))
            for table in own.tables
            if table.signal.partition(".")[0] in kinds(group)
        ]
    return Calibration(sources, fitted.bias, tables)


def _renamed(table: Table, store: int) -> Table:
    kind, dot, name = table.signal.partition(".")
    if not dot or kind == "prompt":
        return table
    return replace(table, signal=f"{source_of(kind, store)}.{name}")


def _silent_is_nothing(table: Table) -> Table:
    """The same differences between bins, but nothing added where there is no value."""
    return replace(table, weights=tuple(w - table.weights[0] for w in table.weights))
