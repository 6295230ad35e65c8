"""Build a datastore: plan, tokens, suffix index, keys, dense index, manifest.

In: a corpus, a tokenizer, an `Encoder`, the fingerprint of their model. Out: a finished folder.
Knows no model and no draft, and prints nothing. Every stage is marked when it is finished, so a
killed build goes on where it stopped and ends byte-identical; until the manifest is swapped at
the end, an older store in the same folder stays as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from specret._suffix import build_suffix
from specret.datastore.corpus import Corpus
from specret.datastore.durable import (
    MARKERS,
    TEMPORARY,
    FileEntry,
    Marker,
    Progress,
    entry,
    marker_path,
    read_marker,
    settle,
    write_marker,
)
from specret.datastore.manifest import FOLDERS, OF_A_BUILD, SHARDS, Manifest, open_manifest
from specret.datastore.plan import BuildOptions, Plan, is_finished
from specret.datastore.projection import Floats
from specret.datastore.states import Extraction, choose_windows, read_keys, write_keys
from specret.datastore.tokens import write_tokens
from specret.protocols import Encoder, Tokenizer
from specret.types import Fingerprint, SpecretError, TokenArray

LOCK = "_lock"


@dataclass(frozen=True, slots=True)
class Built:
    """A finished store; `fresh` is False where it was there already."""

    manifest: Manifest
    fresh: bool


def build_store(
    plan: Plan,
    corpus: Corpus,
    tokenizer: Tokenizer,
    encoder: Encoder | None,
    fingerprint: Fingerprint,
    progress: Progress = lambda stage, done, total: None,
) -> Built:
    """Build what was planned, or go on where a killed build of the same plan stopped.

    Args:
        plan: from `plan_build`, of the same corpus and fingerprint.
        corpus: what to build from.
        tokenizer: of the model.
        encoder: of the model; None only where the plan has no keys.
        fingerprint: of the model.
        progress: called with stage (tokens, suffix, states, index), done, total.

    Raises:
        SpecretError: another build is at work in the folder, nothing usable in the corpus, too
            many states that are not finite, or a corpus too short for a single key.
    """
    options = plan.options
    assert options is not None, "a plan of own answers"

    def stages() -> list[Marker]:
        text = write_tokens(
            plan.folder,
            plan.parameters["sparse_key"],
            corpus,
            tokenizer,
            vocab_size=fingerprint.vocab_size,
            max_tokens=options.max_tokens,
            expected=plan.tokens or 0,
            progress=progress,
        )
        done = [text, write_suffix(plan, text, fingerprint, progress)]
        if plan.parameters["dense_key"] is not None:
            assert encoder is not None, "keys need an encoder"
            done.append(_write_dense(plan, options, text, encoder, progress))
        return done

    return build_stages(plan, fingerprint, stages)


def build_stages(
    plan: Plan, fingerprint: Fingerprint, stages: Callable[[], Sequence[Marker]]
) -> Built:
    """Run the stages of a plan unless it is finished; their files become the store's state.

    Raises:
        SpecretError: another build is at work in the folder, and what the stages raise.
    """
    folder = plan.folder
    with _alone(folder):
        if is_finished(folder, plan.parameters):
            return Built(open_manifest(folder), False)
        done = stages()
        files = {role: file for stage in done for role, file in stage.files.items()}
        counts = {name: value for stage in done for name, value in stage.facts.items()}
        manifest = Manifest(fingerprint, plan.parameters, counts, files)
        manifest.save(folder)
        _clean(folder, manifest)
    return Built(manifest, True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else builds in the folder, which is made where it is missing, meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as fault:
        raise SpecretError(
            f"another build is at work in {folder}",
            "wait until it has finished, or give another folder with --out",
        ) from fault


def write_suffix(plan: Plan, text: Marker, fingerprint: Fingerprint, progress: Progress) -> Marker:
    """The suffix index over the token files that `text` marks."""
    folder, name = plan.folder, f"{plan.parameters['sparse_key']}.suffix"
    if done := read_marker(folder, name):
        return done
    tokens = text.facts["tokens"]
    progress("suffix", 0, tokens)
    final = folder / "suffix" / name
    final.parent.mkdir(exist_ok=True)
    temporary = final.with_name(final.name + TEMPORARY)
    build_suffix(
        str(folder / text.files["tokens"].path),
        text.facts["width"],
        np.fromfile(folder / text.files["offsets"].path, "<u8"),
        fingerprint.vocab_size,
        str(temporary),
    )
    settle(temporary, final)
    progress("suffix", tokens, tokens)
    return write_marker(folder, name, {"suffix": entry(folder, final, tokens)}, {})


def _write_dense(
    plan: Plan, options: BuildOptions, text: Marker, encoder: Encoder, progress: Progress
) -> Marker:
    folder, key = plan.folder, plan.parameters["dense_key"]
    name = f"{key}.dense"
    if done := read_marker(folder, name):
        return done
    tokens = np.memmap(folder / text.files["tokens"].path, f"<u{text.facts['width']}", "r")
    offsets = np.fromfile(folder / text.files["offsets"].path, "<u8")
    windows = choose_windows(tokens, offsets, window=options.window, wanted=options.dense_tokens)
    if not windows.keys:
        raise SpecretError(
            f"no document of the corpus ({len(tokens)} tokens) has three tokens, so there is no "
            "state to keep",
            "build without a dense side: --dense-tokens 0",
        )
    how = Extraction(options.batch_tokens, options.shard_keys, options.components)
    (folder / "dense").mkdir(exist_ok=True)
    shards = write_keys(folder, key, tokens, windows, encoder, how, progress)
    refused = sum(shard.facts["refused"] for shard in shards)
    keys = Keys(windows.positions(), (read_keys(folder, shard) for shard in shards), refused)
    return write_index(folder, name, tokens, keys, shards[0].files["projection"], progress)


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys of a store.

    Attributes:
        positions: (K,) of every key, and perhaps of some that were refused.
        blocks: keys (n, d) with their positions (n,); the first sets the range of a dimension.
        refused: states that were not finite.
    """

    positions: NDArray[np.int64]
    blocks: Iterable[tuple[Floats, NDArray[np.int64]]]
    refused: int


