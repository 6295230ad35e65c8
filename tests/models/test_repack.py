"""Repacked linear layers compute what they computed before, in every family."""

from typing import Any

import pytest
import torch
from torch import nn
from toys import tiny_model

from specret.models.repack import PackedLinear, can_pack, repack_linears

FAMILIES = {
    "llama": ("llama", {}),
    "llama, head tied to the embedding": ("llama", {"tie_word_embeddings": True}),
    "llama, odd widths": ("llama", {"hidden_size": 40, "intermediate_size": 77}),
    "mistral with a window of 8": ("mistral", {"sliding_window": 8}),
    "qwen2, biases": ("qwen2", {}),
    "gpt2, Conv1D left alone, head tied": ("gpt2", {}),
    "gpt2, wider": ("gpt2", {"hidden_size": 96}),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 2, 9, 40])
def test_logits_stay_within_1e_4(family: str, rows: int) -> None:
    kind, changes = FAMILIES[family]
    model = tiny_model(kind, **changes)
    ids = torch.arange(rows)[None] % 64
    with torch.inference_mode():
        before = model(ids).logits
        repack_linears(model)
        after = model(ids).logits
    assert isinstance(model.get_output_embeddings(), PackedLinear)
    assert not any(type(m) is nn.Linear for m in model.modules())
    torch.testing.assert_close(after, before, atol=1e-4, rtol=0)


def test_a_tied_embedding_keeps_its_weight() -> None:
    model = tiny_model("llama", tie_word_embeddings=True)
    weight = model.get_input_embeddings().weight
    repack_linears(model)
    assert model.get_input_embeddings().weight is weight


def test_a_module_used_twice_is_packed_once() -> None:
    shared = nn.Linear(8, 8).requires_grad_(False)
    model = repack_linears(nn.ModuleDict({"a": shared, "b": shared, "c": nn.Linear(8, 8)}))
    assert isinstance(model, nn.ModuleDict)
    assert model["a"] is model["b"] is not model["c"]


def test_original_weights_are_released() -> None:
    model = tiny_model("llama")
    repack_linears(model)
    embedding = model.get_input_embeddings().weight
    norms = [m.weight for name, m in model.named_modules() if "norm" in name]
    left = sum(p.numel() for p in model.parameters())
    assert left == embedding.numel() + sum(n.numel() for n in norms)


def test_a_packed_layer_tells_its_sizes() -> None:
    packed = PackedLinear(nn.Linear(3, 5))
    assert repr(packed) == (
        "PackedLinear(in_features=3, out_features=5, bias=True, dtype=torch.float32)"
    )


def test_what_onednn_does_not_multiply_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    double: Any = nn.ModuleDict({"a": nn.Linear(4, 4, dtype=torch.float64)})
    assert type(repack_linears(double)["a"]) is nn.Linear  # type: ignore[index]
    monkeypatch.setattr("specret.models.repack.has_onednn", lambda: False)
    assert not can_pack(torch.zeros(4, 4))
