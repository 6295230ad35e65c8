"""`hybrid`: sources asked, merged, calibrated, cut; what is not there is refused by name."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from specret import tree
from specret.hybrid import fused
from specret.hybrid.calibration import Calibration, Table
from specret.hybrid.confidences import Confidences, save_confidences
from specret.registry import Resources
from specret.types import FINAL_NORM, Budget, Context, Draft, SpecretError, Verdict

VOCAB = 50
FULL = SimpleNamespace(path="STORE", own_answers=False, dense=object())
TREES = {  # paths of each source, with their conditional probabilities
    "prompt": {(1,): 0.9, (1, 2): 0.9, (1, 2, 3): 0.9},
    "suffix": {(1,): 0.4, (4,): 0.3, (1, 5): 0.2},
    "dresd": {(6,): 0.5},
}


@dataclass
class Fake:
    """A drafter that always proposes the same tree, within the budget's depth."""

    paths: dict
    layers: tuple = ()
    calls: list = field(default_factory=list)

    def start(self, context):
        self.calls.append("start")

    def observe(self, context, draft, verdict):
        self.calls.append(("observe", verdict))

    def lookup_seconds(self):
        return 0.25

    def propose(self, context, budget):
        self.calls.append(budget)
        paths = {p: q for p, q in self.paths.items() if len(p) <= budget.max_depth}
        order = {path: i for i, path in enumerate(paths)}
        n = len(paths)
        return Draft(
            np.array([path[-1] for path in paths], np.int64),
            np.array([order.get(path[:-1], -1) for path in paths], np.int32),
            np.array(list(paths.values()), np.float32),
            VOCAB,
            np.zeros(n, np.uint8),
            np.full(n, 7 if self.layers else -1, np.int64),
            {"match_len": np.arange(n, dtype=np.float32)},
        )


@pytest.fixture
def built(tmp_path):
    """A function that makes hybrid over fakes; each fit trusts the first source it names."""
    sets = [("prompt",), ("prompt", "suffix"), ("prompt", "suffix", "dense"), ("suffix",)]
    calibrations = {
        names: Calibration(
            names, 0.0, [Table(f"{name}.prob", (0.35,), (-2.0, 0.0, 2.0)) for name in names]
        )
        for names in sets
    }
    file = tmp_path / "c.json"
    save_confidences(Confidences(calibrations, {}, {}), file)

    def build(store=FULL, **options):
        fakes = {}

        def make_fake(name, resources, given):
            assert given == {}
            fakes[name] = Fake(TREES[name], (FINAL_NORM,) if name == "dresd" else ())
            return fakes[name]

        resources = Resources(VOCAB, 8, store, make=make_fake)
        return fused.make(resources, {"confidences": file} | options), fakes

    return build


CONTEXT = Context.begin(np.array([3, 4]), 10)


def paths_of(draft):
    return {
        tuple(int(draft.tokens[i]) for i in tree.path_to(draft.parents, n))
        for n in range(len(draft))
    }


def test_the_whole_tree_where_the_budget_holds_it(built):
    hybrid, _ = built()
    draft = hybrid.propose(CONTEXT, Budget(16, 16))
    assert paths_of(draft) == {path for paths in TREES.values() for path in paths}
    assert hybrid.sources == ("prompt", "suffix", "dense")
    assert hybrid.layers == (FINAL_NORM,)


@pytest.mark.parametrize("nodes", range(8))
def test_the_budget_is_exact_and_the_best_are_kept(built, nodes):
    hybrid, _ = built()
    whole, cut = (hybrid.propose(CONTEXT, Budget(n, 16)) for n in (16, nodes))
    assert len(cut) == min(nodes, len(whole))
    products = np.sort(tree.path_products(whole.parents, whole.prob))[::-1]
    kept = np.sort(tree.path_products(cut.parents, cut.prob))[::-1]
    np.testing.assert_allclose(kept, products[: len(cut)])


def test_depth_is_kept_also_by_the_sources(built):
    hybrid, fakes = built()
    draft = hybrid.propose(CONTEXT, Budget(16, 2))
    assert tree.depths(draft.parents).max() == 2
    assert all(fake.calls == [Budget(24, 2)] for fake in fakes.values())


