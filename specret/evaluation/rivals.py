"""Transformers' own `generate` on the very module that specret decodes with: plain and lookup.

In: a loaded model and prompt ids. Out: `Sample`s. Knows no drafter and no store.
Timing: `generate` runs its prefill inside, so a streamer notes when tokens arrive. All up to the
first arrival is prefill (with the set-up of the call), all after it is decode. The first arrival
is the prefill's own token (with lookup: and what it guessed right along with it); these tokens
are left out of speed and of tokens per pass, like the time that they took.
"""

from time import perf_counter
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from specret.evaluation.sample import Sample, Writing
from specret.models.load import LoadedModel
from specret.types import TokenArray

LOOKUP_TOKENS = (3, 5, 10)
"""Guessed tokens per pass that `hf-lookup` is tried with; reports keep the fastest."""


class TransformersGenerate:
    """`model.generate` with its default cache: greedy or sampled, with or without lookup.

    Sampling draws from torch's global generator (seeded here, restored afterwards), so above
    temperature 0 its text is another one than that of a specret seed.
    """

    def __init__(self, loaded: LoadedModel, lookup: int = 0) -> None:
        self.name = f"hf-lookup/{lookup}" if lookup else "hf-generate"
        self.nodes = lookup
        self._loaded = loaded

    def same_text(self, temperature: float) -> bool:
        """Greedy only."""
        return temperature == 0

    def write(self, prompt: TokenArray, how: Writing) -> Sample:
        """Answer one prompt (T,)."""
        arrivals = _Arrivals()
        ids = torch.from_numpy(prompt).to(self._loaded.device)[None]
        options = self._options(len(prompt), how)
        with _seeded(how.seed, self._loaded.device):
            started = perf_counter()
            out = self._loaded.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                streamer=arrivals,
                **options,
            )
            finished = perf_counter()
        tokens = tuple(int(t) for t in out[0, len(prompt) :])
        first, *later = arrivals.counts
        assert first + sum(later) == len(tokens)
        return Sample(
            tokens,
            self._loaded.tokenizer.decode(list(tokens), skip_special_tokens=True),
            accept_lengths=tuple(later),
            drafted=None if self.nodes else (0,) * len(later),
            accepted=None if self.nodes else 0,
            seconds=None,
            decode_s=finished - arrivals.first_at,
            prefill_s=arrivals.first_at - started,
            prefill_tokens=first,
        )

    def _options(self, prompt_len: int, how: Writing) -> dict[str, Any]:
        """Over the model's own generation config, which `generate` reads itself."""
        # the one end that `generate` does not know: the last position of the context
        room = self._loaded.context_len + 1 - prompt_len
        options: dict[str, Any] = {
            "max_new_tokens": min(how.max_new_tokens, room),
            "do_sample": how.temperature > 0,
        }
        if how.temperature > 0:
            options["temperature"] = how.temperature
        if self._loaded.generation_config.pad_token_id is None:
            options["pad_token_id"] = 0  # nothing is padded, but without one it warns
        if self.nodes:
            options["prompt_lookup_num_tokens"] = self.nodes
        return options


class _Arrivals(BaseStreamer):
    """Notes how many tokens arrived together, and when the first ones did."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.first_at = 0.0
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt_seen:  # generate streams the prompt first
            self._prompt_seen = True
            return
        if not self.counts:
            self.first_at = perf_counter()
        self.counts.append(value.numel())

    def end(self) -> None:
        """Nothing is held back."""


def _seeded(seed: int, device: torch.device) -> Any:
    """A stretch in which torch's global generator starts from `seed`, restored after it."""
    return _Seeded(seed, [device] if device.type == "cuda" else [])


class _Seeded:
    def __init__(self, seed: int, devices: list[torch.device]) -> None:
        self._seed = seed
        self._fork = torch.random.fork_rng(devices)

    def __enter__(self) -> None:
        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *failure: Any) -> None:
        self._fork.__exit__(*failure)
