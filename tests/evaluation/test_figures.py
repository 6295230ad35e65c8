import numpy as np
import pytest
from evaluation.samples import sample

from specret.evaluation.figures import difference_interval, figures, pooled_steps, ratio_interval
from specret.types import Prices

PRICES = Prices((1, 5), (0.010, 0.030), 256)  # T(1) = 10 ms, 5 ms a row more


def plain(tokens, decode_s=1.0):
    return sample([1] * tokens, [0] * tokens, decode_s=decode_s)


def test_plain_against_itself_is_one_everywhere():
    rows = [plain(4), plain(8, 2.0)]
    found = figures(rows, rows, [0, 1], PRICES)
    assert found["tokens_per_step"] == found["speedup"] == 1.0
    assert found["predicted_speedup"] == pytest.approx(1.0)
    assert found["speedup_ci95"] == [1.0, 1.0]
    assert (found["coverage"], found["acceptance_rate"]) == (0.0, None)
    assert (found["new_tokens"], found["steps"], found["tokens_per_s"]) == (12, 12, 4.0)


def test_ratios_are_pooled_over_prompts_not_averaged():
    rows = [sample([3, 1], [4, 0], decode_s=0.5), sample([1] * 8, [2] * 8, decode_s=1.5)]
    base = [plain(4, 1.0), plain(8, 2.0)]
    found = figures(rows, base, [0, 1], PRICES)
    assert found["tokens_per_step"] == pytest.approx(12 / 10)
    assert found["tokens_per_s"] == pytest.approx(12 / 2.0)
    assert found["speedup"] == pytest.approx((12 / 2.0) / (12 / 3.0))
    assert found["coverage"] == pytest.approx(9 / 10)
    assert found["acceptance_rate"] == pytest.approx(2 / 20)


def test_the_prices_promise_tokens_per_step_times_one_row_over_the_mean_of_the_rows():
    found = figures([sample([3, 1], [4, 0])], [plain(4)], [0], PRICES)
    assert found["predicted_speedup"] == pytest.approx(2.0 * 10 / ((30 + 10) / 2))


def test_milliseconds_are_per_step_and_outside_is_all_but_score():
    found = figures([sample([2, 2], [1, 1], decode_s=0.4, score_s=0.3)], [plain(4)], [0], PRICES)
    assert found["score_ms"] == pytest.approx(150)
    assert found["other_ms"] == pytest.approx(50)
    assert found["outside_share"] == pytest.approx(0.25)
    assert found["prefill_ms"] == pytest.approx(250)


def test_tokens_of_the_prefill_are_left_out_of_speed():
    rival = sample([1] * 9, None, decode_s=1.0, prefill_tokens=1)
    found = figures([rival], [plain(10, 1.0)], [0], PRICES)
    assert found["tokens_per_step"] == 1.0
    assert found["speedup"] == pytest.approx(0.9)
    assert found["new_tokens"] == 10


def test_what_a_method_does_not_tell_is_none():
    found = figures([sample([2, 3], None)], [plain(5)], [0], PRICES)
    for name in ("coverage", "acceptance_rate", "predicted_speedup", "score_ms", "outside_share"):
        assert found[name] is None
    assert found["tokens_per_step"] == 2.5


def test_one_prompt_gives_no_interval():
    assert figures([plain(4)], [plain(4)], [0], PRICES)["speedup_ci95"] is None


def test_turns_of_one_prompt_are_resampled_together():
    rows, base = [plain(4, 0.5), plain(4, 2.0)], [plain(4), plain(4)]
    assert figures(rows, base, [0, 0], PRICES)["speedup_ci95"] is None
    assert figures(rows, base, [0, 1], PRICES)["speedup_ci95"] is not None


def test_the_interval_holds_the_ratio_and_pairs_prompts():
    rng = np.random.default_rng(1)
    seconds = rng.uniform(1, 20, 40)  # prompts differ much, the ratio does not
    tokens = np.full(40, 100.0)
    low, high = ratio_interval((tokens, seconds), (tokens, 2 * seconds))
    assert low == pytest.approx(2.0)
    assert high == pytest.approx(2.0)
    noisy = seconds * rng.uniform(0.8, 1.25, 40)
    low, high = ratio_interval((tokens, noisy), (tokens, 2 * seconds))
    assert low < 2 * seconds.sum() / noisy.sum() < high
    assert high - low < 0.5


def test_the_difference_of_tokens_per_step_has_an_interval():
    more = [sample([3, 3], [3, 3]), sample([2, 2], [3, 3])]
    less = [plain(6), plain(4)]
    one, other = pooled_steps(more, [0, 1]), pooled_steps(less, [0, 1])
    low, high = difference_interval(one, other)
    assert (low, high) == (pytest.approx(1.0), pytest.approx(2.0))
    assert difference_interval(pooled_steps(more[:1], [0]), pooled_steps(less[:1], [0])) is None


def test_a_method_that_wrote_nothing_has_no_ratio():
    found = figures([sample([], [])], [sample([], [])], [0], PRICES)
    assert found["tokens_per_step"] is None
    assert found["speedup"] is None
    assert found["predicted_speedup"] is None
    assert found["score_ms"] is None