def test_no_room_asks_nobody(built):
    hybrid, fakes = built()
    hybrid.propose(CONTEXT, Budget(4, 4))
    assert hybrid.lookup_seconds() == 0.75
    for budget in (Budget(0, 4), Budget(4, 0)):
        assert len(hybrid.propose(CONTEXT, budget)) == 0
        assert hybrid.lookup_seconds() == 0.0
    assert all(len(fake.calls) == 1 for fake in fakes.values())


def test_probabilities_are_calibrated_and_witnesses_named(built):
    hybrid, _ = built(sources="prompt,suffix")
    draft = hybrid.propose(CONTEXT, Budget(16, 16))
    node = draft.child(-1, 1)
    expected = 1 / (1 + np.exp(-4.0))  # both above their edge: 2 + 2
    siblings = expected + 1 / (1 + np.exp(2.0))  # token 4: absent and below: -2 + 0
    assert draft.prob[node] == pytest.approx(expected / siblings)
    assert draft.sources[node] == 0b11
    assert draft.sources[draft.child(-1, 4)] == 0b10
    assert draft.signals["suffix.match_len"][draft.child(-1, 4)] == 1.0
    assert np.isnan(draft.signals["prompt.match_len"][draft.child(-1, 4)])


def test_an_origin_survives_the_merge(built):
    hybrid, _ = built()
    draft = hybrid.propose(CONTEXT, Budget(16, 16))
    assert draft.origins[draft.child(-1, 6)] == 7
    assert draft.origins[draft.child(-1, 1)] == -1


def test_every_source_hears_the_start_and_the_outcome(built):
    hybrid, fakes = built()
    hybrid.start(CONTEXT)
    verdict = Verdict((), 3)
    hybrid.observe(CONTEXT, Draft.empty(VOCAB), verdict)
    assert all(fake.calls == ["start", ("observe", verdict)] for fake in fakes.values())


def test_without_a_choice_all_that_the_store_has(built):
    sparse = SimpleNamespace(path="STORE", own_answers=False, dense=None)
    assert built()[0].sources == ("prompt", "suffix", "dense")
    assert built(store=sparse)[0].sources == ("prompt", "suffix")
    assert built(store=None)[0].sources == ("prompt",)


@pytest.mark.parametrize(
    ("store", "sources", "fault"),
    [
        (None, "suffix", "'suffix' needs a store that has it, none is open"),
        (
            SimpleNamespace(path="STORE", own_answers=False, dense=None),
            "dense",
            "the one at STORE does not",
        ),
        (None, "web", "'web' is unknown"),
        (
            SimpleNamespace(path="STORE", own_answers=False, dense=1),
            "prompt,dense",
            r"no confidences for .*\+dense",
        ),
    ],
)
def test_sources_that_cannot_be_merged_are_refused_by_name(built, store, sources, fault):
    with pytest.raises(SpecretError, match=fault) as caught:
        built(store=store, sources=sources)
    assert "web" in fault or caught.value.hint


def test_unknown_options_are_refused(built):
    with pytest.raises(SpecretError, match="unknown option 'depth'"):
        built(depth=3)


def test_several_stores_are_read_each_by_its_own_sources(built, tmp_path):
    second = SimpleNamespace(path="SECOND", own_answers=True, dense=object())
    read = {}

    def make_fake(name, resources, given):
        read.setdefault(name, []).append(resources.store)
        return Fake(TREES[name])

    resources = Resources(VOCAB, 8, FULL, (second,), make=make_fake)
    names = ("prompt", "suffix", "dense", "suffix2", "dense2")
    weights = [Table(f"{name}.prob", (0.35,), (-2.0, 0.0, 2.0)) for name in names]
    file = tmp_path / "joint.json"
    save_confidences(Confidences({names: Calibration(names, 0.0, weights)}, {}, {}), file)
    hybrid = fused.make(resources, {"confidences": file})
    assert hybrid.sources == names
    assert read == {"prompt": [FULL], "suffix": [FULL, second], "dresd": [FULL, second]}
    draft = hybrid.propose(CONTEXT, Budget(16, 16))
    assert draft.sources[draft.child(-1, 6)] == 0b10100
    with pytest.raises(SpecretError, match="'suffix3' needs a store that has it, 2 are open"):
        fused.make(resources, {"confidences": file, "sources": "suffix3"})
