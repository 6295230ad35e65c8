"""Where a model's files are: the packaged default, a folder, a GGUF file, or the hub.

In: what the user named. Out: a local folder, a name for it, and its weight files. Loads nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from specret.models.convert import conversion_of, converted_gguf
from specret.models.default import default_model_path
from specret.types import SpecretError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
HINT = "give a folder with config.json, a .gguf file, or a model id of the Hugging Face hub"


@dataclass(frozen=True, slots=True)
class Source:
    """A model's folder, its name without any path, and the files that hold its weights.

    `weights_sha256` is set where the folder was converted: the digest of what it was made from.
    """

    folder: Path
    model_id: str
    weights: tuple[Path, ...]
    weights_sha256: str | None = None


def find_source(model: str | Path | None) -> Source:
    """The files of a named model; None names the packaged default.

    Raises:
        SpecretError: there is no such folder, file or hub model, or it holds no weights.
    """
    if model is None:
        return _of_folder(default_model_path(), None)
    path = Path(model).expanduser()
    if path.is_dir():
        return _of_folder(path, path.resolve().name)
    if path.is_file():
        if path.suffix != ".gguf":
            raise SpecretError(f"model {model} is a file, expected a folder or a .gguf file", HINT)
        return _of_folder(converted_gguf(path, path.stem), None)
    if not HUB_ID.fullmatch(str(model)):
        raise SpecretError(f"model {str(model)!r} is no folder, file or hub id", HINT)
    return _of_folder(_downloaded(str(model)), str(model))


def _of_folder(folder: Path, model_id: str | None) -> Source:
    if not (folder / "config.json").is_file():
        models = sorted(folder.glob("*.gguf"))
        if len(models) == 1:
            return _of_folder(converted_gguf(models[0], models[0].stem), None)
        seen = f"{len(models)} .gguf files" if models else "no config.json"
        raise SpecretError(f"model folder {folder} has {seen}, expected one model", HINT)
    weights = _weights(folder)
    if not weights:
        raise SpecretError(f"model folder {folder} has no weights, expected {WEIGHTS[0]}", HINT)
    made = conversion_of(folder)
    if made is not None:
        return Source(folder, model_id or made["model_id"], weights, made["source_sha256"])
    assert model_id is not None, "only conversions carry their own name"
    return Source(folder, model_id, weights)


def _weights(folder: Path) -> tuple[Path, ...]:
    for pattern in WEIGHTS:
        files = tuple(sorted(folder.glob(pattern)))
        if files:
            return files
    return ()


def _downloaded(model: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    texts = ["*.json", "*.model", "*.txt", "*.jinja"]
    try:
        for pattern in WEIGHTS:
            # weights in sub-folders are other formats of the same model
            folder = Path(
                snapshot_download(model, allow_patterns=[*texts, pattern], ignore_patterns="*/*")
            )
            if _weights(folder):
                break
    except LocalEntryNotFoundError as error:
        raise SpecretError(
            f"model {model!r} is not a folder here, not in the hub's cache, and the hub cannot be "
            "reached (offline)",
            "check the path; or download it on a machine with network, or leave --model away for "
            "the packaged default",
        ) from error
    except HfHubHTTPError as error:
        first_line = str(error).strip().splitlines()[0]
        raise SpecretError(f"model {model!r}: {first_line}", HINT) from error
    return folder
