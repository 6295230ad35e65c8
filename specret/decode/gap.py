"""How close a decision was: the gap between the best two tokens at one position.

In: a target, a law, a draw and a prefix. Out: the gap, from a fresh prefill. Used where two
decodings part: rounding may only part them where the gap is tiny.
"""

import torch

from specret.decode.draw import Sampler
from specret.protocols import LawOfStep, Target
from specret.types import Context, Draft, TokenArray


def top2_gap(target: Target, law: LawOfStep, draw: Sampler, prefix: TokenArray) -> float:
    """Gap of the (processed, perturbed) logits that decide the token after `prefix`."""
    context = Context.begin(prefix, len(prefix) + 1)
    target.prefill(prefix[:-1], len(prefix) + 1)
    scores = target.score(context, Draft.empty(target.vocab_size))
    row = law.rows(context, scores)(0, ())
    top = torch.topk(draw.perturbed(len(prefix), row).float(), 2).values
    return float(top[0] - top[1])
