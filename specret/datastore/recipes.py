"""From documents to prompts: what the target is asked, so that its answers resemble future ones.

In: texts of a corpus. Out: named prompts in a fixed order. Knows no model and no tokenizer.
Adding a recipe is a function here and a line in `RECIPES`.
"""

import ast
import json
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from specret.datastore.sources import Text
from specret.datastore.turns import Turn
from specret.types import SpecretError

LEAST_DOCSTRING = 40
"""Characters of a docstring that says what a function does."""

MOST_CHARS = 2_000
"""Of one prompt: longer ones cost more than their answers bring."""

MOST_DOCUMENTS = 200_000
"""Read for prompts, so that a data set without end gives some."""

OPENING_WORDS = 64
LEAST_WORDS = 16


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt: the turns that lead to the answer, where it is from, its licence if known."""

    turns: tuple[Turn, ...]
    name: str
    licence: str = ""

    @property
    def messages(self) -> str | list[dict[str, str]]:
        """As `decode` takes it: a lone message stays text, so that base models take it too."""
        if len(self.turns) == 1:
            return self.turns[0].content
        return [{"role": turn.role, "content": turn.content} for turn in self.turns]

    @property
    def chars(self) -> int:
        """Characters of all turns."""
        return sum(len(turn.content) for turn in self.turns)

    @property
    def digest(self) -> bytes:
        """Of what is asked."""
        said = json.dumps([(turn.role, turn.content) for turn in self.turns])
        return blake2b(said.encode(), digest_size=16).digest()


def code(document: Text) -> Iterator[Question]:
    """Every documented function of a Python file: its signature and docstring, nothing else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the corpus' own escapes, nothing to mend here
            module = ast.parse(document.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # not Python, or not of this version
    lines = document.text.split("\n")
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node, clean=False)
        if docstring is None or len(docstring.strip()) < LEAST_DOCSTRING:
            continue
        last = node.body[0].end_lineno
        assert last is not None
        head = textwrap.dedent("\n".join(lines[node.lineno - 1 : last])) + "\n"
        yield _lone(head, f"{document.name}:{node.name}", document)


def text(document: Text) -> Iterator[Question]:
    """The beginning of a document."""
    words = document.text.split(" ")
    if len(words) >= LEAST_WORDS:
        yield _lone(" ".join(words[:OPENING_WORDS]), document.name, document)


def chat(document: Text) -> Iterator[Question]:
    """Every turn of the user, after the turns before it, as they were said to another model."""
    turns = document.turns
    if not turns or turns[0].role == "assistant":  # the rest of a dialogue that began elsewhere
        return
    for end, turn in enumerate(turns, 1):
        if turn.role == "user":
            yield Question(turns[:end], f"{document.name}#{end}", document.licence)


def _lone(content: str, name: str, document: Text) -> Question:
    return Question((Turn("user", content),), name, document.licence)


RECIPES: dict[str, Callable[[Text], Iterator[Question]]] = {
    "code": code,
    "text": text,
    "chat": chat,
}


def check_recipe(recipe: str) -> None:
    """Whether there is such a recipe.

    Raises:
        SpecretError: there is not.
    """
    if recipe not in RECIPES:
        raise SpecretError(f"unknown recipe {recipe!r}, expected one of {', '.join(RECIPES)}")


def questions(recipe: str, documents: Iterable[Text]) -> list[Question]:
    """All prompts that a recipe makes of a corpus, each text once, evenly mixed.

    The order is by digest: any beginning of the list is a fair sample of the corpus, and the same
    corpus gives the same order.

    Raises:
        SpecretError: an unknown recipe.
    """
    check_recipe(recipe)
    found: dict[bytes, Question] = {}
    for document in islice(documents, MOST_DOCUMENTS):
        for question in RECIPES[recipe](document):
            if question.chars <= MOST_CHARS:
                found.setdefault(question.digest, question)
    return [found[digest] for digest in sorted(found)]
