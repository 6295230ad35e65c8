"""From logits to the law of the next token: one function for plain and drafted rows alike.

In: the model's generation config, the call's sampling options. Out: for each row and the path of
tokens that leads to it, processed logits whose softmax (or argmax) is the target's law.
Built from transformers' own processors, in the order of its `generate`; each row is processed
with its own path as prefix, so penalties never see a sibling. Knows no drafts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from transformers.generation import logits_process as hf

from specret.protocols import RowLaw
from specret.types import Context, Scores, SpecretError

REFUSED_SETTINGS: Mapping[str, Any] = {
    "guidance_scale": 1,
    "watermarking_config": None,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0,
    "penalty_alpha": 0,
    "dola_layers": None,
    "constraints": None,
    "force_words_ids": None,
    "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0,
    "token_healing": False,
    "num_return_sequences": 1,
    "max_time": None,
}
"""Settings of a generation config that drafts cannot keep exact, with the value that is off."""

REFUSED_PROCESSORS = (
    "UnbatchedClassifierFreeGuidanceLogitsProcessor",
    "ClassifierFreeGuidanceLogitsProcessor",
    "SynthIDTextWatermarkLogitsProcessor",
    "HammingDiversityLogitsProcessor",
    "WhisperTimeStampLogitsProcessor",
    "EncoderRepetitionPenaltyLogitsProcessor",
    "EncoderNoRepeatNGramLogitsProcessor",
)
"""Processors that keep a state between calls or run a model of their own."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    Args:
        temperature: 0 is greedy; the warpers below apply above 0 only.
        top_p, top_k: None takes the value of the model's generation config.
        processors: further logits processors, pure functions of (input_ids, scores).
        settings: overrides of the generation config by name (`repetition_penalty`, ...).
    """

    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    processors: Sequence[Any] = ()
    settings: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        checks = (
            ("temperature", self.temperature, 0 <= self.temperature < inf, ">= 0, finite"),
            ("top_p", self.top_p, self.top_p is None or 0 < self.top_p <= 1, "in (0, 1]"),
            ("top_k", self.top_k, self.top_k is None or self.top_k >= 0, ">= 0 (0: off)"),
        )
        for name, value, right, expected in checks:
            if not right:
                raise SpecretError(f"{name} is {value}, expected {expected}")


class Law:
    """The target's law for one call: processors in order, nothing else.

    Raises:
        SpecretError: a setting or processor that cannot be exact with drafts, by name.
    """

    def __init__(
        self,
        sampling: Sampling,
        generation_config: Any,
        *,
        prompt_len: int,
        max_new_tokens: int,
        eos: Sequence[int],
        device: torch.device,
    ) -> None:
        settings = generation_config.to_diff_dict() | dict(sampling.settings or {})
        _refuse(settings, sampling.processors)
        lengths = _Lengths(prompt_len, prompt_len + max_new_tokens, list(eos), str(device))
        self._processors = [make(settings[n], lengths) for n, make in _ALWAYS if _on(settings, n)]
        self._processors += sampling.processors
        if sampling.temperature > 0:
            self._processors += _warpers(sampling, settings)
        if settings.get("renormalize_logits"):
            self._processors.append(hf.LogitNormalization())
        self._device = device

    def rows(self, context: Context, scores: Scores) -> RowLaw:
        """The law of each row of one step."""
        if not self._processors:
            return lambda row, path: scores.logits[row]
        prefix = torch.from_numpy(context.tokens).to(self._device)

        def processed(row: int, path: tuple[int, ...]) -> torch.Tensor:
            ends = torch.tensor(path, dtype=torch.int64, device=self._device)
            ids = torch.cat([prefix, ends])[None]
            logits: torch.Tensor = scores.logits[row].float().clone()[None]
            for processor in self._processors:
                logits = processor(ids, logits)
            return logits[0]

        return processed


@dataclass(frozen=True, slots=True)
class _Lengths:
    prompt: int
    total: int
    eos: list[int]
    device: str


_Maker = Callable[[Any, _Lengths], Any]

_ALWAYS: tuple[tuple[str, _Maker], ...] = (
    ("sequence_bias", lambda v, n: hf.SequenceBiasLogitsProcessor(v)),
    ("repetition_penalty", lambda v, n: hf.RepetitionPenaltyLogitsProcessor(v)),
    ("no_repeat_ngram_size", lambda v, n: hf.NoRepeatNGramLogitsProcessor(v)),
    ("bad_words_ids", lambda v, n: hf.NoBadWordsLogitsProcessor(v, n.eos or None)),
    ("min_length", lambda v, n: hf.MinLengthLogitsProcessor(v, n.eos, device=n.device)),
    (
        "min_new_tokens",
        lambda v, n: hf.MinNewTokensLengthLogitsProcessor(n.prompt, v, n.eos, device=n.device),
    ),
    ("forced_bos_token_id", lambda v, n: hf.ForcedBOSTokenLogitsProcessor(v)),
    (
        "forced_eos_token_id",
        lambda v, n: hf.ForcedEOSTokenLogitsProcessor(n.total, v, device=n.device),
    ),
    ("remove_invalid_values", lambda v, n: hf.InfNanRemoveLogitsProcessor()),
    (
        "exponential_decay_length_penalty",
        lambda v, n: hf.ExponentialDecayLengthPenalty(v, n.eos, n.prompt),
    ),
    ("suppress_tokens", lambda v, n: hf.SuppressTokensLogitsProcessor(v, device=n.device)),
    (
        "begin_suppress_tokens",
        lambda v, n: hf.SuppressTokensAtBeginLogitsProcessor(v, n.prompt, device=n.device),
    ),
)
"""Processors of greedy and sampled decoding, in the order of transformers' `generate`."""

