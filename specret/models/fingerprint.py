"""The identity of a model and its tokenizer: what a datastore is built for.

In: a model's source, the loaded network and tokenizer. Out: a `Fingerprint`. Knows no store.
"""

import hashlib
import json
from typing import Any

from specret.models.cache import file_sha256
from specret.models.source import Source
from specret.types import Fingerprint, SpecretError


def fingerprint_of(source: Source, network: Any, tokenizer: Any, dtype: str) -> Fingerprint:
    """Identity of what was loaded.

    Raises:
        SpecretError: the tokenizer has ids that the model's LM head does not.
    """
    text = network.config.get_text_config()
    vocab_size = int(network.get_output_embeddings().weight.shape[0])
    largest = max(tokenizer.get_vocab().values())
    if largest >= vocab_size:
        raise SpecretError(
            f"{source.model_id}: its tokenizer has id {largest}, but its LM head has only "
            f"{vocab_size} rows; the tokenizer belongs to another model"
        )
    return Fingerprint(
        model_id=source.model_id,
        weights=source.weights_sha256 or _weights_digest(source),
        tokenizer=tokenizer_digest(tokenizer),
        vocab_size=vocab_size,
        hidden_size=int(text.hidden_size),
        dtype=dtype,
    )


def tokenizer_digest(tokenizer: Any) -> str:
    """sha256 over vocabulary, merges, added tokens, normalisation and splitting, in hex.

    The state of a call (truncation, padding) does not count.
    """
    content: dict[str, Any] = {"vocab": tokenizer.get_vocab()}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        content |= json.loads(backend.to_str())
        content |= {"truncation": None, "padding": None}
    else:
        content["class"] = type(tokenizer).__name__
        content["added"] = {i: str(t) for i, t in tokenizer.added_tokens_decoder.items()}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _weights_digest(source: Source) -> str:
    if len(source.weights) == 1:
        return file_sha256(source.weights[0])
    parts = "\n".join(f"{p.name} {file_sha256(p)}" for p in source.weights)
    return hashlib.sha256(parts.encode()).hexdigest()
