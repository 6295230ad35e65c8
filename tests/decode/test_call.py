"""Options of a call: values without a meaning are refused by name."""

from math import inf, nan
from typing import Any

import pytest

from specret.decode.call import Call
from specret.types import SpecretError

FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -0.1}, "temperature is -0.1, expected >= 0"),
    ({"temperature": nan}, "temperature is nan, expected >= 0"),
    ({"temperature": inf}, "temperature is inf, expected >= 0, finite"),
    ({"top_p": 0.0}, r"top_p is 0.0, expected in \(0, 1\]"),
    ({"top_p": 1.1}, r"top_p is 1.1, expected in \(0, 1\]"),
    ({"top_k": -1}, "top_k is -1, expected >= 0"),
    ({"max_new_tokens": -1}, "max_new_tokens is -1, expected 0 or more"),
    ({"stop": "end"}, "stop is 'end', expected a list of strings"),
    ({"stop": ("end", "")}, "a stop string is empty"),
]


@pytest.mark.parametrize(("options", "fault"), FAULTS)
def test_values_without_a_meaning_are_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(SpecretError, match=fault):
        assert Call(**options).sampling is None


def test_the_edges_are_values() -> None:
    assert Call(temperature=0.0, top_p=1.0, top_k=0, max_new_tokens=0).sampling.top_p == 1.0
