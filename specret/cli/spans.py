"""Which guesses held, and where they came from: `decode --show-sources`.

In: the steps of a text. Out: runs of accepted tokens with the sources and the place of each.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from specret.hybrid.several import store_of
from specret.types import SOURCES, Step

if TYPE_CHECKING:
    from specret.datastore.store import Store

PROMPT = "the text so far"


def accepted_spans(
    steps: Sequence[Step], tokenizer: Any, stores: "Sequence[Store]"
) -> list[dict[str, Any]]:
    """Runs of accepted tokens of one step that one document and one set of sources gave.

    Returns:
        For each run its `text`, number of `tokens`, `sources` (names), `origin` (document and
        place of its first token, or that it stands in the text so far) and `step`.
    """
    spans = []
    for number, step in enumerate(steps):
        accepted = zip(step.emitted, step.sources, step.origins, strict=True)

        def place(row: tuple[int, int, int]) -> tuple[int, str]:
            _, mask, origin = row
            return mask, "" if origin < 0 else stores[_store(mask)].document_of(origin)

        for (mask, document), run in groupby(accepted, place):
            if not mask:  # the model's own token
                continue
            ids, _, origins = zip(*run, strict=True)
            spans.append(
                {
                    "text": tokenizer.decode(list(ids)),
                    "tokens": len(ids),
                    "sources": [name for i, name in enumerate(SOURCES) if mask >> i & 1],
                    "origin": stores[_store(mask)].describe(origins[0]) if document else PROMPT,
                    "step": number,
                }
            )
    return spans


def _store(mask: int) -> int:
    """Which store an origin lies in: that of the first source with one, as `merge` has it."""
    return next(store_of(name) for i, name in enumerate(SOURCES) if i and mask >> i & 1)
