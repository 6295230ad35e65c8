"""The same parts on a GPU: skipped with the reason where there is none."""

import numpy as np
import pytest
import torch
from toys import Loaded, make_draft, no_guess, run_steps, tiny_model, written

from specret.decode.draw import Greedy, Keyed, uniforms
from specret.decode.target import TransformersTarget
from specret.decode.verify.follow import follow

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def on(device: str) -> TransformersTarget:
    model = tiny_model().to(device)
    return TransformersTarget(Loaded(model, 128, torch.device(device)))


@pytest.mark.parametrize("draw", [Greedy(), Keyed(3)], ids=["greedy", "sampled"])
def test_the_text_of_the_gpu_is_that_of_the_cpu(draw) -> None:
    prompt = [5, 9, 2, 2, 7, 30]
    texts = [
        written(run_steps(on(d), no_guess(64), draw, prompt, 24, verify=follow))
        for d in ("cpu", "cuda")
    ]
    assert texts[0] == texts[1]


def test_noise_has_the_same_bits_on_both() -> None:
    cpu, gpu = (uniforms(7, 3, 50_000, torch.device(d)).cpu() for d in ("cpu", "cuda"))
    assert torch.equal(cpu, gpu)


def test_a_tree_scores_alike_on_both() -> None:
    from specret.types import Context

    prompt = np.array([5, 9, 2, 2, 7, 30], np.int64)
    draft = make_draft([4, 8, 15, 16], [-1, -1, 0, 1], 64)
    logits = []
    for device in ("cpu", "cuda"):
        target = on(device)
        context = Context.begin(prompt, 64)
        context = context.with_features(target.prefill(prompt[:-1], 64))
        logits.append(target.score(context, draft).logits.cpu())
    torch.testing.assert_close(logits[0], logits[1], atol=1e-3, rtol=1e-3)
