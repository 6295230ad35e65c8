"""One place cuts: blocks accepted at once end where single tokens would."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import byte_tokenizer

from specret.decode.stopping import Cut, Limits, Stopping
from specret.decode.text import TextStream

TOKENIZER = byte_tokenizer()


def cut_all(ids: list[int], blocks: list[int], limits: Limits, prompt_len: int = 3) -> list[Cut]:
    """The cuts of `ids` handed over in blocks of the given sizes."""
    stopping = Stopping(limits, prompt_len, TOKENIZER)
    cuts, at = [], 0
    for size in blocks:
        cuts.append(stopping.cut(ids[at : at + size]))
        at += size
        if cuts[-1].finish or at >= len(ids):
            break
    return cuts


def joined(cuts: list[Cut]) -> tuple[list[int], str, str | None]:
    return [t for c in cuts for t in c.tokens], "".join(c.text for c in cuts), cuts[-1].finish


def limits(
    new: int = 1000, eos: tuple[int, ...] = (), stop: tuple[str, ...] = (), context: int = 1000
) -> Limits:
    return Limits(new, frozenset(eos), stop, context)


TEXT = TOKENIZER("the cat sat on the mat 🎉é日本, the end")["input_ids"]

CASES = {
    "max new tokens": limits(new=7),
    "an eos inside a block": limits(eos=(TEXT[5],)),
    "a stop string over several tokens": limits(stop=("sat on",)),
    "a stop string inside a token": limits(stop=("h",)),
    "the earlier of two stop strings": limits(stop=("mat", "cat s")),
    "the end of the context": limits(context=8),
    "a stop string of half a character": limits(stop=("日",)),
    "an eos and a stop string": limits(eos=(TEXT[9],), stop=("the mat",)),
}


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_blocks_are_cut_where_single_tokens_are(case: str, data: st.DataObject) -> None:
    blocks = data.draw(st.lists(st.integers(1, 9), min_size=len(TEXT), max_size=len(TEXT)))
    one_by_one = joined(cut_all(TEXT, [1] * len(TEXT), CASES[case]))
    assert joined(cut_all(TEXT, blocks, CASES[case])) == one_by_one
    assert one_by_one[2] is not None


def test_each_end_has_its_own_reason_and_place() -> None:
    ids, text, why = joined(cut_all(TEXT, [50], CASES["max new tokens"]))
    assert (len(ids), why) == (7, "length")
    ids, text, why = joined(cut_all(TEXT, [50], CASES["an eos inside a block"]))
    assert ids[-1] == TEXT[5]
    assert why == "stop"
    assert text == TOKENIZER.decode(TEXT[:5])
    ids, text, why = joined(cut_all(TEXT, [50], CASES["a stop string over several tokens"]))
    assert (text, why) == ("the cat ", "stop-string")
    assert TOKENIZER.decode(ids[:-1]).find("sat on") == -1, "at most the completing token more"
    ids, text, why = joined(cut_all(TEXT, [50], CASES["the earlier of two stop strings"]))
    assert text == "the "
    ids, text, why = joined(cut_all(TEXT, [50], CASES["the end of the context"]))
    assert (len(ids), why) == (6, "context"), "3 + 6 tokens: the ninth needs only 8 positions"


def test_no_replacement_mark_comes_out_while_a_character_is_open() -> None:
    stream = TextStream(TOKENIZER)
    ids = TOKENIZER("🎉é日本")["input_ids"]
    assert len(ids) > 4, "the characters span tokens"
    pieces = [stream.push(i) for i in ids]
    assert "�" not in "".join(pieces)
    assert "".join(pieces) + stream.finish() == "🎉é日本"


def test_a_character_cut_by_the_limit_ends_the_text_cleanly() -> None:
    ids = TOKENIZER("a🎉")["input_ids"]
    cuts = cut_all(ids, [1] * len(ids), limits(new=len(ids) - 1))
    assert "".join(c.text for c in cuts[:-1]) == "a"
    assert joined(cuts)[1] == TOKENIZER.decode(ids[:-1])


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_the_pieces_of_a_stream_join_to_the_whole_text(text: str) -> None:
    ids = TOKENIZER(text)["input_ids"]
    stream = TextStream(TOKENIZER)
    assert "".join(stream.push(i) for i in ids) + stream.finish() == TOKENIZER.decode(ids)


def test_nothing_may_be_written_at_a_limit_of_zero() -> None:
    assert Stopping(limits(new=0), 3, None).exhausted() == "length"
    assert Stopping(limits(context=3), 4, None).exhausted() == "context"
    assert np.isclose(Stopping(limits(new=5), 3, None).room(), 5)
