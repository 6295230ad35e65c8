import math

import pytest

from specret.evaluation.identity import Difference, compare


def no_gap(new):
    raise AssertionError("the gap must not be asked for")


def test_equal_texts_have_no_difference_and_ask_for_no_gap():
    assert compare([1, 2, 3], [1, 2, 3], no_gap, half=False) is None
    assert compare([], [], no_gap, half=False) is None


@pytest.mark.parametrize(("expected", "got"), [([1, 2], [1, 2, 3]), ([1, 2, 3], [1, 2]), ([], [1])])
def test_another_length_is_a_failure_that_no_gap_excuses(expected, got):
    found = compare(expected, got, no_gap, half=False)
    assert found is not None
    assert found.position == min(len(expected), len(got))
    assert (found.gap, found.near_tie) == (None, False)
    assert {found.expected, found.got} == {None, max(expected, got, key=len)[found.position]}


def test_the_gap_is_asked_after_the_common_beginning():
    asked = []
    compare([1, 2, 3, 4], [1, 2, 9, 4], lambda new: asked.append(list(new)) or 0.0, half=False)
    assert asked == [[1, 2]]


@pytest.mark.parametrize(
    ("gap", "half", "near"),
    [
        (0.0, False, True),
        (9.9e-4, False, True),
        (1e-3, False, False),
        (0.25, True, True),
        (0.26, True, False),
        (math.inf, True, False),
        (math.nan, True, False),
        (math.nan, False, False),
    ],
)
def test_the_allowed_gap_depends_on_precision(gap, half, near):
    found = compare([1], [2], lambda new: gap, half=half)
    assert isinstance(found, Difference)
    assert found.near_tie is near
    assert (found.expected, found.got) == (1, 2)
    assert isinstance(found.record()["gap"], float if math.isfinite(gap) else str)
