"""Files that are either whole and marked, or not there: what a killed build leaves behind.

In: bytes or finished temporary files. Out: files renamed into place and a marker written last.
Knows nothing of what the files mean.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TEMPORARY = ".partial"
"""Suffix of a file that is still being written."""

Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`: called now and then while a stage runs."""

REBUILD = "build the store again: specret build-index, as `specret inspect` says it was built"
"""The cure for a file of a store that cannot be read though its digest is right."""

MARKERS = "_done"
BLOCK = 1 << 20


def counter(progress: Progress, stage: str, before: int, total: int) -> Callable[[int], None]:
    """What a shard reports its own progress to, after `before` of `total` in earlier ones."""
    return lambda done: progress(stage, min(before + done, total), total)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a store: where it lies and what it must hold.

    Attributes:
        path: relative to the store, with forward slashes.
        bytes: its size.
        sha256: its digest in hex.
        rows: records inside (tokens, documents, keys).
    """

    path: str
    bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class Marker:
    """What a finished stage of a build left: its files by role, and figures about them."""

    files: Mapping[str, FileEntry]
    facts: Mapping[str, Any]


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one move: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + TEMPORARY)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def settle(temporary: Path, final: Path) -> None:
    """Give a finished temporary file of the same folder its name."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, final)
    sync_folder(final.parent)


def digest(path: Path) -> str:
    """sha256 of a file in hex, read in blocks."""
    total = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            total.update(block)
    return total.hexdigest()


def entry(folder: Path, path: Path, rows: int) -> FileEntry:
    """The entry of a file that lies in the store at `folder`."""
    relative = path.relative_to(folder).as_posix()
    return FileEntry(relative, path.stat().st_size, digest(path), rows)


def write_entry(folder: Path, path: Path, data: bytes, rows: int) -> FileEntry:
    """Write a file of the store at `folder` whole, and its entry."""
    write_whole(path, data)
    return entry(folder, path, rows)


def canonical(value: Any) -> bytes:
    """JSON bytes of a value: the same value always gives the same bytes."""
    return (json.dumps(value, sort_keys=True, indent=1) + "\n").encode()


def marker_path(folder: Path, name: str) -> Path:
    """Where the marker of a stage lies."""
    return folder / MARKERS / f"{name}.json"


def write_marker(
    folder: Path, name: str, files: Mapping[str, FileEntry], facts: Mapping[str, Any]
) -> Marker:
    """Say that a stage is finished. Its files must already be in place."""
    listed = {role: asdict(file) for role, file in files.items()}
    write_whole(marker_path(folder, name), canonical({"files": listed, "facts": facts}))
    return Marker(files, facts)


def read_marker(folder: Path, name: str) -> Marker | None:
    """The marker of a stage, or None where it is not there or its files are not as it says."""
    path = marker_path(folder, name)
    if not path.is_file():
        return None
    read = json.loads(path.read_bytes())
    files = {role: FileEntry(**file) for role, file in read["files"].items()}
    for file in files.values():
        there = folder / file.path
        if not there.is_file() or there.stat().st_size != file.bytes:
            return None
        if digest(there) != file.sha256:
            return None
    return Marker(files, read["facts"])
