"""What answering prompts will do and take, before it is done.

In: an `Asked`, a `Writer`, the fingerprint of the model. Out: an `OwnPlan`
that freezes every size which decides the bytes of the store. Writes nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specret.datastore.answers import Answering, shard_prompts
from specret.datastore.asking import Asked
from specret.datastore.manifest import FORMAT_VERSION
from specret.datastore.plan import (
    INDEX_BYTES,
    SUFFIX_BYTES,
    SUFFIX_SECONDS,
    Plan,
    check_folder,
    is_finished,
    key_of,
)
from specret.datastore.projection import COMPONENTS
from specret.datastore.tokens import token_dtype
from specret.protocols import Writer
from specret.types import Fingerprint, TokenArray

CACHE_BYTES = 2 << 30
"""Keys and values of all texts under way; decides how many there are."""

MOST_ROWS = 32
"""More texts at once bring little on a CPU, whose passes are bound by arithmetic by then."""

HEADROOM = 1.75
"""Of the allocator over what is held; 1.6 was measured (glibc, 250,000 tokens, peak of the run)."""

PACKING = 3
"""Copies of a shard's features while they are packed."""

SHARD_BYTES = 4 + 2 * COMPONENTS + 16
"""Of an answer token in its shard: id, key, place."""


@dataclass(frozen=True, slots=True)
class OwnOptions:
    """What a user can choose.

    Attributes:
        recipe: how prompts are made of the corpus, a name of `RECIPES`; "recorded": they are not.
        generate_tokens: answer tokens of the store, exactly, where there are prompts enough.
        answer_tokens: most tokens of one answer.
        temperature: 0 is greedy.
        seed: prompt number i is answered with seed + i.
        dense_tokens: most tokens that get a key; 0: a store without a dense side.
        with_prompts: whether the prompts are indexed too, before their answers.
    """

    recipe: str = "code"
    generate_tokens: int = 250_000
    answer_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    dense_tokens: int = 300_000
    with_prompts: bool = False


@dataclass(frozen=True, slots=True)
class OwnPlan:
    """What a build will do.

    Attributes:
        plan: for people and for the manifest.
        asked: the prompts.
        how: the frozen sizes.
        options: what was chosen.
    """

    plan: Plan
    asked: Asked
    how: Answering
    options: OwnOptions


def plan_own(
    asked: Asked,
    writer: Writer,
    fingerprint: Fingerprint,
    folder: str | Path,
    options: OwnOptions,
) -> OwnPlan:
    """Say what answering will take; a few passes of the model are timed.

    Args:
        asked: the prompts, at least one.
        writer: of the model, with the options' temperature, seed and answer length.
        fingerprint: of the model.
        folder: where the store goes.
        options: what was chosen.

    Raises:
        SpecretError: the folder's place is taken by a file.
    """
    check_folder(Path(folder))
    capacity = max(map(len, asked.prompts)) + options.answer_tokens
    text_bytes = max(1, capacity * writer.bytes_a_token)
    rows = int(np.clip(CACHE_BYTES // text_bytes, 1, MOST_ROWS))
    how = Answering(
        options.generate_tokens,
        rows,
        shard_prompts(rows, writer.width, options.answer_tokens, options.generate_tokens),
        capacity,
        COMPONENTS if options.dense_tokens else 0,
    )
    parameters = _parameters(asked, fingerprint, options, how, writer.keeper is not None)
    most = asked.answer_tokens or len(asked.prompts) * options.answer_tokens
    tokens = min(options.generate_tokens, most)
    keys = min(options.dense_tokens, tokens)
    width = token_dtype(fingerprint.vocab_size).itemsize
    raw = how.shard_prompts * options.answer_tokens * writer.width * 4
    kept = 0 if writer.keeper is None else writer.keeper.row_bytes
    typical = float(np.mean([len(ids) for ids in asked.prompts])) + options.answer_tokens
    texts = tokens / options.answer_tokens
    plan = Plan(
        folder=Path(folder),
        parameters=parameters,
        options=None,
        documents=len(asked.prompts),
        tokens=tokens,
        keys=keys,
        seconds={
            "answers": _seconds(writer, asked.prompts, tokens, how, options),
            "suffix": tokens * SUFFIX_SECONDS,
        },
        bytes=tokens * (width + SUFFIX_BYTES + SHARD_BYTES)
        + keys * (COMPONENTS + INDEX_BYTES)
        + int(kept * texts * typical),
        finished=is_finished(Path(folder), parameters),
        memory=int(
            HEADROOM
            * (
                (rows + 1) * text_bytes
                + 2 * raw * bool(how.components)
                + PACKING * kept * how.shard_prompts * typical
            )
        ),
    )
    return OwnPlan(plan, asked, how, options)


def _parameters(
    asked: Asked, fingerprint: Fingerprint, options: OwnOptions, how: Answering, features: bool
) -> dict[str, Any]:
    """Everything that decides the bytes of the store, and the keys that name its files.

    The answers do not depend on how many of them are wanted: a larger store of the same kind
    begins with the shards of the smaller one. One that keeps features is of another kind.
    """
    chosen = asdict(options)
    of_store = {
        name: chosen.pop(name) for name in ("generate_tokens", "dense_tokens", "with_prompts")
    }
    answers = {
        **chosen,
        "rows": how.rows,
        "shard_prompts": how.shard_prompts,
        "components": how.components,
        "format": FORMAT_VERSION,
        "corpus": asked.corpus,
        "identity": asked.identity,
    }
    if features:
        answers["features"] = True
    answers_key = key_of({**answers, **asdict(fingerprint)})
    sparse_key = key_of({"of": answers_key, **of_store})
    return {
        **answers,
        **of_store,
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
