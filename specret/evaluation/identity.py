"""Losslessness: do two decodings of one prompt write the same tokens, and if not, how close was it.

In: two lists of ids and a way to ask how far apart the best two tokens were. Out: a `Difference`.
Knows no model. Rounding may part two decodings only where the best two tokens nearly tie: a
drafted pass adds up in another order than a plain one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FULL_PRECISION_GAP = 1e-3
"""float32: a first difference below this gap is a near tie, from it on a failure."""

HALF_PRECISION_GAP = 0.25
"""bfloat16, float16: a first difference up to this gap is a near tie, above it a failure."""

Gap = Callable[[Sequence[int]], float]
"""Gap between the best two (processed, perturbed) logits after so many of the new tokens."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two decodings part.

    Args:
        position: index among the new tokens.
        expected, got: the two ids; None where one of the texts has ended.
        gap: between the best two tokens there; None where a text just ended, which no rounding
            explains.
        near_tie: whether rounding explains it.
    """

    position: int
    expected: int | None
    got: int | None
    gap: float | None
    near_tie: bool

    def record(self) -> Mapping[str, Any]:
        """Plain values for JSON; a gap that is no finite number becomes text."""
        finite = self.gap is None or self.gap - self.gap == 0.0
        return {
            "position": self.position,
            "expected": self.expected,
            "got": self.got,
            "gap": self.gap if finite else str(self.gap),
            "near_tie": self.near_tie,
        }


def compare(
    expected: Sequence[int], got: Sequence[int], gap: Gap, *, half: bool
) -> Difference | None:
    """The first difference of two lists of new ids, or None where they are equal.

    Args:
        expected: of plain decoding.
        got: of the method.
        gap: asked only where tokens differ.
        half: whether the target computes in half precision.
    """
    shared = next(
        (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    if shared == len(expected) == len(got):
        return None
    if shared in (len(expected), len(got)):
        first = expected[shared] if shared < len(expected) else None
        return Difference(shared, first, got[shared] if shared < len(got) else None, None, False)
    width = gap(expected[:shared])
    near = width <= HALF_PRECISION_GAP if half else width < FULL_PRECISION_GAP
    return Difference(shared, expected[shared], got[shared], width, near)
