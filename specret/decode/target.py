"""The target: one transformers model that scores draft trees and keeps what was accepted.

In: tokens and drafts. Out: logits of every row, hidden states of the committed rows.
Knows no drafter, no sampling and no text.
"""

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from specret.decode import mask
from specret.decode.cache import PreallocatedCache
from specret.types import (
    FINAL_NORM,
    Context,
    Draft,
    Features,
    Scores,
    SpecretError,
    TokenArray,
    Verdict,
)

PREFILL_CHUNK = 512
"""Rows fed at once in prefill: bounds the mask and the activations of long prompts."""

Windows = dict[str, int | None]
"""Layer type -> how many positions back its rows see (None: all)."""

Seen = Callable[[int | None], np.ndarray]
"""Of such a number: (B or 1, rows, columns), may the row look at the column?"""


class Loaded(Protocol):
    """What the target needs of a loaded model (see specret.models.load)."""

    @property
    def model(self) -> Any:
        """The transformers model, in eval mode."""

    @property
    def device(self) -> torch.device:
        """Where it lives."""

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""

    @property
    def context_len(self) -> int:
        """Positions it can hold."""


class TransformersTarget:
    """A `Target` over any decoder-only transformers model; one sequence at a time.

    Raises:
        SpecretError: the model keeps a state that cannot be rewound (recurrent or chunked
            layers, encoder-decoder), or a rewound cache does not give the model's own logits.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.model = loaded.model
        self.device, self.dtype = loaded.device, loaded.dtype
        self.context_len = loaded.context_len
        config = self.model.config.get_text_config()
        self.vocab_size = int(config.vocab_size)
        self._windows = attention_windows(self.model)
        self._cache = PreallocatedCache(int(config.num_hidden_layers), 0)
        self._cache_name = _cache_argument(self.model)
        self._states: torch.Tensor | None = None
        self._start = 0
        self.model.base_model.register_forward_hook(self._keep_states)
        self._check_rewinding()

    def prefill(self, tokens: TokenArray, capacity: int) -> Features:
        """Start a sequence: feed `tokens` (T-1,), keep room for `capacity` rows.

        The LM head is not run: nobody reads its rows.
        """
        with torch.inference_mode():
            self._cache.restart(capacity)
        pieces = []
        for start in range(0, len(tokens), PREFILL_CHUNK):
            chunk = tokens[start : start + PREFILL_CHUNK]
            chain = np.arange(-1, len(chunk) - 2, dtype=np.int32)
            self._forward(self.model.base_model, chunk, chain)
            pieces.append(self._rows())
        states = torch.cat(pieces) if pieces else torch.empty(0, device=self.device)
        return Features(0, {FINAL_NORM: states})

    def score(self, context: Context, draft: Draft) -> Scores:
        """Logits (N+1, V) of the newest token's row and of every node's row."""
        self._start = self._cache.length
        assert self._start == len(context.tokens) - 1, "the newest token is not yet fed"
        rows = np.concatenate([context.tokens[-1:], draft.tokens])
        logits = self._forward(self.model, rows, draft.parents).logits[0]
        if self.device.type == "cuda":  # the first draw waits anyway; so the time is counted here
            torch.cuda.synchronize(self.device)
        return Scores(logits)

    def commit(self, verdict: Verdict) -> Features:
        """Keep the root's row and the accepted path; returns the states of the kept rows."""
        rows = [0, *(node + 1 for node in verdict.path)]
        with torch.inference_mode():
            self._cache.keep(self._start, rows)
        return Features(self._start, {FINAL_NORM: self._rows()[rows]})

    def run(
        self, module: Any, tokens: np.ndarray, positions: np.ndarray, seen: Seen, cache: Any
    ) -> Any:
        """One pass of the model or its body over any cache; the states are kept for `states`.

        Args:
            module: the model, or its body where the LM head is not wanted.
            tokens: (B, n) ids.
            positions: (B, n) absolute positions.
            seen: (B or 1, n, columns) which column each row may look at, for a window or None.
            cache: what holds the rows before.
        """
        masks = {
            kind: mask.additive(seen(window), self.dtype, self.device)
            for kind, window in self._windows.items()
        }
        inputs: dict[str, Any] = {
            "input_ids": torch.from_numpy(tokens).to(self.device),
            "position_ids": torch.from_numpy(positions).to(self.device),
            "attention_mask": masks if len(masks) > 1 else next(iter(masks.values())),
            self._cache_name: cache,
            "use_cache": True,
        }
        with torch.inference_mode():
            return module(**inputs)

    @property
    def states(self) -> torch.Tensor:
        """(B, n, H) after the final norm, of the last pass."""
        assert self._states is not None
        return self._states

    @property
    def cache(self) -> PreallocatedCache:
        """Of the sequence at hand."""
        return self._cache

    def _forward(self, module: Any, tokens: TokenArray, parents: np.ndarray) -> Any:
        cached = self._cache.length
        with torch.inference_mode():
            self._cache.reserve(len(tokens))
        return self.run(
            module,
            tokens[None],
            mask.row_positions(parents, cached)[None],
            lambda window: mask.visible(parents, cached, window)[None],
            self._cache,
        )

    def _keep_states(self, _module: Any, _inputs: Any, output: Any) -> None:
        self._states = output.last_hidden_state

    def _rows(self) -> torch.Tensor:
        return self.states[0]

    def _check_rewinding(self) -> None:
        """Commit the second branch of a small tree and compare with the model's own forward."""
        try:
            gap, scale = self._rewinding_gap()
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise SpecretError(
                f"{type(self.model).__name__} cannot score a draft tree: {error}",
                "specret needs a decoder-only model that takes 4-D attention masks",
            ) from error
        if not gap <= (1e-3 if self.dtype == torch.float32 else 0.1) * max(1.0, scale):
            raise SpecretError(
                f"{type(self.model).__name__}: logits after a rewind differ by {gap:.2g} from the "
                "model's own; it cannot be decoded with drafts exactly"
            )

    def _rewinding_gap(self) -> tuple[float, float]:
        ids = np.array([3, 1, 4, 1, 5], np.int64) % self.vocab_size
        side = (ids[1] + 1) % self.vocab_size
        context = Context.begin(ids, len(ids) + 3)
        draft = Draft(
            np.array([ids[1], side, ids[2]], np.int64),
            np.array([-1, -1, 1], np.int32),
            np.ones(3, np.float32),
            self.vocab_size,
            np.zeros(3, np.uint8),
            np.full(3, -1, np.int64),
        )
        self.prefill(ids[:-1], 16)
        self.score(context, draft)
        self.commit(Verdict((1, 2), int(ids[0])))
        longer = context.extend((int(side), int(ids[2]), int(ids[0])), None)
        rewound = self.score(longer, Draft.empty(self.vocab_size)).logits[0].float()
        with torch.inference_mode():
            whole = torch.from_numpy(longer.tokens.copy()).to(self.device)[None]
            own = self.model(whole, use_cache=False).logits[0, -1].float()
        return float((rewound - own).abs().max()), float(own.abs().max())


def attention_windows(model: Any) -> Windows:
    """The kinds of attention in a model and how far each looks back.

    Raises:
        SpecretError: encoder-decoder models, and layers whose state cannot be rewound.
    """
    name, config = type(model).__name__, model.config.get_text_config()
    if getattr(model.config, "is_encoder_decoder", False):
        raise SpecretError(f"{name} is an encoder-decoder, expected a decoder-only language model")
    if getattr(model, "_is_stateful", False):
        raise SpecretError(f"{name} keeps a recurrent state; rejected drafts cannot be taken back")
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return {"full_attention": window}
    known = {"full_attention": None, "sliding_attention": window}
    for kind in kinds:
        if kind not in known:
            raise SpecretError(
                f"{name} has layers of type {kind!r}; rejected drafts cannot be taken back there"
            )
    return {kind: known[kind] for kind in dict.fromkeys(kinds)}


def _cache_argument(model: Any) -> str:
    # transformers 5.24 renamed the argument
    known = inspect.signature(model.forward).parameters
    return "cache" if "cache" in known else "past_key_values"
