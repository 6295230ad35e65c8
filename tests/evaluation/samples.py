"""Samples made by hand, for figures that can be checked on paper."""

from specret.evaluation.sample import Sample
from specret.types import Seconds


def sample(lengths, drafted=None, *, decode_s=1.0, score_s=0.5, prefill_tokens=0, tokens=None):
    """A sample whose steps wrote `lengths` tokens each."""
    count = sum(lengths) + prefill_tokens
    return Sample(
        tuple(range(count)) if tokens is None else tuple(tokens),
        "text",
        tuple(lengths),
        None if drafted is None else tuple(drafted),
        None if drafted is None else sum(lengths) - len(lengths),
        None if drafted is None else Seconds(score=score_s, other=decode_s - score_s),
        decode_s,
        0.25,
        prefill_tokens,
    )
