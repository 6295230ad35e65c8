"""One draw from one row: the argmax at temperature 0, keyed Gumbel noise above it.

In: an absolute position and processed logits (V,). Out: a token. Noise depends only on (seed,
position, token id): it is the same whether a position is reached with drafts or without, so a
seed writes one text; no global random state is read or touched.
Gumbel-max: argmax(logits + g) with independent standard Gumbel g is a draw from softmax(logits).
"""

from typing import Any, Protocol

import torch

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # odd constants of the splitmix64 finaliser, as signed
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


class Sampler(Protocol):
    """A draw that can also say what it maximises."""

    def __call__(self, position: int, logits: Any) -> int:
        """The token drawn."""

    def perturbed(self, position: int, logits: Any) -> Any:
        """The row whose argmax is the draw (V,)."""


class Greedy:
    """The most likely token; ties go to the smallest id."""

    def __call__(self, position: int, logits: torch.Tensor) -> int:
        """Argmax of the row."""
        return int(torch.argmax(logits))

    def perturbed(self, position: int, logits: torch.Tensor) -> torch.Tensor:
        """The logits themselves."""
        return logits


class Keyed:
    """A sample from softmax(logits) with noise keyed by (seed, position)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, position: int, logits: torch.Tensor) -> int:
        """Argmax of the perturbed row."""
        return int(torch.argmax(self.perturbed(position, logits)))

    def perturbed(self, position: int, logits: torch.Tensor) -> torch.Tensor:
        """Logits plus standard Gumbel noise, in double precision."""
        u = uniforms(self.seed, position, len(logits), logits.device)
        return logits.double() - torch.log(-torch.log(u))


def uniforms(seed: int, position: int, count: int, device: torch.device) -> torch.Tensor:
    """(count,) doubles in the open interval (0, 1), a pure function of the arguments.

    splitmix64 (Steele, Lea and Flood 2014) run over a counter, on the device, in wrapping
    64-bit integers: the same bits on every device.
    """
    key = _mix(torch.tensor([_signed(seed)]))
    key = _mix(key + _signed(position))
    counter = torch.arange(1, count + 1, dtype=torch.int64, device=device)
    bits = _mix(counter * _GOLDEN + key.to(device))
    # 52 bits and a half: never 0, and never rounded up to 1
    return ((bits >> 12) & ((1 << 52) - 1)).double().add_(0.5).mul_(2.0**-52)


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    # logical shift right: int64 shifts keep the sign
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value
