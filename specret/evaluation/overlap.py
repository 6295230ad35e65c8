"""Which reference answers stand in the store, word for word: a drafter that copies them is no feat.

In: the stores' suffix indexes, prompts and a tokenizer. Out: for each reference the longest run
of its tokens that a store holds within one document. Knows no drafter.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specret._suffix import SuffixIndex
from specret.evaluation.prompts import Prompt
from specret.protocols import Tokenizer
from specret.types import TokenArray

MIN_RUN = 32
"""Runs of this many tokens are counted as shared text; shorter ones are mostly idiom."""


def longest_run(index: SuffixIndex, tokens: TokenArray) -> int:
    """Length of the longest run of `tokens` (T,) that the index holds within a document.

    A match is found by what follows it, so a run at the very end of a document counts one less.
    """
    best = 0
    for end in range(1, len(tokens) + 1):
        if end <= best:
            continue
        tree = index.draft(
            tokens[:end], max_nodes=1, max_depth=1, rule="rest", min_match=best + 1, max_match=end
        )
        if len(tree):
            best = int(tree.match_len[0])
    return best


def overlap(
    indexes: Sequence[SuffixIndex],
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer,
    min_run: int = MIN_RUN,
) -> dict[str, Any]:
    """How much of the prompts' references stands in the stores.

    Returns:
        `min_run`; `with_reference`, prompts that have one; `shared`, those of them that share
        `min_run` tokens or more (or a whole reference that is shorter than that); `longest_median`
        over all references; `prompts`, id -> longest run, for the shared ones.
    """
    longest: list[int] = []
    shared: dict[str, int] = {}
    judged = [prompt for prompt in prompts if prompt.references]
    for prompt in judged:
        for reference in prompt.references:
            ids = tokenizer(reference, add_special_tokens=False)["input_ids"]
            run = max(longest_run(index, np.array(ids, np.int64)) for index in indexes)
            longest.append(run)
            if run >= min(min_run, len(ids)):
                shared[prompt.id] = max(run, shared.get(prompt.id, 0))
    return {
        "min_run": min_run,
        "with_reference": len(judged),
        "shared": len(shared),
        "longest_median": float(np.median(longest)) if longest else None,
        "prompts": shared,
    }
