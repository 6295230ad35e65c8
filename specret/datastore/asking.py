"""What is to be answered: prompts made of a corpus, or those of recorded answers.

In: a corpus with a recipe, or traces. Out: an `Asked`. Knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specret.datastore.corpus import Corpus, shown
from specret.datastore.durable import digest
from specret.datastore.recipes import questions
from specret.datastore.traces import Reading, Tokenize, Trace, read_traces
from specret.types import SpecretError, TokenArray

PROMPT_TOKENS = 512
"""Longer prompts are left out: one of them would need the room of several."""

LEAST_PROMPTS = 1_000
LEAST_ANSWER = 8
"""Tokens of an answer on average, at the very least: prompts are tokenised for no more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Prompts in the order that numbers them.

    Attributes:
        corpus: what they were made of, as the user named it.
        identity: changes when that changes.
        prompts: ids (T,) of each.
        origins: (name, licence) of each.
        skipped: (name, reason) of what gave none.
        answer_tokens: tokens of all answers, where they are known already.
    """

    corpus: str
    identity: str
    prompts: Sequence[TokenArray]
    origins: Sequence[tuple[str, str]]
    skipped: Sequence[tuple[str, str]]
    answer_tokens: int | None = None


def ask(corpus: Corpus, recipe: str, tokenize: Tokenize, room: int, wanted: int) -> Asked:
    """Prompts that a recipe makes of a corpus.

    Args:
        corpus: read whole.
        recipe: a name of `RECIPES`.
        tokenize: ids of a user's message, or of several turns.
        room: most tokens that leave an answer its own in the model's context.
        wanted: answer tokens; there are prompts for as many of `LEAST_ANSWER` tokens at least.

    Raises:
        SpecretError: an unknown recipe, or not one prompt that is short enough.
    """
    most = min(PROMPT_TOKENS, room)
    found = questions(recipe, corpus)[: max(LEAST_PROMPTS, wanted // LEAST_ANSWER)]
    ids = [tokenize(question.messages) for question in found]
    kept = [i for i in range(len(ids)) if 0 < len(ids[i]) <= most]
    if not kept:
        raise SpecretError(
            f"corpus {corpus.spec!r} gives no prompt of 1 to {most} tokens by the recipe "
            f"{recipe} ({len(ids)} tried)",
            "try another --recipe or --corpus, or a smaller --answer-tokens",
        )
    long = [question.name for question, row in zip(found, ids, strict=True) if len(row) > most]
    return Asked(
        corpus.spec,
        corpus.identity,
        [ids[i] for i in kept],
        [(found[i].name, found[i].licence) for i in kept],
        [*corpus.skipped, *((name, f"a prompt over {most} tokens") for name in long)],
    )


def asked_before(path: Path, reading: Reading, *, refuse: bool) -> tuple[Asked, list[Trace]]:
    """The prompts of recorded answers, and those answers.

    Args:
        path: a JSONL file of traces.
        reading: how its lines become ids.
        refuse: whether one line of no use refuses the file; otherwise it is skipped by name.

    Raises:
        SpecretError: no usable line, or one of no use where that refuses the file.
    """
    traces, skipped = read_traces(path, reading)
    if skipped and refuse:
        raise SpecretError(
            f"traces {path}: {len(skipped)} of {len(skipped) + len(traces)} lines of no use"
            f"{shown(skipped)}",
            "mend them, or leave them out: --bad-lines skip",
        )
    if not traces:
        raise SpecretError(
            f"traces {path}: no usable line{shown(skipped)}",
            "expected JSON objects with prompt_tokens and answer_tokens, messages, prompt and "
            "answer, or text",
        )
    asked = Asked(
        path.name,
        digest(path),
        [trace.prompt for trace in traces],
        [(trace.name, trace.licence) for trace in traces],
        skipped,
        sum(len(trace.answer) for trace in traces),
    )
    return asked, traces
