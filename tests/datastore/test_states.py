"""A key belongs to its position, whatever the windows, batches and shards it came through."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_stores import WIDTH, SumEncoder, contents, prose
from tiny_folder import save_tiny

from specret.datastore.durable import Marker
from specret.datastore.projection import Projection
from specret.datastore.states import (
    AHEAD,
    Extraction,
    Windows,
    batches,
    choose_windows,
    read_keys,
    write_keys,
)
from specret.models.encoder import TransformersEncoder
from specret.models.load import load_model
from specret.types import SpecretError

KEY = "0123456789ab"


def stream(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and offsets of documents."""
    tokens = np.frombuffer(b"".join(texts), np.uint8).astype("<u2")
    return tokens, np.cumsum([0] + [len(t) for t in texts]).astype("<u8")


def corpus() -> tuple[np.ndarray, np.ndarray]:
    texts = [t.encode() for t in prose(9, 25)]
    return stream([*texts, b"x", b"xy", b"xyz", b"wxyz", b"one 7 in a text that goes on"])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(1, 150),
)
def test_windows_lie_inside_documents_and_cover_what_was_wanted(
    lengths: list[int], window: int, wanted: int
) -> None:
    total = sum(lengths)
    tokens = np.arange(total, dtype="<u4")  # no two windows alike
    offsets = np.cumsum([0, *lengths]).astype("<u8")
    windows = choose_windows(tokens, offsets, window=window, wanted=wanted)
    positions = windows.positions()
    assert len(positions) == windows.keys == len(set(positions.tolist()))
    assert (np.diff(positions) > 0).all()
    assert (windows.lengths >= 1).all()
    assert (windows.lengths <= window).all()
    document = np.searchsorted(offsets, positions, side="right")
    assert (positions + AHEAD < offsets[document]).all()
    possible = sum(max(0, n - AHEAD) for n in lengths)
    assert windows.keys == min(wanted, possible)


def test_a_part_of_the_corpus_is_taken_evenly() -> None:
    tokens = np.arange(100_000, dtype="<u4")
    windows = choose_windows(tokens, np.array([0, 100_000], "<u8"), window=50, wanted=10_000)
    assert windows.keys == 10_000
    share = np.histogram(windows.positions(), 10, (0, 100_000))[0]
    assert share.max() - share.min() <= 100


def test_of_windows_with_the_same_tokens_only_the_first_counts() -> None:
    copies = [b"the same text in each of them"] * 500 + [b"a rare text stands behind them all"]
    tokens, offsets = stream(copies)
    windows = choose_windows(tokens, offsets, window=64, wanted=10**6)
    assert windows.starts.tolist() == [0, int(offsets[500])]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=40), st.integers(1, 64))
def test_batches_take_each_window_once_and_stay_within_bounds(
    lengths: list[int], most: int
) -> None:
    sizes = np.array(lengths)
    found = list(batches(sizes, most))
    assert sorted(i for batch in found for i in batch.tolist()) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * sizes[batch].max() <= most
    order = np.concatenate(found)
    assert (np.diff(sizes[order]) <= 0).all()


def extract(folder: Path, encoder: Any = None, **sizes: int) -> list[Marker]:
    tokens, offsets = corpus()
    chosen = {"batch_tokens": 64, "shard_keys": 200, "components": 64, "window": 16} | sizes
    (folder / "dense").mkdir(parents=True)
    windows = choose_windows(tokens, offsets, window=chosen.pop("window"), wanted=10**6)
    how = Extraction(**chosen)
    return write_keys(folder, KEY, tokens, windows, encoder or SumEncoder(), how, lambda *_: None)


SIZES = {
    "one batch, one shard": {"batch_tokens": 10**6, "shard_keys": 10**6},
    "window by window": {"batch_tokens": 1, "shard_keys": 10**6},
    "many shards": {"batch_tokens": 64, "shard_keys": 150},
    "small shards, window by window": {"batch_tokens": 1, "shard_keys": 100},
    "whole documents": {"window": 10**6},
}


