"""What every registered drafter owes: valid trees within the budget, and the same text as plain."""

from typing import Any

import numpy as np
import pytest
from toys import run_steps, written

from specret import tree
from specret.decode.draw import Greedy, Keyed
from specret.decode.law import Law, Sampling
from specret.decode.verify.follow import follow
from specret.registry import DRAFTERS, Resources, make_drafter
from specret.types import FINAL_NORM, Budget, Context, Draft, SpecretError, Verdict

NEW = 48
PROMPT_LEN = 12
GUESSING = [name for name in DRAFTERS if name != "plain"]


@pytest.fixture(params=DRAFTERS, name="name")
def _name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def begin(target: Any, drafter: Any, tokens: np.ndarray) -> Context:
    context = Context.begin(np.asarray(tokens, np.int64), 256)
    context = context.with_features(target.prefill(context.tokens[:-1], 256))
    drafter.start(context)
    return context


def same(a: Draft, b: Draft) -> bool:
    pairs = [(a.tokens, b.tokens), (a.parents, b.parents), (a.prob, b.prob)]
    return all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("nodes", [0, 1, 2, 7, 16, 64])
@pytest.mark.parametrize("depth", [1, 3, 16])
def test_drafts_keep_the_budget_and_reach_the_verifier_well_formed(
    name: str, nodes: int, depth: int, target: Any, answers: Any, resources: Resources
) -> None:
    drafter = make_drafter(name, resources, {})
    for tokens in (answers[0][:20], answers[1][:1], answers[2][:50], np.array([63] * 5)):
        context = begin(target, drafter, tokens)
        draft = drafter.propose(context, Budget(nodes, depth))
        assert len(draft) <= nodes
        assert draft.vocab_size == 64
        if len(draft):
            assert tree.depths(draft.parents).max() <= depth
            assert ((draft.prob >= 0) & (draft.prob <= 1)).all()
            assert (draft.sources > 0).all()
            assert ((draft.origins >= -1) & (draft.origins < len(resources.store.tokens))).all()
            for values in draft.signals.values():
                assert np.asarray(values).dtype == np.float32
        assert drafter.lookup_seconds() >= 0


def test_a_restart_forgets_the_sequence_before(
    name: str, target: Any, answers: Any, resources: Resources
) -> None:
    used, fresh = make_drafter(name, resources, {}), make_drafter(name, resources, {})
    begin(target, used, answers[3][:60])
    context = begin(target, used, answers[0][:30])
    again = begin(target, fresh, answers[0][:30])
    assert same(used.propose(context, Budget(16, 8)), fresh.propose(again, Budget(16, 8)))


def test_two_sequences_of_two_drafters_do_not_touch(
    name: str, target: Any, answers: Any, resources: Resources
) -> None:
    def alone(document: np.ndarray) -> list[Draft]:
        drafter = make_drafter(name, resources, {})
        return list(drafts(drafter, document))

    def drafts(drafter: Any, document: np.ndarray) -> Any:
        context = begin(target, drafter, document[:30])
        states = target.prefill(document[:-1], 256).states[FINAL_NORM]
        for at in range(30, 36):
            yield drafter.propose(context, Budget(8, 8))
            features = type(context.features)(at - 1, {FINAL_NORM: states[at - 1 : at]})
            context = context.extend((int(document[at]),), features)
            drafter.observe(context, Draft.empty(64), Verdict((), int(document[at])))

    one = drafts(make_drafter(name, resources, {}), answers[0])
    two = drafts(make_drafter(name, resources, {}), answers[1])
    pairs = list(zip(one, two, strict=True))
    assert all(same(a, b) for a, b in zip([p[0] for p in pairs], alone(answers[0]), strict=True))
    assert all(same(a, b) for a, b in zip([p[1] for p in pairs], alone(answers[1]), strict=True))


def law(sampling: Sampling, eos: tuple[int, ...] = ()) -> Law:
    import torch
    from transformers import GenerationConfig

    return Law(
        sampling,
        GenerationConfig(),
        prompt_len=PROMPT_LEN,
        max_new_tokens=NEW,
        eos=eos,
        device=torch.device("cpu"),
    )


