"""Several stores: each source keeps the weights of its store's kind, and silence adds nothing."""

import numpy as np
import pytest

from specret.hybrid.calibration import Calibration, Table
from specret.hybrid.confidences import Confidences, source_set
from specret.hybrid.merge import merge
from specret.hybrid.several import by_store, calibration_for, kind_of, kinds, source_of, store_of
from specret.types import MOST_STORES, SOURCES, Draft, SpecretError

VOCAB = 9


def draft(*tokens, prob=0.5):
    n = len(tokens)
    return Draft(
        np.array(tokens, np.int64),
        np.full(n, -1, np.int32),
        np.full(n, prob / max(n, 1), np.float32),
        VOCAB,
        np.zeros(n, np.uint8),
        np.full(n, -1, np.int64),
    )


def table(signal, missing, low, high):
    return Table(signal, (0.3,), (missing, low, high))


def confidences(weight, *sets):
    """Every source says `weight` where it proposes a node surely, half of it where it does not."""
    out = {}
    for names in map(source_set, sets):
        tables = [table(f"{name}.prob", -weight, weight / 2, weight) for name in names]
        out[names] = Calibration(names, -3.0, [Table("depth", (), (0.0, 0.25)), *tables])
    return Confidences(out, {}, {})


FIRST = confidences(1.0, "prompt,suffix", "suffix", "prompt")
SECOND = confidences(2.0, "prompt,suffix", "suffix")


def odds(prob):
    return np.log(prob / (1 - prob))


def test_names_say_kind_and_store():
    assert SOURCES[0] == "prompt"
    for number in range(MOST_STORES):
        for kind in ("suffix", "dense"):
            name = source_of(kind, number)
            assert name in SOURCES
            assert (kind_of(name), store_of(name)) == (kind, number)
    assert by_store(source_set("prompt,dense,suffix2,dense2")) == {
        0: ("prompt", "dense"),
        1: ("suffix2", "dense2"),
    }
    assert by_store(source_set("prompt,suffix3")) == {2: ("prompt", "suffix3")}
    assert kinds(("prompt", "suffix3")) == ("prompt", "suffix")


def test_one_store_alone_is_as_fitted_whichever_it_is():
    assert calibration_for(("prompt", "suffix"), [FIRST]) is FIRST.calibrations["prompt", "suffix"]
    second = calibration_for(("prompt", "suffix2"), [FIRST, SECOND])
    fitted = SECOND.calibrations["prompt", "suffix"]
    trees = {"prompt": draft(1, 2), "suffix": draft(2, 3)}
    renamed = {"prompt": trees["prompt"], "suffix2": trees["suffix"]}
    np.testing.assert_array_equal(second.prob(merge(renamed)), fitted.prob(merge(trees)))


def test_a_joint_fit_goes_before_adding():
    joint = confidences(0.5, "prompt,suffix,suffix2")
    found = calibration_for(("prompt", "suffix", "suffix2"), [joint, SECOND])
    assert found is joint.calibrations["prompt", "suffix", "suffix2"]


def test_each_store_votes_with_its_own_weights_and_silence_adds_nothing():
    both = calibration_for(("prompt", "suffix", "suffix2"), [FIRST, SECOND])
    alone = calibration_for(("prompt", "suffix"), [FIRST])
    trees = {"prompt": draft(1), "suffix": draft(2)}
    silent = merge({**trees, "suffix2": draft()})
    np.testing.assert_allclose(both.prob(silent), alone.prob(merge(trees)))
    surely = merge({**trees, "suffix2": draft(2)})
    vaguely = merge({**trees, "suffix2": draft(2, prob=0.1)})
    row = int(np.flatnonzero(surely.tokens == 2)[0])
    base = odds(alone.prob(merge(trees))[row])
    assert odds(both.prob(surely)[row]) == pytest.approx(base + 2.0 + 2.0, abs=1e-5)
    assert odds(both.prob(vaguely)[row]) == pytest.approx(base + 1.0 + 2.0, abs=1e-5)


def test_a_store_whose_confidences_lack_its_sources_is_refused_by_name():
    with pytest.raises(SpecretError, match="no confidences for the sources prompt\\+dense"):
        calibration_for(("prompt", "suffix", "dense2"), [FIRST, SECOND])
