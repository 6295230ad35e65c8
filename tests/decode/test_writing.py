"""A batch writes what the loop writes alone."""

import gc
import weakref

import numpy as np
import pytest
import torch
from writing_parts import NUMBERED, PROMPTS, manner_of, target_of

from specret.decode.batch import BatchTarget
from specret.decode.draw import Greedy, Keyed
from specret.decode.writing import write


def alone(target, number, new, eos, temperature):
    """The model's own forward over the whole text, token by token."""
    text = PROMPTS[number].tolist()
    draw = Keyed(number) if temperature else Greedy()
    states = []
    for _ in range(new):
        with torch.inference_mode():
            out = target.model(torch.tensor([text]), use_cache=False, output_hidden_states=True)
        logits = out.logits[0, -1]
        states.append(out.hidden_states[-1][0, -1].numpy())
        token = draw(len(text), logits / temperature if temperature else logits)
        text.append(token)
        if token in eos:
            break
    return text[len(PROMPTS[number]) :], np.array(states[1:])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [("llama", {}), ("llama", {"attn": "eager"}), ("mistral", {"sliding_window": 8})],
)
def test_a_batch_of_any_size_writes_what_each_prompt_gets_alone(kind, changes, rows, temperature):
    target, new, eos = target_of(kind, **changes), 14, [5, 6, 7]
    batch = BatchTarget(target, rows, 64)
    answers = {a.number: a for a in write(batch, NUMBERED, manner_of(new, eos, temperature))}
    assert sorted(answers) == list(range(len(PROMPTS)))
    for number, answer in answers.items():
        tokens, states = alone(target, number, new, eos, temperature)
        assert answer.tokens.tolist() == tokens
        assert answer.states.shape == (len(tokens) - 1, 64)
        if len(tokens) > 1:
            np.testing.assert_allclose(answer.states, states, atol=1e-4)
    lengths = {len(a.tokens) for a in answers.values()}
    assert len(lengths) > 1, "every answer has one length: no row was ever replaced early"
    assert batch.rows == 0


def test_a_finished_batch_is_freed_without_the_collector():
    batch = BatchTarget(target_of("llama"), 2, 64)
    batch.begin(PROMPTS[0])
    batch.step(PROMPTS[0][-1:])
    buffers = weakref.ref(batch._cache)
    gc.collect()
    gc.disable()
    try:
        del batch
        assert buffers() is None
    finally:
        gc.enable()


def test_nothing_to_write_is_an_empty_answer():
    batch = BatchTarget(target_of("llama"), 2, 64)
    answers = list(write(batch, NUMBERED, manner_of(0, [], 0.0)))
    assert [len(a.tokens) for a in answers] == [0] * len(PROMPTS)