def write_index(
    folder: Path,
    name: str,
    tokens: NDArray[Any],
    keys: Keys,
    projection: FileEntry,
    progress: Progress,
) -> Marker:
    """The dense index of all keys; stage `name` begins with the build's key."""
    from specret.datastore.vectors import DenseIndex

    done = 0

    def blocks() -> Iterator[tuple[Floats, TokenArray, NDArray[np.int64]]]:
        nonlocal done
        for block, positions in keys.blocks:
            yield block, tokens[positions + 1].astype(np.int64), positions
            done += len(block)
            progress("index", min(done, len(keys.positions)), len(keys.positions))

    following = np.unique(tokens[keys.positions + 1]).astype(np.int64)
    index = DenseIndex.build(following, blocks())
    final = {role: folder / "dense" / f"{name[:12]}.{role}" for role in ("index", "lists")}
    partial = {role: path.with_name(path.name + TEMPORARY) for role, path in final.items()}
    index.save(partial["index"], partial["lists"])
    for role, path in partial.items():
        settle(path, final[role])
    rows = {"index": len(index), "lists": len(following)}
    files = {role: entry(folder, final[role], rows[role]) for role in final}
    files["projection"] = projection
    facts = {"keys": len(index), "dim": index.dim, "refused": keys.refused}
    return write_marker(folder, name, files, facts)


def _clean(folder: Path, manifest: Manifest) -> None:
    """Remove what builds left that is not of this store; files of other makers stay."""
    keep = {folder / file.path for file in manifest.files.values()}
    sparse, dense = manifest.parameters["sparse_key"], manifest.parameters["dense_key"]
    answers = manifest.parameters.get("answers_key")
    stages = [f"{sparse}.tokens", f"{sparse}.suffix", f"{dense}.dense"]
    stages += [f"{answers}.{role}" for role in manifest.files if SHARDS.fullmatch(role)]
    keep |= {marker_path(folder, stage) for stage in stages}
    for name in (*FOLDERS, MARKERS):
        for path in (folder / name).glob("*"):
            if path not in keep and OF_A_BUILD.match(path.name):
                path.unlink()
