"""From documents to prompts: what the target is asked, so that its answers resemble future ones.

In: texts of a corpus. Out: named prompts in a fixed order. Knows no model and no tokenizer.
Adding a recipe is a function here and a line in `RECIPES`.
"""

import ast
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from specret.datastore.sources import Text
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
    """One prompt: the user's message, where it is from, the licence of that if known."""

    text: str
    name: str
    licence: str = ""


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
        yield Question(head, f"{document.name}:{node.name}", document.licence)


def text(document: Text) -> Iterator[Question]:
    """The beginning of a document."""
    words = document.text.split(" ")
    if len(words) >= LEAST_WORDS:
        yield Question(" ".join(words[:OPENING_WORDS]), document.name, document.licence)


RECIPES: dict[str, Callable[[Text], Iterator[Question]]] = {"code": code, "text": text}


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
            if len(question.text) <= MOST_CHARS:
                digest = blake2b(question.text.encode(), digest_size=16).digest()
                found.setdefault(digest, question)
    return [found[digest] for digest in sorted(found)]
