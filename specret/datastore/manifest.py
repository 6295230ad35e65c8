"""The manifest: what a datastore is, for which model, and what each of its files must hold.

In: a store's folder. Out: a `Manifest`, checked before anything else is opened.
Knows the files only by size and digest. A new state of a store is a new manifest, swapped whole.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any

from specret.datastore.durable import FileEntry, canonical, digest, write_whole
from specret.types import Fingerprint, SpecretError

FORMAT_VERSION = 1
NAME = "manifest.json"
SPARSE = frozenset({"tokens", "offsets", "documents", "skipped", "suffix"})
DENSE = frozenset({"projection", "index", "lists"})
SHARDS = re.compile(r"(answers|features)-\d{5}")
"""Roles of the shards of a store of answers, see `shard_role`."""

FEATURES = "features"
"""Kind of the shards, and folder, of states that training a draft head needs."""

OWN_OPTIONS = ("recipe", "generate_tokens", "answer_tokens", "temperature", "seed")
"""Parameters of a store of the target's own answers that are options of `build-index`."""

FOLDERS = ("tokens", "suffix", "dense", "answers", FEATURES)
OF_A_BUILD = re.compile(r"[0-9a-f]{12}\.")
"""How the name of every file that a build writes begins."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a store says of itself.

    Attributes:
        fingerprint: the target and tokenizer it was built for.
        parameters: what it was built from and how; equal parameters give equal bytes.
        counts: documents, tokens, skipped, width (bytes a token) and, with a dense side, keys,
            dim, refused.
        files: by role, `SPARSE` and perhaps `DENSE` and shards of answers and of features.
    """

    fingerprint: Fingerprint
    parameters: Mapping[str, Any]
    counts: Mapping[str, int]
    files: Mapping[str, FileEntry]

    @property
    def has_dense(self) -> bool:
        """Whether keys were built too."""
        return "index" in self.files

    @property
    def bytes(self) -> int:
        """All files together."""
        return sum(file.bytes for file in self.files.values())

    def save(self, folder: Path) -> None:
        """Make this the state of the store at `folder`."""
        write_whole(folder / NAME, canonical({"format_version": FORMAT_VERSION, **asdict(self)}))


def open_manifest(folder: str | Path) -> Manifest:
    """Read and check a manifest; its files are not touched.

    Raises:
        SpecretError: no store there, another format, or a manifest that is damaged.
    """
    path = Path(folder) / NAME
    if not path.is_file():
        raise _no_store(Path(folder))
    again = _rebuild(Path(folder))
    try:
        read = json.loads(path.read_bytes())
        version = read.pop("format_version")
        if version != FORMAT_VERSION:
            raise SpecretError(
                f"{path}: format version {version}, this specret reads {FORMAT_VERSION}", again
            )
        files = {role: FileEntry(**file) for role, file in read.pop("files").items()}
        manifest = Manifest(fingerprint=Fingerprint(**read.pop("fingerprint")), files=files, **read)
        _check(manifest)
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        if isinstance(fault, SpecretError):
            raise
        raise SpecretError(f"{path} is damaged: {fault}", again) from fault
    return manifest


def shard_role(kind: str, number: int) -> str:
    """The role of a shard of answers, or of their features."""
    return f"{kind}-{number:05d}"


def verify(folder: Path, manifest: Manifest, *, digests: bool = True) -> None:
    """Check that the store's files are those of its manifest.

    Files of another build (unfinished, or just replaced) may lie beside them and are never
    opened; anything else in the store's folders is refused.

    Args:
        folder: the store.
        manifest: what it must hold.
        digests: read every byte, but for features: they are large, and no decoding reads them;
            otherwise sizes only.

    Raises:
        SpecretError: a file is missing, unlisted, a link, of another size or content.
    """
    again = _rebuild(folder, manifest)
    for role, file in manifest.files.items():
        path = folder / file.path
        if path.is_symlink() or not path.is_file():
            raise SpecretError(f"{path}: the file of {role} is missing or a link", again)
        size = path.stat().st_size
        if size != file.bytes:
            raise SpecretError(f"{path}: {size} bytes, expected {file.bytes}", again)
        if digests and not role.startswith(FEATURES) and digest(path) != file.sha256:
            raise SpecretError(f"{path}: its content is not what was written (sha256)", again)
    listed = {folder / file.path for file in manifest.files.values()}
    for name in FOLDERS:
        for path in sorted((folder / name).glob("*")):
            if path not in listed and not OF_A_BUILD.match(path.name):
                raise SpecretError(f"{path} is not listed in {NAME}", "remove the file")


def _no_store(folder: Path) -> SpecretError:
    """The error for a folder without a manifest; nobody is told to build into foreign files."""
    message = f"no datastore at {str(folder)!r}: {NAME} is not there"
    if folder.is_dir() and any(folder.iterdir()):
        return SpecretError(message, "name the folder that specret build-index wrote")
    build = f"specret build-index --corpus code --out {quote(str(folder))}"
    return SpecretError(message, f"name the folder of one, or build it with: {build}")


def _rebuild(folder: Path, manifest: Manifest | None = None) -> str:
    """The command that builds a damaged store anew, as far as the store still tells it."""
    known = {} if manifest is None else manifest.parameters
    model = "" if manifest is None else f" for {manifest.fingerprint.model_id}"
    recorded = known.get("recipe") == "recorded"
    named = "--from-traces" if recorded else "--corpus"
    words = [f"specret build-index {named}", quote(str(known.get("corpus", "CORPUS")))]
    words += ["--generate"] if "recipe" in known and not recorded else []
    words += ["--out", quote(str(folder))]
    for name in ("max_tokens", "dense_tokens", *(() if recorded else OWN_OPTIONS)):
        if known.get(name) is not None:
            words.append(f"--{name.replace('_', '-')} {known[name]}")
    words += ["--with-prompts"] if known.get("with_prompts") else []
    words += ["--keep-features"] if known.get("features") else []
    return f"build the store again{model}: {' '.join(words)}"


def _check(manifest: Manifest) -> None:
    """Raise ValueError or KeyError where something is not as it must be."""
    roles = {role for role in manifest.files if not SHARDS.fullmatch(role)}
    if roles not in (SPARSE, SPARSE | DENSE):
        raise ValueError(f"files of roles {sorted(roles)}")
    for file in manifest.files.values():
        path = PurePosixPath(file.path)
        plain = re.fullmatch(r"[\w.-]+/[\w.-]+", file.path) and ".." not in path.parts
        if not plain or path.parts[0] not in FOLDERS:
            raise ValueError(f"path {file.path!r} leads out of the store")
        if not (isinstance(file.bytes, int) and isinstance(file.rows, int) and file.rows >= 0):
            raise ValueError(f"sizes of {file.path!r}")
    counted = ("documents", "tokens", "width", *(("keys", "dim") if manifest.has_dense else ()))
    if not all(isinstance(manifest.counts[name], int) for name in counted):
        raise ValueError("counts that are no numbers")
