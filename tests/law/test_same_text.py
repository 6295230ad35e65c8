"""A drafter changes speed only: the same ids, greedy or sampled, with any tree, any processor."""

from typing import Any

import numpy as np
import pytest
import torch
from toys import Scripted, make_draft, no_guess, run_steps, tiny_target, written
from transformers import GenerationConfig

from specret.decode.draw import Greedy, Keyed
from specret.decode.law import Law, Sampling
from specret.decode.verify.follow import follow
from specret.types import Budget, Context, Draft, SpecretError

PROMPT = [5, 9, 2, 2, 7, 30, 11, 5]
NEW = 24


@pytest.fixture(scope="module", name="target")
def _target() -> Any:
    return tiny_target()


class Frequency:
    """Subtracts `penalty` per occurrence: depends on the whole prefix."""

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(ids[0], minlength=scores.shape[-1])
        return scores - self.penalty * counts


SAMPLINGS = {
    "greedy": Sampling(),
    "T = 0.7": Sampling(temperature=0.7),
    "T = 1.5": Sampling(temperature=1.5),
    "T = 1, top-p and top-k": Sampling(temperature=1.0, top_p=0.8, top_k=20),
    "repetition penalty": Sampling(settings={"repetition_penalty": 1.3}),
    "frequency penalty": Sampling(processors=(Frequency(2.0),)),
    "frequency bonus": Sampling(processors=(Frequency(-2.0),)),
    "no repeated 3-gram": Sampling(settings={"no_repeat_ngram_size": 3}),
    "sampled with a repetition penalty": Sampling(
        temperature=0.9, settings={"repetition_penalty": 1.3, "min_p": 0.02}
    ),
    "min new tokens": Sampling(settings={"min_new_tokens": 20}),
}

EOS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)


def law_of(sampling: Sampling, eos: tuple[int, ...] = ()) -> Law:
    return Law(
        sampling,
        GenerationConfig(),
        prompt_len=len(PROMPT),
        max_new_tokens=NEW,
        eos=eos,
        device=torch.device("cpu"),
    )


def decode(target: Any, drafter: Any, sampling: Sampling, seed: int = 0) -> list[Any]:
    draw = Keyed(seed) if sampling.temperature else Greedy()
    eos = EOS if "min_new_tokens" in (sampling.settings or {}) else ()
    law = law_of(sampling, eos)
    return run_steps(target, drafter, draw, PROMPT, NEW, verify=follow, law=law, eos=eos)


def oracle(truth: list[int], *, right: int, width: int) -> Scripted:
    """Proposes the next `right` true tokens as a spine, with wrong siblings around them."""

    def guess(context: Context, budget: Budget) -> Draft:
        done = len(context.tokens) - len(PROMPT)
        tokens: list[int] = []
        parents: list[int] = []
        spine = -1
        for token in truth[done : done + min(right, budget.max_depth)]:
            others = [(token + 1 + k) % 64 for k in range(width - 1)]
            first = len(tokens)
            tokens += [*others, token]
            parents += [spine] * width
            spine = first + width - 1
        keep = budget.max_nodes
        return make_draft(tokens[:keep], parents[:keep], 64)

    return Scripted(guess)


def random_trees(context: Context, budget: Budget) -> Draft:
    rng = np.random.default_rng([3, *context.tokens.tolist()])
    tokens: list[int] = []
    parents: list[int] = []
    for i in range(int(rng.integers(0, 10))):
        parent, token = int(rng.integers(-1, i)) if i else -1, int(rng.integers(64))
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
    return make_draft(tokens, parents, 64)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_every_tree_writes_what_plain_decoding_writes(target: Any, name: str) -> None:
    sampling = SAMPLINGS[name]
    truth = written(decode(target, no_guess(64), sampling))
    for right, width in [(1, 1), (3, 1), (10, 1), (2, 3), (4, 2)]:
        steps = decode(target, oracle(truth, right=right, width=width), sampling)
        assert written(steps) == truth
        assert len(steps) <= len(truth) // (right + 1) + 1, "the oracle's spine is accepted"
    rejected = decode(target, oracle([(t + 7) % 64 for t in truth], right=3, width=2), sampling)
    assert written(rejected) == truth
    assert sum(s.accepted for s in rejected) < len(truth) / 2
    assert written(decode(target, Scripted(random_trees), sampling)) == truth


@pytest.mark.parametrize("new", [1, 2, 3, 7])
@pytest.mark.parametrize("depth", [1, 3, 10])
def test_no_draft_length_writes_past_the_limit(target: Any, new: int, depth: int) -> None:
    law = law_of(Sampling())
    plain = run_steps(target, no_guess(64), Greedy(), PROMPT, 40, verify=follow, law=law)
    truth = written(plain)
    drafter = oracle(truth, right=depth, width=1)
    steps = run_steps(target, drafter, Greedy(), PROMPT, new, verify=follow, law=law)
    assert written(steps) == truth[:new]
    assert steps[-1].finish == "length"


