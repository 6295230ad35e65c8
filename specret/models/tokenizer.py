"""A model's tokenizer, and what tells it from others.

In: a model's source. Out: a transformers tokenizer, a digest. Loads no weights.
"""

import hashlib
import json
from typing import Any

from tokenizers import Tokenizer

from specret.models.source import Source
from specret.types import SpecretError


def load_tokenizer(source: Source) -> Any:
    """The tokenizer that lies beside a model.

    Raises:
        SpecretError: there is none, or not one that transformers reads.
    """
    from transformers import AutoTokenizer

    from specret.models.quiet import quiet

    try:
        with quiet():
            return AutoTokenizer.from_pretrained(source.folder)
    except (OSError, ValueError, KeyError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise SpecretError(
            f"{source.model_id} has no tokenizer that loads: {first_line}",
            "expected tokenizer.json in the model's folder",
        ) from error


def bare_tokenizer(source: Source) -> Any:
    """The tokenizer as `tokenizers` reads it, else as `load_tokenizer` does.

    It is there in a tenth of the time: transformers, and torch behind it, are not imported.

    Raises:
        SpecretError: as there.
    """
    try:
        return Tokenizer.from_file(str(source.folder / "tokenizer.json"))
    except Exception:  # not there or damaged; `tokenizers` raises nothing narrower
        return load_tokenizer(source)


def tokenizer_digest(tokenizer: Any) -> str:
    """sha256 over vocabulary, merges, added tokens, normalisation and splitting, in hex.

    The state of a call (truncation, padding) does not count.
    """
    content: dict[str, Any] = {"vocab": tokenizer.get_vocab()}
    bare = isinstance(tokenizer, Tokenizer)
    backend = tokenizer if bare else getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        content |= json.loads(backend.to_str())
        content |= {"truncation": None, "padding": None}
    else:
        content["class"] = type(tokenizer).__name__
        content["added"] = {i: str(t) for i, t in tokenizer.added_tokens_decoder.items()}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
