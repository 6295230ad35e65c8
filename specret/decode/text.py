"""Token ids to text, piece by piece: never half a character.

In: a tokenizer and ids one by one. Out: the text that is certain so far. Bytes of a character
that spans tokens are held back until it is whole, and come out as they are at the end.
"""

from collections.abc import Iterable

from specret.protocols import Tokenizer

_REPLACEMENT = "�"


class TextStream:
    """Incremental decoding: the concatenated pieces equal the decoding of all ids.

    Only the ids since the last settled piece are decoded again, so the cost of a token does
    not grow with the text. The piece before them is decoded along, since some tokenizers strip
    the space of a first word.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._settled: list[int] = []  # ids of the piece that came out last
        self._open: list[int] = []  # ids whose text is not out yet

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is still open."""
        self._open.append(token)
        piece = self._piece()
        if piece.endswith(_REPLACEMENT):
            return ""
        self._settle()
        return piece

    def finish(self) -> str:
        """What is still held back; a cut character comes out as replacement marks."""
        piece = self._piece() if self._open else ""
        self._settle()
        return piece

    def _settle(self) -> None:
        if self._open:
            self._settled, self._open = self._open, []

    def _piece(self) -> str:
        before = self._decode(self._settled)
        return self._decode([*self._settled, *self._open])[len(before) :]

    def _decode(self, ids: Iterable[int]) -> str:
        return self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