def test_an_eos_inside_an_accepted_block_ends_the_text_there(target: Any) -> None:
    truth = written(decode(target, no_guess(64), Sampling()))
    eos = next(t for i, t in enumerate(truth) if i >= 4 and t not in truth[:i])
    end = truth.index(eos) + 1
    drafter = oracle(truth, right=10, width=1)
    steps = run_steps(target, drafter, Greedy(), PROMPT, NEW, verify=follow, eos=(eos,))
    assert written(steps) == truth[:end]
    assert steps[-1].finish == "stop"
    assert len(steps) < end, "blocks were accepted"
    assert sum(len(s.sources) for s in steps) == sum(len(s.origins) for s in steps) == end


@pytest.mark.parametrize("length", range(48, 65, 4))
def test_the_end_of_the_context_is_reached_alike_with_and_without_drafts(length: int) -> None:
    target = tiny_target("gpt2")
    prompt = np.random.default_rng(length).integers(0, 64, length).tolist()
    plain = run_steps(target, no_guess(64), Greedy(), prompt, 32, verify=follow)
    truth = written(plain)
    assert len(truth) == min(32, 65 - length)

    def spine(context: Context, budget: Budget) -> Draft:
        done = len(context.tokens) - length
        guess = truth[done : done + min(16, budget.max_depth, budget.max_nodes)]
        return make_draft(guess, list(range(-1, len(guess) - 1)), 64)

    steps = run_steps(target, Scripted(spine), Greedy(), prompt, 32, verify=follow)
    assert written(steps) == truth
    assert steps[-1].finish == ("context" if length > 33 else "length")
    assert len(steps) < max(2, len(truth))


def test_seeds_repeat_and_differ_and_leave_the_global_state_alone(target: Any) -> None:
    before = torch.random.get_rng_state()
    sampling = Sampling(temperature=2.0)
    texts = [written(decode(target, no_guess(64), sampling, seed=s)) for s in (42, 42, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len({tuple(t) for t in texts}) == 4
    assert torch.equal(before, torch.random.get_rng_state())
    greedy = [written(decode(target, no_guess(64), Sampling(), seed=s)) for s in (1, 2)]
    assert greedy[0] == greedy[1]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"guidance_scale": 2.0}, "guidance_scale"),
        ({"num_beams": 4}, "num_beams"),
        ({"penalty_alpha": 0.6}, "penalty_alpha"),
        ({"dola_layers": "high"}, "dola_layers"),
        ({"max_time": 1.0}, "max_time"),
    ],
)
def test_what_cannot_be_exact_is_refused_by_name(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(SpecretError, match=name):
        law_of(Sampling(settings=settings))


def test_a_processor_that_keeps_a_state_is_refused_by_name() -> None:
    from transformers import UnbatchedClassifierFreeGuidanceLogitsProcessor

    guidance = UnbatchedClassifierFreeGuidanceLogitsProcessor(1.5, None)
    with pytest.raises(SpecretError, match="UnbatchedClassifierFreeGuidance"):
        law_of(Sampling(processors=(guidance,)))


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
        {"min_length": 12, "suppress_tokens": [3, 4]},
        {"bad_words_ids": [[5], [9, 2]], "sequence_bias": [[[7], 2.0]]},
        {"temperature": 0.7, "top_k": 12, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9},
        {"begin_suppress_tokens": [30, 1, 2], "exponential_decay_length_penalty": (2, 1.2)},
        {"epsilon_cutoff": 0.01, "eta_cutoff": 0.01, "renormalize_logits": True},
        {"forced_eos_token_id": 9, "min_new_tokens": 2, "remove_invalid_values": True},
    ],
)
def test_the_law_equals_transformers_own_processors(target: Any, settings: dict[str, Any]) -> None:
    sampled = {"temperature", "epsilon_cutoff"} & set(settings)
    config = GenerationConfig(
        **settings,
        do_sample=bool(sampled),
        eos_token_id=9,
        max_length=len(PROMPT) + NEW,
    )
    model = target.model
    model._prepare_special_tokens(config, device="cpu")
    theirs = model._get_logits_processor(config, input_ids_seq_length=len(PROMPT), device="cpu")
    temperature = settings.get("temperature", 1.0 if sampled else 0.0)
    ours = Law(
        Sampling(temperature=temperature, settings=settings),
        GenerationConfig(),
        prompt_len=len(PROMPT),
        max_new_tokens=NEW,
        eos=(9,),
        device=torch.device("cpu"),
    )
    rng = np.random.default_rng(0)
    for extra in (0, 1, 5, NEW - 1):
        ids = [*PROMPT, *rng.integers(0, 64, extra).tolist()]
        context = Context.begin(np.array(ids, np.int64), 64)
        logits = torch.from_numpy(rng.normal(size=(1, 64)).astype(np.float32) * 3)
        from specret.types import Scores

        row = ours.rows(context, Scores(logits))(0, ())
        expected = theirs(torch.tensor([ids]), logits.clone())[0]
        torch.testing.assert_close(row, expected, atol=0, rtol=0)