@pytest.mark.parametrize("case", SIZES)
def test_a_key_is_the_projected_state_of_its_position(tmp_path: Path, case: str) -> None:
    markers = extract(tmp_path, **SIZES[case])
    tokens, offsets = corpus()
    window = SIZES[case].get("window", 16)
    projection = Projection.load(tmp_path / "dense" / f"{KEY}.projection")
    seen = []
    for marker in markers:
        keys, positions = read_keys(tmp_path, marker)
        for key, position in zip(keys, positions.tolist(), strict=True):
            document = int(np.searchsorted(offsets, position, side="right")) - 1
            begin = int(offsets[document])
            begin += (position - begin) // window * window
            state = SumEncoder().states(tokens[begin : position + 1].astype(np.int64))[-1]
            expected = projection.apply(state[None])[0]
            np.testing.assert_allclose(key, expected, atol=2e-3)  # kept in half precision
        seen += positions.tolist()
    lengths = np.diff(offsets).astype(int)
    expected_positions = [
        int(start) + i for start, n in zip(offsets, lengths, strict=False) for i in range(n - AHEAD)
    ]
    assert sorted(seen) == expected_positions


def test_the_text_goes_through_the_model_once(tmp_path: Path) -> None:
    encoder = SumEncoder()
    markers = extract(tmp_path, encoder, shard_keys=100)
    assert len(markers) > 5
    fed = sum(sum(lengths) for lengths in encoder.calls)
    assert fed == sum(marker.files["keys"].rows for marker in markers)


def test_finished_shards_are_not_computed_again(tmp_path: Path) -> None:
    extract(tmp_path / "whole", shard_keys=100)
    markers = extract(tmp_path / "resumed", shard_keys=100)
    for marker in markers[3:]:
        (tmp_path / "resumed" / marker.files["keys"].path).unlink()
    encoder = SumEncoder()
    tokens, offsets = corpus()
    windows = choose_windows(tokens, offsets, window=16, wanted=10**6)
    how = Extraction(64, 100, 64)
    write_keys(tmp_path / "resumed", KEY, tokens, windows, encoder, how, lambda *_: None)
    fed = sum(sum(lengths) for lengths in encoder.calls)
    assert fed == sum(marker.files["keys"].rows for marker in markers[3:])
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")


class Broken(SumEncoder):
    """States of one token are not finite."""

    def __init__(self, token: int, value: float) -> None:
        super().__init__()
        self._token, self._value = token, value

    def states(self, window: np.ndarray) -> np.ndarray:
        out = super().states(window)
        out[window == self._token, 3] = self._value
        return out


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_states_that_are_not_finite_are_left_out_and_counted(tmp_path: Path, value: float) -> None:
    tokens, _ = corpus()
    markers = extract(tmp_path, Broken(ord("7"), value), shard_keys=10**6)
    keys, positions = read_keys(tmp_path, markers[0])
    assert markers[0].facts["refused"] == 1
    assert np.isfinite(keys).all()
    assert (tokens == ord("7")).sum() == 1
    assert not (tokens[positions] == ord("7")).any()


def test_too_many_states_that_are_not_finite_stop_the_build(tmp_path: Path) -> None:
    with pytest.raises(SpecretError, match="not finite") as fault:
        extract(tmp_path, Broken(ord(" "), np.nan))
    assert "float32" in fault.value.hint


def test_a_shard_of_wide_states_is_small_enough_to_be_held() -> None:
    windows = Windows(np.arange(0, 10**6, 100), np.full(10**4, 100))
    how = Extraction(4096, 1 << 15, 64)
    for width in (64, 576, 4096, 16384):
        rows = windows.keys / how.shards(windows, width)
        assert rows * width * 4 <= (256 << 20)
    assert how.shards(windows, WIDTH) == -(-(10**6) // (1 << 15))


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_padding_is_in_no_key(tmp_path: Path, kind: str) -> None:
    model = save_tiny(tmp_path / "model", kind, pad_token_id=276, eos_token_id=276)
    loaded = load_model(model, device="cpu", dtype="float32")
    encoder = TransformersEncoder(loaded)
    texts = [list(range(5, 16)), list(range(90, 97))]  # 9 and 5 keys
    tokens = np.array([*texts[0], *texts[1]], "<u2")
    windows = choose_windows(tokens, np.array([0, 11, 18], "<u8"), window=16, wanted=100)
    (tmp_path / "dense").mkdir()
    how = Extraction(batch_tokens=4096, shard_keys=1000, components=64)
    (marker,) = write_keys(tmp_path, KEY, tokens, windows, encoder, how, lambda *_: None)
    keys, positions = read_keys(tmp_path, marker)
    assert positions.tolist() == [*range(9), *range(11, 16)]
    alone = [encoder.encode([np.array(text[:-AHEAD])])[0] for text in texts]
    projection = Projection.load(tmp_path / "dense" / f"{KEY}.projection")
    np.testing.assert_allclose(keys, projection.apply(np.concatenate(alone)), atol=2e-3)
