"""Calibration: a look-up that equals its definition, fitted probabilities that come true."""

import math

import numpy as np
import pytest

from specret.hybrid.calibration import Calibration, Table, all_signals, bins, columns, padded
from specret.hybrid.fitting import fit, quantile_edges
from specret.hybrid.merge import merge
from specret.types import Draft

VOCAB = 100


def chain(tokens, prob, **signals):
    n = len(tokens)
    return Draft(
        np.array(tokens, np.int64),
        np.arange(-1, n - 1, dtype=np.int32),
        np.full(n, prob, np.float32),
        VOCAB,
        np.zeros(n, np.uint8),
        np.full(n, -1, np.int64),
        {name: np.full(n, value, np.float32) for name, value in signals.items()},
    )


def fork(tokens, prob):
    n = len(tokens)
    return Draft(
        np.array(tokens, np.int64),
        np.full(n, -1, np.int32),
        np.array(prob, np.float32),
        VOCAB,
        np.zeros(n, np.uint8),
        np.full(n, -1, np.int64),
    )


def test_a_value_on_an_edge_belongs_above_it_and_nan_has_its_own_cell():
    cells = bins(np.array([[0.9], [1.0], [5.0], [np.nan], [-9.0]]), padded([[1.0, 2.0]]))
    assert cells[:, 0].tolist() == [1, 2, 3, 0, 1]


def test_signals_of_a_merged_tree():
    merged = merge({"prompt": chain([1, 2], 0.7, match_len=3), "suffix": chain([1], 0.4)})
    signals = all_signals(merged)
    assert signals == (
        "depth",
        "agree",
        "prompt.prob",
        "prompt.left",
        "prompt.match_len",
        "suffix.prob",
        "suffix.left",
        "suffix.match_len",
    )
    table = dict(zip(signals, columns(merged, signals).T, strict=True))
    assert table["depth"].tolist() == [1, 2]
    assert table["agree"].tolist() == [2, 1]
    np.testing.assert_allclose(table["prompt.prob"], [0.7, 0.7], rtol=1e-6)
    np.testing.assert_allclose(table["suffix.prob"], [0.4, np.nan], rtol=1e-6)
    assert np.isnan(table["suffix.left"]).all()
    assert np.isnan(table["suffix.match_len"]).all()


def test_what_a_dissenting_source_leaves_over_is_a_signal():
    merged = merge({"prompt": fork([1], [0.7]), "suffix": fork([2], [0.4])})
    left = columns(merged, ("prompt.left", "suffix.left"))
    np.testing.assert_allclose(left, [[np.nan, 0.6], [0.3, np.nan]], rtol=1e-5)


def test_the_look_up_is_the_logistic_of_the_summed_weights():
    calibration = Calibration(
        ("prompt", "suffix"),
        -1.0,
        [
            Table("depth", (1.5,), (0.0, 0.25, -0.5)),
            Table("prompt.prob", (0.5,), (-2.0, 0.125, 3.0)),
            Table("suffix.prob", (), (0.75, 1.5)),
        ],
    )
    merged = merge({"prompt": chain([1, 2], 0.7), "suffix": chain([1, 9], 0.4)})
    odds = [-1 + 0.25 + 3.0 + 1.5, -1 - 0.5 + 3.0 + 0.75, -1 - 0.5 - 2.0 + 1.5]
    assert merged.tokens.tolist() == [1, 2, 9]
    np.testing.assert_allclose(calibration.prob(merged)[0], 1 / (1 + math.exp(-odds[0])), rtol=1e-6)
    expected = np.array([1 / (1 + math.exp(-o)) for o in odds[1:]])
    np.testing.assert_allclose(
        calibration.prob(merged)[1:], expected / max(1.0, expected.sum()), rtol=1e-6
    )


def test_siblings_never_sum_to_more_than_one():
    calibration = Calibration(("prompt",), 3.0, [])
    prob = calibration.prob(merge({"prompt": fork([1, 2, 3], [0.5, 0.3, 0.2])}))
    assert prob.sum() == pytest.approx(1.0)


def test_a_signal_that_no_draft_of_the_step_has_counts_as_absent():
    calibration = Calibration(("prompt",), 0.0, [Table("prompt.cosine", (0.5,), (2.0, 0.0, 0.0))])
    (prob,) = calibration.prob(merge({"prompt": chain([1], 0.5)}))
    assert prob == pytest.approx(1 / (1 + math.exp(-2.0)))


def test_an_empty_tree_has_no_probabilities():
    calibration = Calibration(("prompt",), 0.0, [Table("depth", (1.5,), (0.0, 0.0, 0.0))])
    assert calibration.prob(merge({"prompt": Draft.empty(VOCAB)})).shape == (0,)


@pytest.mark.parametrize(
    ("edges", "weights", "fault"),
    [
        ((1.0, 2.0), (0.0, 0.0, 0.0), "3 weights, expected 4"),
        ((2.0, 1.0), (0.0,) * 4, "ascending"),
        ((1.0, 1.0), (0.0,) * 4, "ascending"),
        ((math.inf,), (0.0,) * 3, "finite"),
        ((1.0,), (0.0, math.nan, 0.0), "finite"),
    ],
)
def test_tables_that_make_no_sense_are_refused(edges, weights, fault):
    with pytest.raises(ValueError, match=fault):
        Table("depth", edges, weights)


def test_edges_cut_into_equal_shares_and_skip_what_is_absent():
    values = np.concatenate([np.arange(100.0), [np.nan] * 50])
    edges = quantile_edges(values)
    assert len(edges) == 9
    shares = np.bincount(bins(values[:100, None], padded([edges]))[:, 0] - 1)
    assert (abs(shares - 10) <= 1).all()
    assert quantile_edges(np.array([3.0, 3.0, np.nan])) == []
    assert quantile_edges(np.array([np.nan])) == []


def test_a_signal_of_few_values_gets_a_bin_for_each():
    assert quantile_edges(np.array([1.0] * 1000 + [2.0, 5.0])) == [2.0, 5.0]


def moments_of(rng, count):
    """A prompt that is right as often as it says, a suffix that boasts 0.9 and is right 1 in 5."""
    for _ in range(count):
        prob = float(rng.choice([0.2, 0.5, 0.8]))
        prompt_right, suffix_right = rng.random() < prob, rng.random() < 0.2
        truth = [1 if prompt_right else 2 if suffix_right else 3, 7]
        yield merge({"prompt": chain([1], prob), "suffix": chain([2], 0.9)}), np.array(truth)


def test_fitted_probabilities_come_true():
    calibration = fit(moments_of(np.random.default_rng(0), 1500))
    for prob, other in ((0.2, 0.16), (0.5, 0.1), (0.8, 0.04)):
        found = calibration.prob(merge({"prompt": chain([1], prob), "suffix": chain([2], 0.9)}))
        np.testing.assert_allclose(found, [prob, other], atol=0.06)


def test_nodes_below_a_wrong_node_teach_nothing():
    # depth 2 is always right below a right parent, and rarely reached at all
    rng = np.random.default_rng(1)
    trees = [merge({"prompt": chain([1, 2], 0.5)}) for _ in range(1000)]
    truths = [np.array([1, 2] if rng.random() < 0.1 else [9, 9]) for _ in trees]
    first, second = fit(zip(trees, truths, strict=True)).prob(trees[0])
    assert first == pytest.approx(0.1, abs=0.05)
    assert second > 0.9
