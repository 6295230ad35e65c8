"""A stopwatch for one step: where its time went.

In: marks at the end of each part. Out: `Seconds`. Knows nothing of what it times.
"""

from time import perf_counter

from specret.types import Seconds


class Clock:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._last = perf_counter()
        self._spent: dict[str, float] = {}

    def mark(self, part: str, of_which_lookup: float = 0.0) -> None:
        """The time since the last mark belongs to `part`, less what was spent on lookups."""
        now = perf_counter()
        spent = now - self._last
        self._last = now
        self._spent[part] = self._spent.get(part, 0.0) + spent - of_which_lookup
        if of_which_lookup:
            self._spent["lookup"] = self._spent.get("lookup", 0.0) + of_which_lookup

    def seconds(self) -> Seconds:
        """The step's times so far."""
        return Seconds(**self._spent)
