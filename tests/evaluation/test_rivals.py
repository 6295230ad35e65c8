import logging

import numpy as np
import pytest
import torch

from specret.evaluation.rivals import TransformersGenerate
from specret.evaluation.sample import Writing


def repeating(length=24, period=4):
    return np.resize(np.arange(40, 40 + period), length).astype(np.int64)


def test_generate_writes_what_plain_writes_and_tells_its_passes(engine):
    ours = engine.generate(repeating(), max_new_tokens=20).tokens.tolist()
    found = TransformersGenerate(engine.loaded).write(repeating(), Writing(20))
    assert list(found.tokens) == ours
    assert (found.prefill_tokens, found.accept_lengths) == (1, (1,) * (len(ours) - 1))
    assert found.decoded == len(ours) - 1
    assert found.prefill_s > 0
    assert found.decode_s > 0


@pytest.mark.parametrize("count", [3, 5, 10])
def test_lookup_writes_the_same_in_fewer_passes(engine, count):
    start = engine.generate(repeating(), max_new_tokens=100).tokens  # ends in a cycle
    prompt = np.concatenate([repeating(), start])
    plain = TransformersGenerate(engine.loaded).write(prompt, Writing(20))
    found = TransformersGenerate(engine.loaded, count).write(prompt, Writing(20))
    assert found.tokens == plain.tokens
    assert found.prefill_tokens + sum(found.accept_lengths) == len(found.tokens)
    assert max((*found.accept_lengths, found.prefill_tokens)) > 1, "nothing was accepted"
    assert found.drafted is None


def test_the_end_of_the_text_is_counted_once(engine):
    plain = engine.generate(repeating(), max_new_tokens=12).tokens.tolist()
    eos = engine.loaded.generation_config.eos_token_id
    try:
        engine.loaded.generation_config.eos_token_id = plain[3]
        found = TransformersGenerate(engine.loaded).write(repeating(), Writing(12))
        ours = engine.generate(repeating(), max_new_tokens=12).tokens.tolist()
    finally:
        engine.loaded.generation_config.eos_token_id = eos
    assert list(found.tokens) == ours
    assert ours[-1] == plain[3]
    assert len(ours) <= 4


def test_the_context_ends_where_ours_does(engine):
    prompt = repeating(engine.loaded.context_len - 3)
    ours = engine.generate(prompt, max_new_tokens=50)
    found = TransformersGenerate(engine.loaded).write(prompt, Writing(50))
    assert ours.finish == "context"
    assert list(found.tokens) == ours.tokens.tolist()


def test_sampling_leaves_the_global_generator_alone_and_repeats_with_its_seed(engine):
    method = TransformersGenerate(engine.loaded)
    before = torch.random.get_rng_state()
    one = method.write(repeating(), Writing(12, 1.0, seed=3)).tokens
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(7)
    assert method.write(repeating(), Writing(12, 1.0, seed=3)).tokens == one
    assert method.write(repeating(), Writing(12, 1.0, seed=4)).tokens != one
    assert method.same_text(0.0)
    assert not method.same_text(1.0)


@pytest.mark.parametrize("lookup", [0, 3])
def test_settings_of_the_model_count_and_nothing_is_warned_of(engine, lookup, monkeypatch, caplog):
    settings = engine.loaded.generation_config
    changes = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.5}
    for name, value in (changes | {"pad_token_id": None}).items():
        monkeypatch.setattr(settings, name, value)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    found = TransformersGenerate(engine.loaded, lookup).write(repeating(), Writing(16))
    assert list(found.tokens) == engine.generate(repeating(), max_new_tokens=16).tokens.tolist()
    TransformersGenerate(engine.loaded, lookup).write(repeating(), Writing(4, 0.7))
    assert not caplog.records
