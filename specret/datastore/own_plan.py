"""What answering the prompts of a corpus will do and take, before it is done.

In: questions made from a corpus, their ids, a `Writer`, the fingerprint of the model. Out: an
`OwnPlan` that freezes every size which decides the bytes of the store. Writes nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specret.datastore.answers import Answering, shard_prompts
from specret.datastore.corpus import Corpus
from specret.datastore.manifest import FORMAT_VERSION
from specret.datastore.plan import (
    INDEX_BYTES,
    SUFFIX_BYTES,
    SUFFIX_SECONDS,
    Plan,
    is_finished,
    key_of,
)
from specret.datastore.projection import COMPONENTS
from specret.datastore.recipes import Question
from specret.datastore.tokens import token_dtype
from specret.protocols import Writer
from specret.types import Fingerprint, SpecretError, TokenArray

CACHE_BYTES = 2 << 30
"""Keys and values of all texts under way; decides how many there are."""

MOST_ROWS = 32
"""More texts at once bring little on a CPU, whose passes are bound by arithmetic by then."""

PROMPT_TOKENS = 512
"""Longer prompts are left out: one of them would need the room of several."""

SHARD_BYTES = 4 + 2 * COMPONENTS + 16
"""Of an answer token in its shard: id, key, place."""


@dataclass(frozen=True, slots=True)
class OwnOptions:
    """What a user can choose.

    Attributes:
        recipe: how prompts are made of the corpus, a name of `RECIPES`.
        generate_tokens: answer tokens of the store, exactly, where there are prompts enough.
        answer_tokens: most tokens of one answer.
        temperature: 0 is greedy.
        seed: prompt number i is answered with seed + i.
        dense_tokens: most tokens that get a key; 0: a store without a dense side.
        with_prompts: whether the prompts are indexed too, before their answers.
    """

    recipe: str = "code"
    generate_tokens: int = 250_000
    answer_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    dense_tokens: int = 300_000
    with_prompts: bool = False


@dataclass(frozen=True, slots=True)
class OwnPlan:
    """What a build will do.

    Attributes:
        plan: for people and for the manifest.
        questions: prompts in order, with where they are from.
        prompts: their ids.
        skipped: (name, reason) of what gives no prompt.
        how: the frozen sizes.
        options: what was chosen.
    """

    plan: Plan
    questions: Sequence[Question]
    prompts: Sequence[TokenArray]
    skipped: Sequence[tuple[str, str]]
    how: Answering
    options: OwnOptions


def plan_own(
    corpus: Corpus,
    questions: Sequence[Question],
    prompts: Sequence[TokenArray],
    writer: Writer,
    context_len: int,
    fingerprint: Fingerprint,
    folder: str | Path,
    options: OwnOptions,
) -> OwnPlan:
    """Say what answering will take; a few passes of the model are timed.

    Args:
        corpus: what the questions were made of, just read.
        questions: all that it gives.
        prompts: ids (T,) of each.
        writer: of the model, with the options' temperature, seed and answer length.
        context_len: positions that the model can hold.
        fingerprint: of the model.
        folder: where the store goes.
        options: what was chosen.

    Raises:
        SpecretError: no prompt that is short enough.
    """
    most = min(PROMPT_TOKENS, context_len - options.answer_tokens)
    fits = [i for i, ids in enumerate(prompts) if 0 < len(ids) <= most]
    if not fits:
        raise SpecretError(
            f"corpus {corpus.spec!r} gives no prompt of 1 to {most} tokens by the recipe "
            f"{options.recipe} ({len(prompts)} in all)",
            "try another --recipe or --corpus, or a smaller --answer-tokens",
        )
    long = [questions[i].name for i in range(len(prompts)) if len(prompts[i]) > most]
    skipped = [*corpus.skipped, *((name, f"a prompt over {most} tokens") for name in long)]
    kept, chosen = [prompts[i] for i in fits], [questions[i] for i in fits]
    capacity = max(map(len, kept)) + options.answer_tokens
    rows = int(np.clip(CACHE_BYTES // (capacity * writer.bytes_a_token), 1, MOST_ROWS))
    how = Answering(
        options.generate_tokens,
        rows,
        shard_prompts(rows, writer.width, options.answer_tokens, options.generate_tokens),
        capacity,
        COMPONENTS if options.dense_tokens else 0,
    )
    parameters = _parameters(corpus, fingerprint, options, how)
    tokens = min(options.generate_tokens, len(kept) * options.answer_tokens)
    keys = min(options.dense_tokens, tokens)
    width = token_dtype(fingerprint.vocab_size).itemsize
    raw = how.shard_prompts * options.answer_tokens * writer.width * 4
    plan = Plan(
        folder=Path(folder),
        parameters=parameters,
        options=None,
        documents=len(kept),
        tokens=tokens,
        keys=keys,
        seconds={
            "answers": _seconds(writer, kept, tokens, how, options),
            "suffix": tokens * SUFFIX_SECONDS,
        },
        bytes=tokens * (width + SUFFIX_BYTES + SHARD_BYTES) + keys * (COMPONENTS + INDEX_BYTES),
        finished=is_finished(Path(folder), parameters),
        memory=(rows + 1) * capacity * writer.bytes_a_token + 2 * raw * bool(how.components),
    )
    return OwnPlan(plan, chosen, kept, skipped, how, options)


def _parameters(
    corpus: Corpus, fingerprint: Fingerprint, options: OwnOptions, how: Answering
) -> dict[str, Any]:
    """Everything that decides the bytes of the store, and the keys that name its files.

    The answers do not depend on how many of them are wanted: a larger store of the same kind
    begins with the shards of the smaller one.
    """
    chosen = asdict(options)
    of_store = {
        name: chosen.pop(name) for name in ("generate_tokens", "dense_tokens", "with_prompts")
    }
    sizes = {"rows": how.rows, "shard_prompts": how.shard_prompts, "components": how.components}
    answers = {
        **chosen,
        **sizes,
        **asdict(fingerprint),
        "format": FORMAT_VERSION,
        "corpus": corpus.spec,
        "identity": corpus.identity,
    }
    answers_key = key_of(answers)
    sparse_key = key_of({"of": answers_key, **of_store})
    return {
        **chosen,
        **of_store,
        **sizes,
        "format": FORMAT_VERSION,
        "corpus": corpus.spec,
        "identity": corpus.identity,
        "answers_key": answers_key,
        "sparse_key": sparse_key,
        "dense_key": key_of({"dense": sparse_key}) if options.dense_tokens else None,
    }


def _seconds(
    writer: Writer,
    prompts: Sequence[TokenArray],
    tokens: int,
    how: Answering,
    options: OwnOptions,
) -> float:
    """About: every answer as long as it may be, and the batch always full."""
    typical = int(np.median([len(ids) for ids in prompts]))
    begin, step = writer.seconds(how.rows, typical)
    return tokens * (step / how.rows + begin / options.answer_tokens)
