"""The turns of a dialogue, out of the shapes that data sets give them.

In: rows. Out: `Turn`s. Knows no file and no tokenizer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COLUMNS = ("messages", "conversations")
ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side of a dialogue said: role system, user or assistant."""

    role: str
    content: str


def turns_of(row: Mapping[str, Any]) -> tuple[Turn, ...]:
    """The turns of a row, none where it has no list of them.

    They are {"role", "content"} or {"from", "value"}; a content may be parts of text. An empty
    one, or one of another speaker, ends the dialogue: what is left was said in that order.
    """
    found: list[Any] = next((row[c] for c in COLUMNS if isinstance(row.get(c), list)), [])
    turns = []
    for turn in found:
        if not isinstance(turn, dict):
            break
        role = ROLES.get(str(turn.get("role", turn.get("from"))))
        content = _content(turn.get("content", turn.get("value")))
        if role is None or not isinstance(content, str) or not content.strip():
            break
        turns.append(Turn(role, content))
    return tuple(turns)


def _content(said: Any) -> Any:
    """The text of a turn that is given in parts; what is no text ends the dialogue."""
    if not isinstance(said, list):
        return said
    parts = [part.get("text") for part in said if isinstance(part, dict)]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(said) else None
