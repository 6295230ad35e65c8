"""Drafts from a corpus by its suffix index: several suffix lengths blended.

In: the last tokens of the context. Out: a tree of what followed them in the datastore.
Knows the compiled index and nothing of how its files come about.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from specret.registry import Resources, need_store, read_options
from specret.retrieval.lookup import SuffixLookup


@dataclass(frozen=True, slots=True)
class SuffixOptions:
    """How the blend reads the corpus.

    Attributes:
        min_match: shortest suffix that counts, in tokens.
        max_match: longest suffix that is looked up.
        levels: suffix lengths that speak at most.
        samples: matches read of each, evenly spaced in suffix-array order.
        escape: how much new tokens weigh against seen ones; few matches are trusted the less.
    """

    min_match: int = 1
    max_match: int = 16
    levels: int = 4
    samples: int = 500
    escape: float = 8.0


def make(resources: Resources, options: Mapping[str, Any]) -> SuffixLookup:
    """The drafter `suffix`: longest matching suffix and shorter ones by escape weights (PPM).

    Raises:
        SpecretError: no store is open, or an unknown option.
    """
    chosen = read_options(SuffixOptions, options)
    store = need_store(resources, "suffix")
    return SuffixLookup(store.suffix, resources.vocab_size, asdict(chosen))
