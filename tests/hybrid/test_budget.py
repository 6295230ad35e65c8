"""The number of nodes: the best trade of tokens against measured time."""

from types import SimpleNamespace

import pytest

from specret.hybrid.budget import GRID, choose_nodes, nodes_for
from specret.hybrid.calibration import Calibration
from specret.hybrid.confidences import Confidences, Gain, save_confidences
from specret.types import Prices, SpecretError

FLAT = Prices((1, 65), (1.0, 1.0), 256)
STEEP = Prices((1, 65), (1.0, 65.0), 256)
STEP = Prices((1, 9, 10, 65), (1.0, 1.1, 4.0, 4.5), 256)
CONCAVE = Gain((0, 1, 2, 4, 8, 16, 32), (1.0, 1.5, 1.8, 2.1, 2.4, 2.6, 2.7), 0.0)


@pytest.mark.parametrize(
    ("prices", "lookup_s", "expected"),
    [
        (FLAT, 0.0, 32),  # free rows: as many as there are
        (STEEP, 0.0, 0),  # every row costs a forward: plain decoding
        (STEP, 0.0, 8),  # up to the step
        (FLAT, 10.0, 0),  # the look-up alone costs more than it brings
        (FLAT, 0.5, 32),
    ],
)
def test_the_best_trade_is_taken(prices, lookup_s, expected):
    assert choose_nodes(prices, CONCAVE, lookup_s) == expected


def test_drafting_time_counts_like_look_up_time():
    assert choose_nodes(FLAT, CONCAVE, 0.0, draft_s=10.0) == 0


def test_a_costly_look_up_asks_for_more_nodes():
    prices = Prices((1, 33), (1.0, 2.0), 256)
    gain = Gain((0, 4, 8, 16, 32), (1.0, 4.0, 6.0, 8.0, 9.5), 0.0)
    assert choose_nodes(prices, gain, 0.0) == 16
    assert choose_nodes(prices, gain, 6.0) == 32


def test_ties_take_fewer_nodes():
    assert choose_nodes(FLAT, lambda n: 1.0, 0.0) == 0


def test_only_the_grid_is_considered():
    assert choose_nodes(FLAT, CONCAVE, 0.0, grid=(4, 2, 3)) == 4
    assert 0 in GRID


FLAT_GAIN = Gain((0, 32), (1.0, 1.01), 0.0)
ALL = "hybrid:prompt+suffix+dense"


@pytest.fixture
def curves(tmp_path):
    """A function that writes gain curves to a file of confidences."""

    def write(gains):
        file = tmp_path / "c.json"
        none = {("prompt",): Calibration(("prompt",), 0.0, [])}
        save_confidences(Confidences(none, gains, {}), file)
        return file

    return write


def test_a_method_takes_the_nodes_of_its_own_curve(curves):
    file = curves({"rest": FLAT_GAIN, "hybrid:prompt+dense": CONCAVE, ALL: FLAT_GAIN})
    assert nodes_for("rest", {"confidences": file}, STEP) == 0
    assert nodes_for("hybrid", {"confidences": str(file), "sources": "dense,prompt"}, STEP) == 8
    for everything in ({}, {"sources": None}):
        assert nodes_for("hybrid", {"confidences": file, **everything}, STEP) == 0
    with pytest.raises(SpecretError, match="no gain curve for mine") as caught:
        nodes_for("mine", {"confidences": file}, STEP)
    assert "--nodes" in caught.value.hint


def test_every_further_store_costs_its_look_up(curves):
    slow = Gain(CONCAVE.nodes, CONCAVE.tokens, 4.0)
    file = curves({ALL: CONCAVE, "hybrid:suffix+dense": slow})
    both = {"confidences": file, "sources": "prompt,suffix,dense,suffix2,dense2"}
    stores = [SimpleNamespace(own_answers=own) for own in (True, False)]
    assert nodes_for("hybrid", {"confidences": file}, FLAT) == 32
    assert nodes_for("hybrid", both, FLAT, stores) == 0
