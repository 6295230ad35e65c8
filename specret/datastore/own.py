"""A datastore of the target's own answers, built as planned.

In: an `OwnPlan`, the `Writer` it was made with, the fingerprint of the model. Out: a finished
folder. One pass of the model writes everything: the answers are the documents, their states the
keys. Knows no model; what a killed build had finished is not done again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specret.datastore.answers import FOLDER, Shard, read_shard, write_answers
from specret.datastore.build import Built, Keys, build_stages, write_index, write_suffix
from specret.datastore.durable import Marker, Progress, read_marker
from specret.datastore.manifest import FEATURES, shard_role
from specret.datastore.own_plan import OwnPlan
from specret.datastore.projection import Floats
from specret.datastore.states import AHEAD
from specret.datastore.tokens import write_documents
from specret.protocols import Writer
from specret.types import Fingerprint, SpecretError


def build_own(
    own: OwnPlan,
    writer: Writer,
    fingerprint: Fingerprint,
    progress: Progress = lambda stage, done, total: None,
) -> Built:
    """Build what was planned, or go on where a killed build of the same plan stopped.

    Args:
        own: from `plan_own`.
        writer: the one that the plan was made with.
        fingerprint: of the model.
        progress: called with stage (answers, suffix, index), done, total.

    Raises:
        SpecretError: another build is at work in the folder, too many states that are not
            finite, or answers too short for a single key.
    """
    plan, folder, key = own.plan, own.plan.folder, own.plan.parameters["answers_key"]

    def stages() -> list[Marker]:
        for name in (FOLDER, "dense", *([FEATURES] if writer.keeper is not None else [])):
            (folder / name).mkdir(exist_ok=True)
        markers = write_answers(folder, key, own.asked.prompts, writer, own.how, progress)
        shards = [read_shard(folder, marker) for marker in markers]
        text = _write_text(own, shards, fingerprint)
        done = [text, write_suffix(plan, text, fingerprint, progress)]
        if own.how.components:
            done.append(_write_dense(own, markers, shards, text, progress))
        files = {
            shard_role(kind, i): marker.files[kind]
            for i, marker in enumerate(markers)
            for kind in (FOLDER, FEATURES)
            if kind in marker.files
        }
        return [*done, Marker(files, {"prompts": text.facts["documents"]})]

    return build_stages(plan, fingerprint, stages)


def _write_text(own: OwnPlan, shards: Sequence[Shard], fingerprint: Fingerprint) -> Marker:
    """The token files: one document an answer, cut where enough tokens are there."""
    folder, name = own.plan.folder, f"{own.plan.parameters['sparse_key']}.tokens"
    if done := read_marker(folder, name):
        return done
    prompts = [ids for shard in shards for ids in shard.prompts]
    answers = [ids for shard in shards for ids in shard.answers]
    before, room = _sizes(own, shards)
    kept = np.flatnonzero(room).tolist()
    ids = [np.concatenate([prompts[i][: before[i]], answers[i][: room[i]]]) for i in kept]
    origins = [own.asked.origins[i] for i in kept]
    return write_documents(folder, name, ids, origins, own.asked.skipped, fingerprint.vocab_size)


def _sizes(own: OwnPlan, shards: Sequence[Shard]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By prompt number: tokens of the prompt and of the answer that are stored."""
    prompts = np.array([len(ids) for shard in shards for ids in shard.prompts], np.int64)
    answers = np.array([len(ids) for shard in shards for ids in shard.answers], np.int64)
    room = np.diff(np.minimum(np.cumsum(answers), own.options.generate_tokens), prepend=0)
    return np.where(room > 0, prompts * own.options.with_prompts, 0), room


def _write_dense(
    own: OwnPlan,
    markers: Sequence[Marker],
    shards: Sequence[Shard],
    text: Marker,
    progress: Progress,
) -> Marker:
    folder, name = own.plan.folder, f"{own.plan.parameters['dense_key']}.dense"
    if done := read_marker(folder, name):
        return done
    tokens = np.memmap(folder / text.files["tokens"].path, f"<u{text.facts['width']}", "r")
    blocks = list(_blocks(own, shards))
    positions = np.concatenate([part for _, part in blocks])
    if not len(positions):
        raise SpecretError(
            f"none of the {text.facts['documents']} answers has three tokens, so there is no "
            "state to keep",
            "build without a dense side: --dense-tokens 0",
        )
    refused = sum(marker.facts["refused"] for marker in markers)
    keys = Keys(positions, [block for block in blocks if len(block[1])], refused)
    return write_index(folder, name, tokens, keys, markers[0].files["projection"], progress)


def _blocks(own: OwnPlan, shards: Sequence[Shard]) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
    """Keys and positions, shard by shard, of stored tokens with `AHEAD` more after them."""
    before, room = _sizes(own, shards)
    first = np.cumsum(before + room) - room
    start, left = 0, own.options.dense_tokens
    for shard in shards:
        answer = shard.answer + start
        kept = np.flatnonzero(shard.token + AHEAD < room[answer])[:left]
        yield shard.keys[kept], first[answer[kept]] + shard.token[kept]
        start += len(shard.answers)
        left -= len(kept)
