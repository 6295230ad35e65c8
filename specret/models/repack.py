"""Linear layers whose weights oneDNN has packed once, for targets on a CPU.

In: any transformers model in eval mode. Out: the same model, its `nn.Linear` modules swapped.
torch packs a weight anew at every call, which for a few rows costs as much as the product itself.
Knows no decoding; other kinds of layer (GPT-2's Conv1D) are left alone.
"""

import torch
from torch import nn

ROWS_HINT = 16
"""Rows for which oneDNN picks the packed layout."""


class PackedLinear(nn.Module):
    """`nn.Linear` for inference over a prepacked weight: (..., in) -> (..., out).

    It cannot be moved, cast, trained or saved; load the model again for that.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dtype = linear.weight.dtype
        self.bias = linear.bias
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS_HINT)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The product, plus the bias where there is one."""
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self.bias, "none", [], ""
        )
        return out

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}, dtype={self.dtype}"


def repack_linears(model: nn.Module) -> nn.Module:
    """Swap every `nn.Linear` on the CPU for a `PackedLinear`; returns the model.

    An embedding that shares its weight with the LM head keeps it. Weights of a dtype that this
    CPU's oneDNN does not multiply stay as they are.
    """
    packed: dict[nn.Module, PackedLinear] = {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children skips a second use
            if type(child) is nn.Linear and can_pack(child.weight):
                if child not in packed:
                    packed[child] = PackedLinear(child)
                setattr(parent, name, packed[child])
    return model


def has_onednn() -> bool:
    """Whether this torch was built with oneDNN."""
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def can_pack(weight: torch.Tensor) -> bool:
    """Whether oneDNN packs and multiplies such a weight here."""
    if weight.device.type != "cpu" or not has_onednn():
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if weight.dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return weight.dtype == torch.float32