_OFF = {"repetition_penalty": 1.0, "min_length": 0, "min_new_tokens": 0, "no_repeat_ngram_size": 0}

_NEED_EOS = {"min_length", "min_new_tokens", "exponential_decay_length_penalty"}


def _on(settings: Mapping[str, Any], name: str) -> bool:
    value = settings.get(name)
    return value is not None and value is not False and value != _OFF.get(name)


def _warpers(sampling: Sampling, settings: Mapping[str, Any]) -> list[Any]:
    top_k = settings.get("top_k") if sampling.top_k is None else sampling.top_k
    top_p = settings.get("top_p") if sampling.top_p is None else sampling.top_p
    values: tuple[tuple[Any, Any, Callable[[Any], Any]], ...] = (
        (sampling.temperature, 1.0, lambda v: hf.TemperatureLogitsWarper(float(v))),
        (settings.get("top_h"), None, lambda v: hf.TopHLogitsWarper(v)),
        (top_k, 0, lambda v: hf.TopKLogitsWarper(v)),
        (top_p, 1.0, lambda v: hf.TopPLogitsWarper(v)),
        (settings.get("min_p"), None, lambda v: hf.MinPLogitsWarper(v)),
        (settings.get("typical_p"), 1.0, lambda v: hf.TypicalLogitsWarper(v)),
        (settings.get("epsilon_cutoff"), 0.0, lambda v: hf.EpsilonLogitsWarper(v)),
        (settings.get("eta_cutoff"), 0.0, lambda v: hf.EtaLogitsWarper(v)),
    )
    return [make(value) for value, off, make in values if value is not None and value != off]


def _refuse(settings: Mapping[str, Any], processors: Sequence[Any]) -> None:
    for name, off in REFUSED_SETTINGS.items():
        value = settings.get(name)
        if value is not None and value != off:
            raise SpecretError(
                f"the generation config sets {name}={value!r}, which drafts cannot keep exact",
                f"set {name}={off!r}, or decode with transformers' own generate",
            )
    for processor in processors:
        if type(processor).__name__ in REFUSED_PROCESSORS:
            raise SpecretError(
                f"{type(processor).__name__} keeps a state between calls; expected a pure "
                "function of (input_ids, scores)"
            )
