"""The loop: propose, score, verify, commit.

In: a context, a drafter, a target, a law, a draw. Out: one `Step` per pass of the target.
With an empty draft it is plain decoding; everything else must write exactly what that writes.
Knows no store, no model library and no text.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from specret.decode.clock import Clock
from specret.decode.stopping import Cut, Stopping
from specret.protocols import Drafter, Draw, LawOfStep, Target, Verifier
from specret.types import Budget, Context, Draft, Step, Verdict


@dataclass(frozen=True, slots=True)
class Decoding:
    """The parts of one decoding; any of them can be exchanged."""

    target: Target
    drafter: Drafter
    verify: Verifier
    law: LawOfStep
    draw: Draw
    budget: Budget


def decode(parts: Decoding, context: Context, stopping: Stopping) -> Iterator[tuple[Step, Cut]]:
    """Write tokens until `stopping` ends the text. `context` comes from `begin`."""
    finish = stopping.exhausted()
    while finish is None:
        clock = Clock()
        draft = parts.drafter.propose(context, _within(parts.budget, stopping.room()))
        clock.mark("draft", of_which_lookup=parts.drafter.lookup_seconds())
        scores = parts.target.score(context, draft)
        clock.mark("score")
        law = parts.law.rows(context, scores)
        verdict = parts.verify(draft, law, parts.draw, len(context.tokens))
        clock.mark("verify")
        cut = stopping.cut(_tokens(draft, verdict))
        clock.mark("other")
        features = parts.target.commit(verdict)
        context, finish = context.extend(cut.tokens, features), cut.finish
        clock.mark("commit")
        if finish is None:
            parts.drafter.observe(context, draft, verdict)
        clock.mark("draft")
        yield _step(draft, verdict, cut, clock), cut


def begin(parts: Decoding, context: Context, capacity: int) -> Context:
    """Prefill all but the newest token, so that the first step already drafts."""
    context = context.with_features(parts.target.prefill(context.tokens[:-1], capacity))
    parts.drafter.start(context)
    return context


def _within(budget: Budget, room: int) -> Budget:
    # a draft deeper than room - 1 could only be cut: the step's own token needs the last place
    return Budget(budget.max_nodes if room > 1 else 0, min(budget.max_depth, room - 1))


def _tokens(draft: Draft, verdict: Verdict) -> tuple[int, ...]:
    return (*(int(draft.tokens[node]) for node in verdict.path), verdict.next_token)


def _step(draft: Draft, verdict: Verdict, cut: Cut, clock: Clock) -> Step:
    accepted = verdict.path[: len(cut.tokens)]
    own = len(cut.tokens) - len(accepted)
    return Step(
        emitted=cut.tokens,
        drafted=len(draft),
        accepted=len(accepted),
        sources=(*(int(draft.sources[n]) for n in accepted), *(0,) * own),
        origins=(*(int(draft.origins[n]) for n in accepted), *(-1,) * own),
        finish=cut.finish,
        seconds=clock.seconds(),
    )
