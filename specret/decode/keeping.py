"""The states that training a draft head needs, copied from every pass while texts are written.

In: a transformers model. Out: inputs of three of its layers and the final norm's output, in bf16.
The layers are those of EAGLE-3: an early, a middle and a late one. Knows no text and no store.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import save

from specret.types import SpecretError

FINAL = "final_norm"


class StateKeeper:
    """Copies states of a model's passes.

    Args:
        model: a transformers model.

    Attributes:
        names: (K,) of the kept states, `layer_I` for the input of layer I.
        row_bytes: of one token's states.

    Raises:
        SpecretError: the model's layers cannot be found.
    """

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        self._body = model.base_model
        self._layers = _decoder_layers(model, int(config.num_hidden_layers))
        self._kept = kept_layers(len(self._layers))
        self.names = (*(f"layer_{i}" for i in self._kept), FINAL)
        self.row_bytes = 2 * len(self.names) * int(config.hidden_size)
        self._seen: dict[str, list[torch.Tensor]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Copy from every pass within; nothing is left on the model afterwards."""
        self._seen = {name: [] for name in self.names}
        hooks = [
            self._layers[i].register_forward_pre_hook(
                self._input_of(f"layer_{i}"), with_kwargs=True
            )
            for i in self._kept
        ]
        hooks.append(self._body.register_forward_hook(self._final))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._seen = {}

    def take(self) -> torch.Tensor:
        """(B, n, K, H) of all passes since the last call, tokens one after the other."""
        out = [torch.cat(parts, 1) for parts in self._seen.values() if parts]
        for parts in self._seen.values():
            parts.clear()
        return torch.stack(out, 2) if out else torch.empty(1, 0, len(self.names), 0)

    def pack(self, texts: Sequence[torch.Tensor]) -> bytes:
        """States (n, K, H) of each text as a safetensors file: a (tokens, H) tensor a name.

        `lengths` says how many tokens each text has; they stand one after the other.
        """
        some = [text for text in texts if len(text)]
        tensors = {
            name: torch.cat([text[:, k] for text in some]) if some else torch.empty(0)
            for k, name in enumerate(self.names)
        }
        return save({**tensors, "lengths": torch.tensor([len(text) for text in texts])})

    def _input_of(self, name: str) -> Any:
        def keep(_module: Any, args: Any, kwargs: Any) -> None:
            states = args[0] if args else kwargs["hidden_states"]
            self._seen[name].append(states.to("cpu", torch.bfloat16, copy=True))

        return keep

    def _final(self, _module: Any, _inputs: Any, output: Any) -> None:
        self._seen[FINAL].append(output.last_hidden_state.to("cpu", torch.bfloat16, copy=True))


def kept_layers(count: int) -> list[int]:
    """Of a model with so many layers 2, the middle one and the third from the end, ascending."""
    wanted = (2, count // 2, count - 3)
    return sorted({min(max(i, 0), count - 1) for i in wanted})


def _decoder_layers(model: Any, count: int) -> torch.nn.ModuleList:
    for module in model.base_model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise SpecretError(
        f"the {count} layers of {type(model).__name__} cannot be found, so their states cannot be "
        "kept",
        "build without --keep-features",
    )
