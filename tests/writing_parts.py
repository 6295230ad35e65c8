"""Prompts, a target and a manner for tests of answers written together."""

import numpy as np
import torch
import transformers
from toys import Loaded, tiny_model

from specret.decode.draw import Greedy, Keyed
from specret.decode.law import Law, Sampling
from specret.decode.stopping import Limits
from specret.decode.target import TransformersTarget
from specret.decode.writing import Manner

CPU = torch.device("cpu")
RNG = np.random.default_rng(3)
PROMPTS = [RNG.integers(0, 64, int(n)) for n in (9, 1, 17, 4, 30, 2, 12)]

NUMBERED = list(enumerate(PROMPTS))


def target_of(kind, **changes):
    model = tiny_model(kind, **changes)
    return TransformersTarget(Loaded(model, 128))


def manner_of(new, eos, temperature):
    def law(prompt_len):
        sampling = Sampling(temperature)
        return Law(
            sampling,
            transformers.GenerationConfig(top_k=0),
            prompt_len=prompt_len,
            max_new_tokens=new,
            eos=eos,
            device=CPU,
        )

    draw = (lambda number: Keyed(number)) if temperature else (lambda number: Greedy())
    return Manner(law, draw, Limits(new, frozenset(eos), (), 128))
