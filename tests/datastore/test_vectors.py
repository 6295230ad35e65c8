"""Search is confined to the keys that a token follows, and there as good as exact search."""

from pathlib import Path

import faiss
import numpy as np
import pytest

from specret.datastore.vectors import DenseIndex, exact_search, place
from specret.types import SpecretError

DIM = 16


def made(n: int = 4000, tokens: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clustered unit keys, the token after each (some far more often than others), positions."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(40, DIM))
    keys = centres[rng.integers(0, 40, n)] + 0.6 * rng.normal(size=(n, DIM))
    keys = (keys / np.linalg.norm(keys, axis=1, keepdims=True)).astype(np.float32)
    following = np.minimum(rng.geometric(0.4, n), tokens).astype(np.int64) * 7
    return keys, following, rng.permutation(n).astype(np.int64) * 3


def built(blocks: int = 3) -> tuple[DenseIndex, np.ndarray, np.ndarray, np.ndarray]:
    keys, following, positions = made()
    parts = zip(*(np.array_split(a, blocks) for a in (keys, following, positions)), strict=True)
    return DenseIndex.build(np.unique(following), parts), keys, following, positions


def test_search_finds_what_exact_search_in_the_group_finds() -> None:
    index, keys, following, positions = built()
    rng = np.random.default_rng(5)
    found = wanted = 0
    for token in np.unique(following):
        for _ in range(20):
            query = keys[rng.integers(len(keys))] + 0.1 * rng.normal(size=DIM).astype(np.float32)
            query /= np.linalg.norm(query)
            exact = exact_search(keys, following, positions, query, token, 10)
            similarities, near = index.search(query, int(token), 10)
            assert set(near.tolist()) <= set(positions[following == token].tolist())
            assert (np.diff(similarities) <= 0).all()
            np.testing.assert_allclose(similarities, exact[0], atol=0.05)
            found += len(set(near.tolist()) & set(exact[1].tolist()))
            wanted += len(exact[1])
    assert found / wanted >= 0.9


@pytest.mark.parametrize("k", [1, 5, 64, 5000])
def test_rows_of_padding_never_come_out(k: int) -> None:
    index, keys, following, _ = built()
    for token in np.unique(following):
        similarities, near = index.search(keys[0], int(token), k)
        assert len(near) == len(similarities) == min(k, int((following == token).sum()))
        assert (near >= 0).all()


@pytest.mark.parametrize("token", [-1, 0, 8, 10**6])
def test_a_token_that_follows_no_key_has_no_neighbours(token: int) -> None:
    index, keys, _, _ = built()
    similarities, near = index.search(keys[0], token, 5)
    assert len(near) == len(similarities) == 0


def test_keys_may_arrive_in_any_number_of_blocks() -> None:
    (one, keys, following, _), (many, *_) = built(1), built(5)
    assert len(one) == len(many) == len(keys)
    for token in np.unique(following):
        a, b = one.search(keys[1], int(token), 10), many.search(keys[1], int(token), 10)
        assert len(set(a[1].tolist()) & set(b[1].tolist())) >= 0.8 * len(a[1])


def test_equal_keys_come_in_the_order_of_their_positions() -> None:
    keys = np.tile(made(1)[0], (50, 1))
    positions = np.random.default_rng(0).permutation(50).astype(np.int64)
    index = DenseIndex.build(np.array([4]), [(keys, np.full(50, 4), positions)])
    _, near = index.search(keys[0], 4, 50)
    assert near.tolist() == list(range(50))


def test_a_saved_index_answers_alike_and_is_small(tmp_path: Path) -> None:
    index, keys, following, _ = built()
    path, lists = tmp_path / "index", tmp_path / "lists"
    index.save(path, lists)
    assert path.stat().st_size + lists.stat().st_size < len(keys) * (DIM + 8) + 4096
    read = DenseIndex.open(path, lists, keys=len(keys), dim=DIM)
    for token in np.unique(following):
        for mine, theirs in zip(
            index.search(keys[9], int(token), 20), read.search(keys[9], int(token), 20), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)


def test_reading_leaves_the_limits_of_faiss_as_they_were(tmp_path: Path) -> None:
    before = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
    index, keys, _, _ = built()
    index.save(tmp_path / "index", tmp_path / "lists")
    DenseIndex.open(tmp_path / "index", tmp_path / "lists", keys=len(keys), dim=DIM)
    after = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
    assert before == after


def write_other_kind(path: Path) -> None:
    flat = faiss.IndexFlatIP(DIM)
    flat.add(made(10)[0])
    faiss.write_index(flat, str(path))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def claim_too_much(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index((DIM * 2).to_bytes(8, "little"))  # the ranges of the dimensions
    data[at : at + 8] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(bytes(data))


BAD_FILES = {
    "another kind of index": (write_other_kind, "IndexFlat"),
    "a file cut short": (cut_short, "no readable index"),
    "a length beyond the file": (claim_too_much, "no readable index"),
    "no index at all": (lambda path: path.write_bytes(b"x" * 200), "no readable index"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, case: str) -> None:
    damage, message = BAD_FILES[case]
    index, keys, _, _ = built()
    index.save(tmp_path / "index", tmp_path / "lists")
    damage(tmp_path / "index")
    with pytest.raises(SpecretError, match=message) as fault:
        DenseIndex.open(tmp_path / "index", tmp_path / "lists", keys=len(keys), dim=DIM)
    assert "build" in fault.value.hint


@pytest.mark.parametrize("change", [{"keys": 3999}, {"dim": DIM + 1}])
def test_other_sizes_than_the_manifests_are_refused(tmp_path: Path, change: dict[str, int]) -> None:
    index, keys, _, _ = built()
    index.save(tmp_path / "index", tmp_path / "lists")
    with pytest.raises(SpecretError, match="expected"):
        DenseIndex.open(
            tmp_path / "index", tmp_path / "lists", **({"keys": len(keys), "dim": DIM} | change)
        )


def test_a_gpu_that_is_not_there_is_an_error_and_auto_warns_once() -> None:
    if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus():
        pytest.skip("there is a GPU")
    index = faiss.IndexFlatIP(DIM)
    with pytest.raises(SpecretError, match="GPU") as fault:
        place(index, "gpu")
    assert "faiss-gpu" in fault.value.hint
    with pytest.warns(UserWarning, match="no GPU") as seen:
        assert place(index, "auto") is index
    assert len(seen) == 1
    assert place(index, "cpu") is index
