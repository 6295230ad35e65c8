"""What drafters would have proposed at each position of a finished answer: teacher forcing.

In: a prompt, its answer, the target's states over both, drafters. Out: `Moment`s.
Drives drafters exactly as the decoding loop does, one token a step. Knows no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from specret.protocols import Drafter
from specret.types import FINAL_NORM, Budget, Context, Draft, Features, TokenArray, Verdict


@dataclass(frozen=True, slots=True)
class Moment:
    """What each drafter proposed at one position, how long it took, and what really followed."""

    drafts: Mapping[str, Draft]
    seconds: Mapping[str, float]
    truth: TokenArray


def record(
    drafters: Mapping[str, Drafter],
    prompt: TokenArray,
    answer: TokenArray,
    states: Any,
    budget: Budget,
) -> list[Moment]:
    """One moment for each token of the answer.

    Args:
        drafters: by name; each starts a new sequence.
        prompt: (P,) tokens.
        answer: (T,) tokens that the target wrote after it.
        states: (>= P + T - 2, H) the target's final-norm states over prompt and answer, an array
            of the kind that the drafters get when decoding.
        budget: what each drafter may propose at a position.
    """
    context = Context.begin(prompt, len(prompt) + len(answer))
    context = context.with_features(Features(0, {FINAL_NORM: states[: len(prompt) - 1]}))
    for drafter in drafters.values():
        drafter.start(context)
    moments = []
    for done, token in enumerate(answer.tolist()):
        drafts, seconds = {}, {}
        for name, drafter in drafters.items():
            begin = perf_counter()
            drafts[name] = drafter.propose(context, budget)
            seconds[name] = perf_counter() - begin
        moments.append(Moment(drafts, seconds, answer[done:]))
        fed = len(context.tokens) - 1  # the newest token, which the step feeds
        features = Features(fed, {FINAL_NORM: states[fed : fed + 1]})
        context = context.extend((token,), features)
        for name, drafter in drafters.items():
            drafter.observe(context, drafts[name], Verdict((), token))
    return moments
