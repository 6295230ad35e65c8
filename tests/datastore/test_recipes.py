"""Recipes: which prompts a corpus gives, in an order that depends on their text alone."""

import pytest

from specret.datastore.recipes import questions
from specret.datastore.sources import Text
from specret.datastore.turns import Turn
from specret.types import SpecretError

MODULE = '''
import os

def undocumented(a):
    return a

class Thing:
    @property
    def size(self) -> int:
        """How many bytes the thing takes on disk, or -1 where nobody knows."""
        return -1

    async def fetch(
        self,
        name,
    ):
        """Fetch it by name from the far end of the line, and wait until it is there."""
        return name

def short():
    """Too short."""
'''


def texts(*contents: str) -> list[Text]:
    return [Text(c, f"f{i}.py", (i + 1, 0), "MIT") for i, c in enumerate(contents)]


def test_code_asks_for_every_documented_function_by_its_head() -> None:
    found = {q.name: q for q in questions("code", texts(MODULE))}
    assert set(found) == {"f0.py:size", "f0.py:fetch"}
    assert found["f0.py:size"].messages == (
        "def size(self) -> int:\n"
        '    """How many bytes the thing takes on disk, or -1 where nobody knows."""\n'
    )
    assert found["f0.py:fetch"].messages.startswith("async def fetch(\n    self,\n    name,\n):\n")
    assert found["f0.py:fetch"].licence == "MIT"
    assert "return" not in found["f0.py:fetch"].messages


def test_text_asks_with_the_beginning_of_a_document() -> None:
    long = " ".join(f"w{i}" for i in range(200))
    found = questions("text", texts(long, "only a few words"))
    assert [q.messages for q in found] == [" ".join(f"w{i}" for i in range(64))]


def test_chat_asks_with_every_turn_of_the_user_after_those_before_it() -> None:
    turns = [Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c"), Turn("assistant", "d")]
    whole = Text("a b c d", "talk", (1, 0), "MIT", tuple(turns))
    rest = Text("b c", "rest", (2, 0), "", tuple(turns[1:]))
    found = {q.name: q.messages for q in questions("chat", [whole, rest, *texts("no dialogue")])}
    assert found == {
        "talk#1": "a",
        "talk#3": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ],
    }


def test_what_is_not_python_gives_no_code_prompts() -> None:
    assert questions("code", texts("def broken(:\n", "\x00", "class A: pass", "x = (" * 1000)) == []


def test_copies_ask_once_and_the_order_is_that_of_the_digests() -> None:
    one, two = MODULE, MODULE.replace("bytes", "words")
    found = questions("code", texts(one, two, one))
    assert len(found) == 3
    assert [q.messages for q in questions("code", texts(two, one))] == [q.messages for q in found]


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(
        SpecretError, match="unknown recipe 'poem', expected one of code, text, chat"
    ):
        questions("poem", texts(MODULE))
