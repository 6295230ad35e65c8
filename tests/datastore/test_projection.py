"""Keys are what z-scoring and principal components say, at any size, however rows arrive."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from specret.datastore.projection import COMPONENTS, Moments, Projection
from specret.types import SpecretError


def rows_of(n: int, width: int, seed: int = 0) -> np.ndarray:
    """Rows with correlated dimensions of different size and offset."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(n, width)) @ rng.normal(size=(width, width))
    return (mixed * rng.uniform(0.1, 30, width) + rng.normal(size=width) * 100).astype(np.float32)


def fitted(rows: np.ndarray, components: int = COMPONENTS) -> Projection:
    moments = Moments(rows.shape[1])
    moments.add(rows)
    return Projection.fit(moments, components)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 1000))
def test_moments_do_not_depend_on_how_rows_arrive(blocks: list[int], seed: int) -> None:
    rows = rows_of(sum(blocks), 5, seed)
    moments = Moments(5)
    for block in np.split(rows, np.cumsum(blocks)[:-1]):
        moments.add(block)
    exact = rows.astype(np.float64)
    centred = exact - exact.mean(axis=0)
    assert moments.count == len(rows)
    np.testing.assert_allclose(moments.mean, exact.mean(axis=0), rtol=1e-12)
    scale = np.abs(centred.T @ centred).max()
    np.testing.assert_allclose(moments.comoment, centred.T @ centred, atol=1e-10 * scale)


def test_statistics_survive_a_mean_far_above_the_deviation() -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 4)).astype(np.float32)
    far = rows + np.float32(1000)
    np.testing.assert_allclose(fitted(far).std, far.astype(np.float64).std(axis=0), rtol=1e-6)


def test_keys_keep_what_a_full_decomposition_keeps() -> None:
    rows = rows_of(2000, 90)
    projection = fitted(rows)
    z = (rows - rows.mean(axis=0, dtype=np.float64)) / rows.std(axis=0, dtype=np.float64)
    _, values, directions = np.linalg.svd(z, full_matrices=False)
    np.testing.assert_allclose(
        projection.explained_variance, values[:64] ** 2 / len(rows), rtol=1e-4
    )
    overlap = np.abs(np.sum(projection.components * directions[:64], axis=1))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-3)
    keys = projection.apply(rows)
    assert keys.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize(("n", "width"), [(1, 80), (2, 80), (63, 80), (64, 80), (65, 80), (99, 3)])
def test_keys_are_shorter_where_the_data_is_smaller(n: int, width: int) -> None:
    rows = rows_of(n, width)
    projection = fitted(rows)
    assert projection.dim == max(1, min(64, width, n - 1))
    assert projection.width == width
    keys = projection.apply(rows)
    assert np.isfinite(keys).all()
    if n > 1:
        np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1.0, atol=1e-5)
    else:
        assert (keys == 0).all()


def test_dimensions_that_do_not_vary_count_for_nothing() -> None:
    rows = rows_of(500, 20)
    rows[:, 3] = 7.0
    rows[:, 11] = 0.0
    projection = fitted(rows)
    keys = projection.apply(rows)
    moved = rows.copy()
    moved[:, [3, 11]] += 1000.0
    np.testing.assert_array_equal(projection.apply(moved), keys)
    rest = np.delete(rows, [3, 11], axis=1)
    alike = fitted(rest).apply(rest)
    np.testing.assert_allclose(keys[:, :18] @ keys[:, :18].T, alike @ alike.T, atol=1e-3)


def test_rows_that_are_all_alike_give_zeros() -> None:
    projection = fitted(np.full((10, 4), 3.0, np.float32))
    assert (projection.apply(np.full((2, 4), 3.0, np.float32)) == 0).all()


def test_the_sign_of_a_component_is_fixed() -> None:
    projection = fitted(rows_of(300, 30))
    largest = np.abs(projection.components).argmax(axis=1)
    assert (projection.components[np.arange(projection.dim), largest] > 0).all()


def test_a_saved_projection_gives_the_same_keys(tmp_path: Path) -> None:
    rows = rows_of(200, 70)
    projection = fitted(rows)
    projection.save(tmp_path / "p")
    read = Projection.load(tmp_path / "p")
    np.testing.assert_array_equal(read.apply(rows), projection.apply(rows))


def arrays(**changes: np.ndarray) -> dict[str, np.ndarray]:
    given = {
        "mean": np.zeros(6, np.float32),
        "std": np.ones(6, np.float32),
        "components": np.eye(6, dtype=np.float32)[:2],
        "explained_variance": np.ones(2, np.float32),
    }
    return given | changes


DAMAGED = {
    "another width": arrays(mean=np.zeros(5, np.float32)),
    "another number of components": arrays(explained_variance=np.ones(3, np.float32)),
    "another dtype": arrays(std=np.ones(6, np.float64)),
    "a deviation of zero": arrays(std=np.zeros(6, np.float32)),
    "not finite": arrays(mean=np.full(6, np.nan, np.float32)),
    "another shape": arrays(components=np.zeros(12, np.float32)),
    "other names": {"weights": np.zeros(3, np.float32)},
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_file_that_is_no_projection_is_refused(tmp_path: Path, case: str) -> None:
    save_file(DAMAGED[case], tmp_path / "p")
    with pytest.raises(SpecretError, match="p") as fault:
        Projection.load(tmp_path / "p")
    assert "build" in fault.value.hint


def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"nothing of the kind")
    with pytest.raises(SpecretError, match="no projection"):
        Projection.load(tmp_path / "p")
