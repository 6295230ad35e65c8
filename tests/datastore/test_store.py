"""A store is opened only for the model it fits, and only if every byte is as it was written."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from small_stores import FINGERPRINT, build, prose, write_files

from specret.datastore.manifest import open_manifest, verify
from specret.datastore.store import open_store
from specret.types import SpecretError


@pytest.fixture(scope="module", name="made")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    texts = [*prose(5, 60), ""]
    build(write_files(folder / "in", texts), folder / "store")
    return folder / "store"


@pytest.fixture(name="folder")
def _folder(made: Path, tmp_path: Path) -> Path:
    return copytree(made, tmp_path / "copy")


def test_an_open_store_holds_what_was_built(made: Path) -> None:
    store = open_store(made, FINGERPRINT)
    texts = [text.encode() for text in prose(5, 60)]
    assert bytes(store.tokens.tolist()) == b"".join(texts)
    assert store.offsets.tolist() == np.cumsum([0, *map(len, texts)]).tolist()
    assert len(store.suffix) == len(store.tokens)
    assert store.dense is not None
    assert store.projection is not None
    assert len(store.dense) == sum(len(t) - 2 for t in texts)
    assert store.skipped() == [("0005.txt", "empty")]
    assert store.manifest == open_manifest(made)


def test_every_position_is_told_by_its_document(made: Path) -> None:
    store = open_store(made, FINGERPRINT)
    second = int(store.offsets[1])
    assert store.document_of(0) == store.document_of(second - 1) == "0000.txt"
    assert store.document_of(second) == "0001.txt"
    assert store.document_of(len(store.tokens) - 1) == "0004.txt"
    length = int(store.offsets[2]) - second
    assert store.describe(second + 4) == f"0001.txt, token 5 of {length}"


def test_the_licence_is_told_where_it_is_known(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "abcdef", "license": "MIT"}\n')
    build(tmp_path / "rows.jsonl", tmp_path / "store")
    store = open_store(tmp_path / "store", FINGERPRINT)
    assert store.describe(2) == "rows.jsonl:1, token 3 of 6 (MIT)"


def edit_manifest(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        read = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(read | changes))

    return damage


def edit_file(role: str, **changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        read = json.loads((folder / "manifest.json").read_text())
        read["files"][role] |= changes
        (folder / "manifest.json").write_text(json.dumps(read))

    return damage


def path_of(folder: Path, role: str) -> Path:
    return folder / open_manifest(folder).files[role].path


def link_away(folder: Path) -> None:
    path = path_of(folder, "tokens")
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")


def drop_role(folder: Path) -> None:
    read = json.loads((folder / "manifest.json").read_text())
    del read["files"]["lists"]
    (folder / "manifest.json").write_text(json.dumps(read))


BROKEN = {
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "no datastore"),
    "a manifest cut short": (
        lambda f: (f / "manifest.json").write_text((f / "manifest.json").read_text()[:-50]),
        "damaged",
    ),
    "a manifest that is no object": (lambda f: (f / "manifest.json").write_text("[]"), "damaged"),
    "an empty manifest": (lambda f: (f / "manifest.json").write_text("{}"), "damaged"),
    "a newer format": (edit_manifest(format_version=2), "format version 2"),
    "an unknown entry": (edit_manifest(more=1), "damaged"),
    "a fingerprint that is none": (edit_manifest(fingerprint={"model_id": "x"}), "damaged"),
    "counts that are none": (edit_manifest(counts={"tokens": "many"}), "damaged"),
    "a path that climbs out": (edit_file("tokens", path="tokens/../../x"), "out of the store"),
    "an absolute path": (edit_file("tokens", path="/etc/passwd"), "out of the store"),
    "a path with backslashes": (edit_file("tokens", path="tokens\\x"), "out of the store"),
    "a path with a drive": (edit_file("tokens", path="c:/tokens"), "out of the store"),
    "another folder": (edit_file("tokens", path="other/x"), "out of the store"),
    "a role that is missing": (drop_role, "roles"),
    "a link in place of a file": (link_away, "missing or a link"),
    "a file that is not listed": (
        lambda f: (f / "tokens" / "stray.bin").write_bytes(b"x"),
        "not listed",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_store_is_refused_with_a_cure(folder: Path, case: str) -> None:
    damage, message = BROKEN[case]
    damage(folder)
    with pytest.raises(SpecretError, match=message) as fault:
        open_store(folder, FINGERPRINT)
    assert fault.value.hint


ROLES = ["tokens", "offsets", "documents", "skipped", "suffix", "projection", "index", "lists"]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGE = {
    "flipped": (flip, "sha256"),
    "cut short": (lambda data: data[:-1], "bytes, expected"),
    "longer": (lambda data: data + b"\0", "bytes, expected"),
    "missing": (None, "missing"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("role", ROLES)
def test_a_file_that_is_not_as_written_is_refused_by_name(
    folder: Path, role: str, kind: str
) -> None:
    change, message = DAMAGE[kind]
    path = path_of(folder, role)
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SpecretError, match=message) as fault:
        open_store(folder, FINGERPRINT)
    assert path.name in str(fault.value)
    assert "build" in fault.value.hint


def test_files_of_another_build_may_lie_beside(folder: Path) -> None:
    (folder / "tokens" / "fedcba987654.tokens.partial").write_bytes(b"half")
    verify(folder, open_manifest(folder))


def test_digests_can_be_left_out(folder: Path) -> None:
    path = path_of(folder, "documents")
    path.write_bytes(flip(path.read_bytes()))
    open_store(folder, FINGERPRINT, digests=False)


def test_another_tokenizer_is_refused_and_both_are_named(made: Path) -> None:
    used = replace(FINGERPRINT, model_id="other", tokenizer="c" * 64)
    with pytest.raises(SpecretError, match=r"toy.*bbbbbbbbbbbb.*other.*cccccccccccc") as fault:
        open_store(made, used)
    assert fault.value.hint.startswith("build one for this model: specret build-index")


OTHERS = {
    "weights of the same width": {"weights": "d" * 64},
    "another width": {"weights": "d" * 64, "hidden_size": 96},
    "another layer": {"layer": 3},
    "before the final norm": {"final_norm": False},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_states_are_refused_for_dense_and_warned_of_for_sparse(made: Path, case: str) -> None:
    used = replace(FINGERPRINT, model_id="other", **OTHERS[case])
    with pytest.warns(UserWarning, match=r"toy.*other.*sparse side can be used") as seen:
        store = open_store(made, used)
    assert len(seen) == 1
    context = store.tokens[:8].astype(np.int64)
    assert len(store.suffix.draft(context, max_nodes=4, max_depth=4).tokens)
    for side in ("dense", "projection"):
        with pytest.raises(SpecretError, match=r"toy.*other") as fault:
            getattr(store, side)
        assert fault.value.hint.startswith("build one for this model: specret build-index")


def test_another_dtype_is_warned_of(made: Path) -> None:
    with pytest.warns(UserWarning, match=r"float32.*bfloat16"):
        store = open_store(made, replace(FINGERPRINT, dtype="bfloat16"))
    assert store.dense is not None


def test_a_store_without_a_dense_side_has_none(tmp_path: Path) -> None:
    build(write_files(tmp_path / "in", prose(2, 10)), tmp_path / "store", dense_tokens=0)
    store = open_store(tmp_path / "store", FINGERPRINT)
    assert store.dense is None
    assert store.projection is None
    assert not store.manifest.has_dense
