"""One forward over a tree is one forward per path; what is committed equals a fresh prefill."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Loaded, make_draft, tiny_model, tiny_target

from specret import tree
from specret.decode import mask
from specret.decode.target import TransformersTarget
from specret.types import FINAL_NORM, Context, Draft, SpecretError, Verdict

FAMILIES = {
    "llama, sdpa": ("llama", {}),
    "llama, eager": ("llama", {"attn": "eager"}),
    "mistral with a window of 8": ("mistral", {"sliding_window": 8}),
    "mistral with a window of 8, eager": ("mistral", {"sliding_window": 8, "attn": "eager"}),
    "gpt2, learned positions": ("gpt2", {}),
    "qwen2, biases": ("qwen2", {}),
    "gemma3, windows in some layers": (
        "gemma3",
        {
            "sliding_window": 8,
            "head_dim": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}

PROMPT = np.array([5, 9, 2, 2, 7, 30, 11, 5, 9, 1, 44, 3], np.int64)
TREE = ([4, 8, 15, 16, 23, 42, 8], [-1, -1, 0, 0, 1, 4, 2])


@pytest.fixture(scope="module", params=FAMILIES, name="target")
def _target(request: pytest.FixtureRequest) -> TransformersTarget:
    kind, changes = FAMILIES[request.param]
    return tiny_target(kind, **changes)


def own_logits(target: TransformersTarget, ids: list[int]) -> torch.Tensor:
    """The model's own forward, no cache and no mask of ours."""
    with torch.inference_mode():
        return target.model(torch.tensor([ids]), use_cache=False).logits[0]


def prefilled(target: TransformersTarget, prompt: np.ndarray = PROMPT) -> Context:
    context = Context.begin(prompt, 64)
    return context.with_features(target.prefill(prompt[:-1], 64))


def test_every_row_of_a_tree_scores_like_its_own_path(target: TransformersTarget) -> None:
    context = prefilled(target)
    draft = make_draft(*TREE, target.vocab_size)
    logits = target.score(context, draft).logits
    for row in range(len(draft) + 1):
        path = [int(draft.tokens[n]) for n in tree.path_to(draft.parents, row - 1)]
        own = own_logits(target, [*PROMPT.tolist(), *path])[-1]
        torch.testing.assert_close(logits[row], own, atol=1e-4, rtol=1e-4)


def test_after_a_commit_the_cache_equals_a_fresh_prefill(target: TransformersTarget) -> None:
    context = prefilled(target)
    draft = make_draft(*TREE, target.vocab_size)
    target.score(context, draft)
    features = target.commit(Verdict((1, 4, 5), 33))
    context = context.extend((8, 23, 42, 33), features)
    again = target.score(context, make_draft([2, 3], [-1, 0], target.vocab_size)).logits
    own = own_logits(target, [*context.tokens.tolist(), 2, 3])[-3:]
    torch.testing.assert_close(again, own, atol=1e-4, rtol=1e-4)


def test_features_are_the_states_the_lm_head_reads(target: TransformersTarget) -> None:
    context = prefilled(target)
    assert context.features is not None
    ids = torch.from_numpy(PROMPT[:-1].copy())[None]
    with torch.inference_mode():
        own = target.model.base_model(ids, use_cache=False).last_hidden_state[0]
    torch.testing.assert_close(context.features.states[FINAL_NORM], own, atol=1e-4, rtol=1e-4)
    target.score(context, make_draft(*TREE, target.vocab_size))
    kept = target.commit(Verdict((1, 4), 3))
    ids = torch.tensor([[*PROMPT.tolist(), 8, 23]])
    with torch.inference_mode():
        own = target.model.base_model(ids, use_cache=False).last_hidden_state[0, -3:]
    assert kept.first == len(PROMPT) - 1
    torch.testing.assert_close(kept.states[FINAL_NORM], own, atol=1e-4, rtol=1e-4)


def test_a_one_token_prompt_has_no_features_and_still_decodes(target: TransformersTarget) -> None:
    context = prefilled(target, PROMPT[:1])
    assert context.features is not None
    assert context.features.last(FINAL_NORM) is None
    logits = target.score(context, Draft.empty(target.vocab_size)).logits
    torch.testing.assert_close(
        logits, own_logits(target, PROMPT[:1].tolist()), atol=1e-4, rtol=1e-4
    )


def test_a_prompt_of_several_prefill_chunks_equals_one_forward() -> None:
    target = tiny_target(max_position_embeddings=2048)
    prompt = np.random.default_rng(0).integers(0, 64, 1300)
    context = Context.begin(prompt, 1400)
    features = target.prefill(prompt[:-1], 1400)
    logits = target.score(context.with_features(features), Draft.empty(64)).logits
    assert len(features.states[FINAL_NORM]) == 1299
    own = own_logits(target, prompt.tolist())[-1:]
    torch.testing.assert_close(logits, own, atol=1e-4, rtol=1e-4)


def test_the_cache_grows_past_the_capacity_it_was_promised() -> None:
    target = tiny_target()
    context = Context.begin(PROMPT, 64)
    context = context.with_features(target.prefill(PROMPT[:-1], 1))
    for token in range(20):
        target.score(context, Draft.empty(64))
        context = context.extend((token,), target.commit(Verdict((), token)))
    logits = target.score(context, Draft.empty(64)).logits
    own = own_logits(target, context.tokens.tolist())[-1:]
    torch.testing.assert_close(logits, own, atol=1e-4, rtol=1e-4)


@st.composite
def parents_arrays(draw: Any) -> np.ndarray:
    n = draw(st.integers(0, 12))
    return np.array([draw(st.integers(-1, i - 1)) for i in range(n)], np.int32)


@given(parents_arrays(), st.integers(0, 6), st.one_of(st.none(), st.integers(1, 8)))
@settings(max_examples=150, deadline=None)
def test_a_row_sees_its_ancestors_and_the_cache_within_the_window(
    parents: np.ndarray, cached: int, window: int | None
) -> None:
    seen = mask.visible(parents, cached, window)
    positions = mask.row_positions(parents, cached)
    for row in range(len(parents) + 1):
        above = {0, row, *(n + 1 for n in tree.path_to(parents, row - 1))}
        for column in range(cached + len(parents) + 1):
            if column < cached:
                allowed, at = True, column
            else:
                allowed, at = (column - cached) in above, int(positions[column - cached])
            if window is not None:
                allowed = allowed and int(positions[row]) - at < window
            assert seen[row, column] == allowed


def test_models_that_cannot_rewind_are_refused_by_name() -> None:
    mamba = transformers.MambaForCausalLM(
        transformers.MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=32, state_size=4)
    ).eval()
    with pytest.raises(SpecretError, match="MambaForCausalLM"):
        TransformersTarget(Loaded(mamba, 64))
    t5 = transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=32)
    ).eval()
    with pytest.raises(SpecretError, match="encoder-decoder"):
        TransformersTarget(Loaded(t5, 64))
    model = tiny_model("qwen2")
    model.config.layer_types = ["chunked_attention", "full_attention"]
    with pytest.raises(SpecretError, match="chunked_attention"):
        TransformersTarget(Loaded(model, 64))


def test_a_model_whose_positions_ignore_the_tree_is_refused() -> None:
    # ALiBi takes distances from the row index, so a tree would be scored wrongly
    bloom = transformers.BloomForCausalLM(
        transformers.BloomConfig(
            hidden_size=32, n_layer=1, n_head=2, vocab_size=32, initializer_range=0.5
        )
    ).eval()
    with pytest.raises(SpecretError, match="BloomForCausalLM"):
        TransformersTarget(Loaded(bloom, 64))
