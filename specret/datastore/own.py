"""A datastore of the target's own answers, built as planned.

In: an `OwnPlan`, the `Writer` it was made with, the fingerprint of the model. Out: a finished
folder. One pass of the model writes everything: the answers are the documents, their states the
keys. Knows no model; what a killed build had finished is not done again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specret.datastore.answers import Shard, read_shard, write_answers
from specret.datastore.build import Built, Keys, alone, finish, write_index, write_suffix
from specret.datastore.durable import Marker, Progress, read_marker
from specret.datastore.manifest import open_manifest
from specret.datastore.own_plan import OwnPlan
from specret.datastore.plan import is_finished
from specret.datastore.projection import Floats
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
    with alone(folder):
        if is_finished(folder, plan.parameters):
            return Built(open_manifest(folder), False)
        for name in ("answers", "dense"):
            (folder / name).mkdir(exist_ok=True)
        markers = write_answers(folder, key, own.asked.prompts, writer, own.how, progress)
        text = _write_text(own, markers, fingerprint)
        stages = [text, write_suffix(plan, text, fingerprint, progress)]
        if own.how.components:
            stages.append(_write_dense(own, markers, text, progress))
        files = {f"answers-{i:05d}": m.files["answers"] for i, m in enumerate(markers)}
        return finish(
            plan, [*stages, Marker(files, {"prompts": text.facts["documents"]})], fingerprint
        )


def _write_text(own: OwnPlan, markers: Sequence[Marker], fingerprint: Fingerprint) -> Marker:
    """The token files: one document an answer, cut where enough tokens are there."""
    folder, name = own.plan.folder, f"{own.plan.parameters['sparse_key']}.tokens"
    if done := read_marker(folder, name):
        return done
    ids, names = [], []
    for number, _, document in _documents(own, markers):
        ids.append(document)
        names.append(own.asked.origins[number])
    return write_documents(folder, name, ids, names, own.asked.skipped, fingerprint.vocab_size)


def _documents(
    own: OwnPlan, markers: Sequence[Marker]
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """(prompt number, tokens of the prompt in it, ids) of every document, in order."""
    left, number = own.options.generate_tokens, 0
    for marker in markers:
        shard = read_shard(own.plan.folder, marker)
        for prompt, answer in zip(shard.prompts, shard.answers, strict=True):
            kept = answer[:left].astype(np.int64)
            left -= len(kept)
            if len(kept):
                before = prompt.astype(np.int64) if own.options.with_prompts else kept[:0]
                yield number, len(before), np.concatenate([before, kept])
            number += 1


def _write_dense(
    own: OwnPlan, markers: Sequence[Marker], text: Marker, progress: Progress
) -> Marker:
    folder, name = own.plan.folder, f"{own.plan.parameters['dense_key']}.dense"
    if done := read_marker(folder, name):
        return done
    tokens = np.memmap(folder / text.files["tokens"].path, f"<u{text.facts['width']}", "r")
    first, room = _places(own, markers)
    blocks = list(_blocks(own, (read_shard(folder, m) for m in markers), first, room))
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


def _places(own: OwnPlan, markers: Sequence[Marker]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By prompt number: where its answer begins in the token file, and how much of it is kept."""
    count = sum(marker.facts["answers"] for marker in markers)
    first, room = np.zeros(count, np.int64), np.zeros(count, np.int64)
    at = 0
    for number, before, document in _documents(own, markers):
        first[number], room[number] = at + before, len(document) - before
        at += len(document)
    return first, room


def _blocks(
    own: OwnPlan,
    shards: Iterator[Shard],
    first: NDArray[np.int64],
    room: NDArray[np.int64],
) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
    """Keys and positions, shard by shard, of tokens that are kept with two more after them."""
    start, left = 0, own.options.dense_tokens
    for shard in shards:
        answer = shard.answer + start
        kept = np.flatnonzero(shard.token + 2 < room[answer])[:left]
        yield shard.keys[kept], first[answer[kept]] + shard.token[kept]
        start += len(shard.answers)
        left -= len(kept)
