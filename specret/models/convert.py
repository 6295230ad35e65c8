"""GGUF files converted once to safetensors folders in the user's cache.

In: a GGUF file. Out: a folder that transformers loads in under a second. A conversion is written
beside its place, checksummed and renamed; one that is damaged, or whose source or format has
changed, is made anew. Knows nothing of devices and dtypes.
"""

import json
import logging
import os
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from filelock import FileLock

from specret.models.cache import file_sha256, user_cache
from specret.types import SpecretError

FORMAT = 1
UNREADABLE = (OSError, ValueError, LookupError, NotImplementedError, struct.error)
"""What transformers raises on files that are no GGUF model, or one it does not know."""

_log = logging.getLogger(__name__)
MANIFEST = "specret-conversion.json"


def converted_gguf(source: Path, model_id: str) -> Path:
    """Folder of the converted model; the first call takes half a minute for 135 M weights.

    Raises:
        SpecretError: transformers cannot read the file.
    """
    digest = file_sha256(source)
    place = user_cache() / "models" / f"{source.stem}-{digest[:16]}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if not _is_whole(place, digest):
            _convert(source, digest, model_id, place)
    return place


def conversion_of(folder: Path) -> dict[str, Any] | None:
    """The manifest of a converted folder (`model_id`, `source_sha256`), None for any other."""
    path = folder / MANIFEST
    return json.loads(path.read_bytes()) if path.exists() else None


def _is_whole(place: Path, digest: str) -> bool:
    try:
        manifest = conversion_of(place)
    except ValueError:
        return False
    if manifest is None or manifest.get("format") != FORMAT:
        return False
    return manifest["source_sha256"] == digest and all(
        (place / name).exists() and file_sha256(place / name) == sha
        for name, sha in manifest["files"].items()
    )


def _convert(source: Path, digest: str, model_id: str, place: Path) -> None:
    _log.info("converting %s to safetensors, once, into %s", source.name, place)
    fresh = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        _write_model(source, fresh)
        manifest = {
            "format": FORMAT,
            "model_id": model_id,
            "source_sha256": digest,
            "files": {p.name: file_sha256(p) for p in sorted(fresh.iterdir())},
        }
        (fresh / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
        for path in fresh.iterdir():
            _flush(path)
        if place.exists():
            shutil.rmtree(place)
        fresh.rename(place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_model(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from specret.models.quiet import quiet

    with quiet():
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                source.parent, gguf_file=source.name, dtype=torch.float32
            )
            tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        except UNREADABLE as error:
            raise SpecretError(
                f"{source} is not a GGUF model that transformers reads: {error}",
                "give a folder with config.json and safetensors weights",
            ) from error
        # save_pretrained refuses a model that still carries the quantiser it was read through
        model.hf_quantizer = None
        del model.config.quantization_config
        model.is_quantized = False
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
