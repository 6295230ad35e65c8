"""States of a batch are the states of its texts alone: padding never shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_folder import save_tiny

from specret.models.encoder import TransformersEncoder
from specret.models.load import LoadedModel, load_model

FAMILIES = {
    "llama": ("llama", {}),
    "mistral with a window of 4": ("mistral", {"sliding_window": 4}),
    "qwen2": ("qwen2", {}),
    "gpt2, learned positions": ("gpt2", {}),
    "gemma3, windows in some layers": (
        "gemma3",
        {
            "sliding_window": 4,
            "head_dim": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}
WINDOWS = [np.arange(9) + 70, np.arange(5) + 90, np.array([276, 3, 276]), np.arange(30) % 7]


@pytest.fixture(scope="module", params=FAMILIES, name="loaded")
def _loaded(request: pytest.FixtureRequest, tmp_path_factory: Any) -> LoadedModel:
    kind, changes = FAMILIES[request.param]
    folder: Path = tmp_path_factory.mktemp("model")
    # pad = EOS is the case where a mask made from ids goes wrong
    return load_model(save_tiny(folder, kind, pad_token_id=276, **changes), device="cpu")


def own_states(loaded: LoadedModel, window: np.ndarray) -> np.ndarray:
    """What the LM head reads, from the whole model's own forward."""
    with torch.inference_mode():
        out = loaded.model(torch.from_numpy(window)[None], output_hidden_states=True)
    return out.hidden_states[-1][0].numpy()


@pytest.mark.parametrize("batch_tokens", [1, 20, 4096])
def test_states_of_a_batch_equal_those_of_each_text_alone(
    loaded: LoadedModel, batch_tokens: int
) -> None:
    states = TransformersEncoder(loaded, batch_tokens=batch_tokens).encode(WINDOWS)
    for window, rows in zip(WINDOWS, states, strict=True):
        np.testing.assert_allclose(rows, own_states(loaded, window), atol=1e-4)


def test_states_are_what_the_lm_head_reads(loaded: LoadedModel) -> None:
    window = WINDOWS[0]
    rows = TransformersEncoder(loaded).encode([window])[0]
    with torch.inference_mode():
        logits = loaded.model(torch.from_numpy(window)[None]).logits[0]
        again = loaded.model.get_output_embeddings()(torch.from_numpy(rows))
    torch.testing.assert_close(again, logits, atol=1e-4, rtol=0)


def test_no_batch_is_larger_than_allowed(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = TransformersEncoder(loaded, batch_tokens=64)
    sizes = []
    forward = encoder._forward
    monkeypatch.setattr(
        encoder, "_forward", lambda w: sizes.append(len(w) * max(map(len, w))) or forward(w)
    )
    encoder.encode([np.arange(n) % 50 for n in (3, 20, 21, 22, 60, 1, 1, 8)])
    assert len(sizes) > 1
    assert max(sizes) <= 64


def test_no_windows_and_empty_windows_have_no_rows(loaded: LoadedModel) -> None:
    encoder = TransformersEncoder(loaded)
    assert encoder.encode([]) == []
    empty, one = encoder.encode([np.empty(0, np.int64), np.array([5])])
    assert (empty.shape, one.shape) == ((0, encoder.width), (1, encoder.width))
