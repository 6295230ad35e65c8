"""From samples to figures: pooled ratios, shares of time, and how sure they are.

In: the samples of one method and of plain decoding, paired. Out: plain numbers for JSON; None
where a method does not tell. Knows no model.

Definitions: tokens per step = new tokens of decode / passes of the target in decode, pooled over
all prompts. Speed-up = ratio of pooled tokens per second, prefill apart. Its interval: 2.5 and
97.5 percentile of a paired bootstrap over prompts. Coverage = steps with a draft / steps.
Acceptance rate = accepted / drafted nodes. Outside share = time of decode outside `score`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specret.evaluation.sample import Sample
from specret.types import Prices

RESAMPLES = 2000

Pooled = NDArray[np.float64]
"""One sum for each prompt (P,)."""


def figures(
    samples: Sequence[Sample],
    plain: Sequence[Sample],
    prompts: Sequence[int],
    prices: Prices,
) -> dict[str, Any]:
    """The figures of one method.

    Args:
        samples: one for each turn of each prompt.
        plain: plain decoding's, for the same turns.
        prompts: (len(samples),) which prompt a turn belongs to.
        prices: T(rows) of the target.
    """
    tokens, seconds = _speed(samples, prompts)
    plain_tokens, plain_seconds = _speed(plain, prompts)
    passes = sum(len(s.accept_lengths) for s in samples)
    per_step = _ratio(tokens.sum(), passes)
    return {
        "tokens_per_step": per_step,
        **_drafting(samples),
        "tokens_per_s": _ratio(tokens.sum(), seconds.sum()),
        "speedup": _ratio(tokens.sum() * plain_seconds.sum(), seconds.sum() * plain_tokens.sum()),
        "speedup_ci95": ratio_interval((tokens, seconds), (plain_tokens, plain_seconds)),
        "predicted_speedup": _predicted(samples, per_step, prices),
        **_times(samples, passes),
        "prefill_ms": 1e3 * float(np.mean([s.prefill_s for s in samples])),
        "steps": passes,
        "new_tokens": sum(len(s.tokens) for s in samples),
        "decode_s": float(seconds.sum()),
    }


def ratio_interval(one: tuple[Pooled, Pooled], other: tuple[Pooled, Pooled]) -> list[float] | None:
    """95 % interval of (a / b) / (c / d) with prompts resampled in pairs; None below 2 prompts.

    Args:
        one: a and b, a sum per prompt.
        other: c and d for the same prompts.
    """
    drawn = _resampled(*one, *other)
    if drawn is None:
        return None
    a, b, c, d = drawn
    return _percentiles((a * d) / (b * c)) if (b * c).all() else None


def difference_interval(
    one: tuple[Pooled, Pooled], other: tuple[Pooled, Pooled]
) -> list[float] | None:
    """95 % interval of a / b - c / d, likewise."""
    drawn = _resampled(*one, *other)
    if drawn is None:
        return None
    a, b, c, d = drawn
    return _percentiles(a / b - c / d) if (b * d).all() else None


def pooled_steps(samples: Sequence[Sample], prompts: Sequence[int]) -> tuple[Pooled, Pooled]:
    """Decoded tokens and passes of the target, each summed per prompt."""
    tokens = _per_prompt([s.decoded for s in samples], prompts)
    return tokens, _per_prompt([len(s.accept_lengths) for s in samples], prompts)


def _speed(samples: Sequence[Sample], prompts: Sequence[int]) -> tuple[Pooled, Pooled]:
    tokens = _per_prompt([s.decoded for s in samples], prompts)
    return tokens, _per_prompt([s.decode_s for s in samples], prompts)


def _drafting(samples: Sequence[Sample]) -> dict[str, float | None]:
    told = [s.drafted for s in samples if s.drafted is not None]
    if len(told) < len(samples):
        return {"coverage": None, "acceptance_rate": None}
    drafted = [nodes for steps in told for nodes in steps]
    accepted = sum(s.accepted or 0 for s in samples)
    return {
        "coverage": _ratio(sum(nodes > 0 for nodes in drafted), len(drafted)),
        "acceptance_rate": _ratio(accepted, sum(drafted)),
    }


def _predicted(samples: Sequence[Sample], per_step: float | None, prices: Prices) -> float | None:
    """What the prices promise: tokens per step x T(1) / mean of T(nodes + 1) over the steps."""
    if per_step is None or any(s.drafted is None for s in samples):
        return None
    costs = [prices.forward(nodes + 1) for s in samples for nodes in s.drafted or ()]
    return per_step * prices.forward(1) / float(np.mean(costs))


def _times(samples: Sequence[Sample], passes: int) -> dict[str, float | None]:
    names = ("lookup", "draft", "score", "verify", "commit", "other")
    told = [s.seconds for s in samples if s.seconds is not None]
    if len(told) < len(samples) or not passes:
        return {**{f"{name}_ms": None for name in names}, "outside_share": None}
    spent = {name: sum(getattr(seconds, name) for seconds in told) for name in names}
    return {
        **{f"{name}_ms": 1e3 * spent[name] / passes for name in names},
        "outside_share": _ratio(sum(spent.values()) - spent["score"], sum(spent.values())),
    }


def _per_prompt(values: Sequence[float], prompts: Sequence[int]) -> Pooled:
    return np.bincount(prompts, weights=values).astype(np.float64)


def _resampled(*sums: Pooled) -> list[Pooled] | None:
    """Each sum over the same prompts drawn with replacement, `RESAMPLES` times."""
    count = len(sums[0])
    if count < 2:
        return None
    drawn = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    return [values[drawn].sum(axis=1) for values in sums]


def _percentiles(values: Pooled) -> list[float]:
    return [float(v) for v in np.percentile(values, [2.5, 97.5])]


def _ratio(a: float, b: float) -> float | None:
    return float(a / b) if b else None
