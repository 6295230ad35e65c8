"""The user's cache folder, and checksums of large files remembered there.

In: paths. Out: paths and sha256 digests. Knows no model and no format.
"""

import hashlib
import json
import os
from pathlib import Path

import platformdirs

from specret.types import SpecretError

ENVIRONMENT = "SPECRET_CACHE"


def user_cache() -> Path:
    """Where converted models, measured prices and default stores live; made where it is missing.

    The environment variable SPECRET_CACHE overrides the system's own place.

    Raises:
        SpecretError: it cannot be made.
    """
    folder = Path(os.environ.get(ENVIRONMENT) or platformdirs.user_cache_dir("specret"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise SpecretError(
            f"the cache folder {folder} cannot be made: {fault.strerror}",
            f"name another one: {ENVIRONMENT}=DIR",
        ) from fault
    return folder


def file_sha256(path: Path) -> str:
    """Digest of a file in hex, read again only when its size or time of change is new."""
    resolved = path.resolve()
    state = resolved.stat()
    key, stamp = str(resolved), [state.st_size, state.st_mtime_ns]
    table = user_cache() / "digests.json"
    known = _read_table(table)
    entry = known.get(key)
    if entry is not None and entry[:2] == stamp:
        return str(entry[2])
    with resolved.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    _write_table(table, {**_read_table(table), key: [*stamp, digest]})
    return digest


def _read_table(table: Path) -> dict[str, list[int | str]]:
    if not table.exists():
        return {}
    try:
        content = json.loads(table.read_bytes())
    except ValueError:  # a damaged table costs a new reading of the files, nothing else
        return {}
    return content if isinstance(content, dict) else {}


def _write_table(table: Path, content: dict[str, list[int | str]]) -> None:
    table.parent.mkdir(parents=True, exist_ok=True)
    temporary = table.with_name(f"{table.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=0, sort_keys=True), "utf-8")
    temporary.replace(table)
