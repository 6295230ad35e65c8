"""A complete model folder with random weights, as a user would name it with --model."""

from pathlib import Path
from typing import Any

from toys import byte_tokenizer, tiny_model


def save_tiny(folder: Path, kind: str = "llama", **changes: Any) -> Path:
    """Weights, config and a byte tokenizer of 278 ids whose `<left>` ends a text."""
    tokenizer = byte_tokenizer()
    eos = tokenizer.convert_tokens_to_ids("<left>")
    settings = {"vocab_size": 288, "eos_token_id": eos} | changes
    tiny_model(kind, **settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
