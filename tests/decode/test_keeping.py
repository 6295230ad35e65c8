"""What is kept for training a head is what the model's own forward has there."""

import numpy as np
import pytest
import torch
from safetensors.torch import load
from writing_parts import NUMBERED, PROMPTS, manner_of, target_of

from specret.decode.batch import BatchTarget
from specret.decode.keeping import StateKeeper, kept_layers
from specret.decode.writing import BatchWriter, write
from specret.types import SpecretError


@pytest.mark.parametrize(
    ("count", "layers"), [(30, [2, 15, 27]), (6, [2, 3]), (2, [0, 1]), (1, [0])]
)
def test_an_early_a_middle_and_a_late_layer_are_kept(count, layers):
    assert kept_layers(count) == layers


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_kept_states_are_those_of_one_forward_over_prompt_and_answer(rows):
    target = target_of("llama")
    keeper = StateKeeper(target.model)
    writer = BatchWriter(target, manner_of(12, (5, 9), 0.0), keeper)
    layers = [int(name.removeprefix("layer_")) for name in keeper.names[:-1]]
    answers = list(writer.write(NUMBERED, rows, 64))
    assert len(answers) == len(PROMPTS)
    for answer in answers:
        text = np.concatenate([PROMPTS[answer.number], answer.tokens])
        with torch.inference_mode():
            ids = torch.from_numpy(text[None, :-1])
            out = target.model(ids, use_cache=False, output_hidden_states=True)
        # transformers counts the embedding as state 0, the input of layer 0
        expected = torch.stack([out.hidden_states[i][0] for i in (*layers, -1)], 1)
        assert answer.features.shape == expected.shape
        assert answer.features.dtype == torch.bfloat16
        torch.testing.assert_close(answer.features.float(), expected, rtol=1e-2, atol=1e-2)


def test_a_packed_file_tells_texts_and_layers_apart():
    keeper = StateKeeper(target_of("llama").model)
    count = len(keeper.names)
    texts = [torch.full((n, count, 4), n, dtype=torch.bfloat16) for n in (3, 0, 2)]
    texts[0][:, 0] = 7
    found = load(keeper.pack([texts[0], (), texts[2]]))
    assert found["lengths"].tolist() == [3, 0, 2]
    assert found[keeper.names[0]][:, 0].tolist() == [7, 7, 7, 2, 2]
    assert found["final_norm"].tolist() == [[3] * 4] * 3 + [[2] * 4] * 2
    assert found["final_norm"].dtype == torch.bfloat16
    assert load(keeper.pack([]))["lengths"].tolist() == []


def test_answers_are_the_same_and_nothing_stays_on_the_model():
    target = target_of("llama")
    manner = manner_of(12, (5, 9), 0.0)
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in target.model.modules()]
    bare = {a.number: a for a in write(BatchTarget(target, 3, 64), NUMBERED, manner)}
    writer = BatchWriter(target, manner, StateKeeper(target.model))
    for answer in writer.write(NUMBERED, 3, 64):
        np.testing.assert_array_equal(answer.tokens, bare[answer.number].tokens)
        np.testing.assert_array_equal(answer.states, bare[answer.number].states)
    assert all(answer.features is None for answer in bare.values())
    begun = writer.write(NUMBERED, 3, 64)
    next(begun)
    begun.close()
    left = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in target.model.modules()]
    assert left == hooks


def test_a_model_without_a_list_of_layers_is_refused_by_name():
    model = target_of("llama").model
    model.base_model.layers = torch.nn.ModuleList([*model.base_model.layers, torch.nn.Identity()])
    with pytest.raises(SpecretError, match="layers of LlamaForCausalLM cannot be found") as caught:
        StateKeeper(model)
    assert "--keep-features" in caught.value.hint
