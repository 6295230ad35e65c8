"""Drafts by REST's rule, faithful to the ancestor.

In: the last tokens of the context. Out: a tree of what followed their longest matching suffix.
Knows the compiled index. Source: He et al., "REST: Retrieval-Based Speculative Decoding", 2023.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specret.registry import Resources, need_store, read_options
from specret.retrieval.lookup import SuffixLookup


@dataclass(frozen=True, slots=True)
class RestOptions:
    """REST's own settings.

    Attributes:
        min_match: shortest suffix that counts, in tokens.
        max_match: longest suffix that is looked up.
        matches: how many matches are read, the first in suffix-array order.
        long: tokens read after each match.
    """

    min_match: int = 2
    max_match: int = 16
    matches: int = 5000
    long: int = 10


def make(resources: Resources, options: Mapping[str, Any]) -> SuffixLookup:
    """The drafter `rest`: the longest matching suffix, the nodes with the highest counts.

    Raises:
        SpecretError: no store is open, or an unknown option.
    """
    chosen = read_options(RestOptions, options)
    arguments = {
        "rule": "rest",
        "min_match": chosen.min_match,
        "max_match": chosen.max_match,
        "samples": chosen.matches,
    }
    index = need_store(resources, "rest").suffix
    return SuffixLookup(index, resources.vocab_size, arguments, max_depth=chosen.long)
