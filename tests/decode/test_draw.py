"""Keyed noise: pure, uniform, and the Gumbel-max rule draws from the softmax."""

import numpy as np
import pytest
import torch
from scipy import stats

from specret.decode.draw import Greedy, Keyed, uniforms

CPU = torch.device("cpu")


def test_noise_depends_on_seed_and_position_only() -> None:
    state = torch.random.get_rng_state()
    first = uniforms(1, 5, 100, CPU)
    assert torch.equal(first, uniforms(1, 5, 100, CPU))
    assert torch.equal(first[:50], uniforms(1, 5, 50, CPU))
    assert not torch.equal(first, uniforms(2, 5, 100, CPU))
    assert not torch.equal(first, uniforms(1, 6, 100, CPU))
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 - 1])
def test_any_integer_is_a_seed(seed: int) -> None:
    u = uniforms(seed, 0, 1000, CPU)
    assert float(u.min()) > 0.0
    assert float(u.max()) < 1.0


def test_noise_is_uniform_within_and_across_positions() -> None:
    within = uniforms(3, 7, 20000, CPU).numpy()
    across = np.array([float(uniforms(3, p, 4, CPU)[2]) for p in range(4000)])
    for sample in (within, across):
        assert stats.kstest(sample, "uniform").pvalue > 1e-3
    neighbours = np.array([uniforms(3, p, 1, CPU).item() for p in range(4001)])
    assert abs(np.corrcoef(neighbours[:-1], neighbours[1:])[0, 1]) < 0.06


def test_keyed_draws_follow_the_softmax() -> None:
    logits = torch.tensor([1.0, 0.0, -0.5, 2.0, float("-inf")])
    counts = np.bincount([Keyed(11)(p, logits) for p in range(5000)], minlength=5)
    p = torch.softmax(logits.double(), 0).numpy()
    assert counts[4] == 0
    assert stats.chisquare(counts[:4], 5000 * p[:4]).pvalue > 1e-3


def test_greedy_takes_the_first_of_equal_maxima() -> None:
    assert Greedy()(0, torch.tensor([0.0, 3.0, 3.0])) == 1


def test_the_extremes_of_the_hash_stay_inside_the_open_interval() -> None:
    top = ((torch.tensor([-1]) >> 12) & ((1 << 52) - 1)).double().add_(0.5).mul_(2.0**-52)
    assert float(top) < 1.0
    assert np.isfinite(-np.log(-np.log(float(top))))
