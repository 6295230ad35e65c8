"""The identity of a model and its tokenizer: what a datastore is built for.

In: a model's source, the loaded network and tokenizer. Out: a `Fingerprint`. Knows no store.
"""

import hashlib
from typing import Any

from specret.models.cache import file_sha256
from specret.models.source import Source
from specret.models.tokenizer import tokenizer_digest
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
        weights=weights_digest(source),
        tokenizer=tokenizer_digest(tokenizer),
        vocab_size=vocab_size,
        hidden_size=int(text.hidden_size),
        dtype=dtype,
    )


def weights_digest(source: Source) -> str:
    """sha256 in hex over the files that a model's weights come from."""
    if source.weights_sha256 is not None:
        return source.weights_sha256
    if len(source.weights) == 1:
        return file_sha256(source.weights[0])
    parts = "\n".join(f"{p.name} {file_sha256(p)}" for p in source.weights)
    return hashlib.sha256(parts.encode()).hexdigest()