SAMPLINGS = {
    "greedy": Sampling(),
    "T = 0.7": Sampling(temperature=0.7),
    "T = 1.5": Sampling(temperature=1.5),
    "repetition penalty": Sampling(settings={"repetition_penalty": 1.3}),
    "no repeated 3-gram": Sampling(settings={"no_repeat_ngram_size": 3}),
}


def steps_of(
    target: Any, resources: Resources, name: str, document: Any, sampling: Sampling, **how: Any
) -> list[Any]:
    draw = Keyed(5) if sampling.temperature else Greedy()
    drafter = make_drafter(name, resources, {})
    prompt = document[:PROMPT_LEN].tolist()
    new, nodes, eos = how.get("new", NEW), how.get("nodes", 16), how.get("eos", ())
    rule = law(sampling, eos)
    return run_steps(
        target, drafter, draw, prompt, new, verify=follow, nodes=nodes, law=rule, eos=eos
    )


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("store", ["own answers", "random ids"])
def test_the_text_is_that_of_plain_decoding(
    name: str,
    store: str,
    sampling: str,
    target: Any,
    answers: Any,
    resources: Resources,
    hostile: Resources,
) -> None:
    held = resources if store == "own answers" else hostile
    for document in answers[:2]:
        plain = steps_of(target, held, "plain", document, SAMPLINGS[sampling])
        steps = steps_of(target, held, name, document, SAMPLINGS[sampling])
        assert written(steps) == written(plain)


@pytest.mark.parametrize("name", ["rest", "suffix", "dresd", "hybrid"])
def test_blocks_of_own_answers_are_accepted(
    name: str, target: Any, answers: Any, resources: Resources
) -> None:
    steps = steps_of(target, resources, name, answers[0], Sampling())
    assert NEW / len(steps) > 2
    assert sum(s.accepted for s in steps) > NEW / 2


@pytest.mark.parametrize("name", GUESSING)
@pytest.mark.parametrize("nodes", [1, 4, 16, 64])
def test_the_shape_of_the_tree_alters_speed_only(
    name: str, nodes: int, target: Any, answers: Any, resources: Resources
) -> None:
    plain = written(steps_of(target, resources, "plain", answers[1], Sampling()))
    steps = steps_of(target, resources, name, answers[1], Sampling(), nodes=nodes)
    assert written(steps) == plain
    assert max(s.drafted for s in steps) <= nodes


@pytest.mark.parametrize("name", ["rest", "suffix", "dresd", "hybrid"])
def test_an_eos_in_the_middle_of_a_block_stops_there(
    name: str, target: Any, answers: Any, resources: Resources
) -> None:
    truth = answers[0][PROMPT_LEN : PROMPT_LEN + NEW].tolist()
    eos = next(t for i, t in enumerate(truth) if i >= 4 and t not in truth[:i])
    steps = steps_of(target, resources, name, answers[0], Sampling(), eos=(eos,))
    assert written(steps) == truth[: truth.index(eos) + 1]
    assert steps[-1].finish == "stop"
    assert max(s.accepted for s in steps) > 1


@pytest.mark.parametrize("name", ["rest", "suffix", "dresd", "hybrid"])
def test_without_a_store_the_error_names_the_command(name: str) -> None:
    options = {"sources": "suffix"} if name == "hybrid" else {}
    with pytest.raises(SpecretError, match="store") as caught:
        make_drafter(name, Resources(vocab_size=64, hidden_size=96), options)
    assert "specret build-index" in caught.value.hint


@pytest.mark.parametrize("name", GUESSING)
def test_an_option_of_another_name_is_refused(name: str, resources: Resources) -> None:
    with pytest.raises(SpecretError, match="no_such_option"):
        make_drafter(name, resources, {"no_such_option": 1})


def test_a_drafter_of_another_name_is_refused(resources: Resources) -> None:
    with pytest.raises(SpecretError, match="expected one of plain, rest"):
        make_drafter("medusa", resources, {})
