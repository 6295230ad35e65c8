"""The Python face: load a model with a drafter and a store, then write text.

In: prompts, messages or ids. Out: text, ids and one record per pass of the target.
Puts the parts together and owns none of their logic.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from specret.datastore.store import Store, open_stores
from specret.decode.call import Call, Chunk, Result
from specret.decode.gap import top2_gap
from specret.decode.keeping import StateKeeper
from specret.decode.law import Law
from specret.decode.loop import Decoding, begin, decode
from specret.decode.prices import measure_prices
from specret.decode.stopping import Limits, Stopping
from specret.decode.target import TransformersTarget
from specret.decode.writing import BatchWriter, Manner
from specret.hybrid.budget import nodes_for
from specret.hybrid.fused import FusedDrafter
from specret.models.load import LoadedModel, load_model
from specret.registry import Resources, load_verifier, make_drafter, need_store, needs_store
from specret.types import Budget, Context, Prices, SpecretError, TokenArray

MAX_DEPTH = 16
"""No draft is deeper than this many tokens."""

Prompt = str | Sequence[Mapping[str, str]] | TokenArray
"""Text, chat messages ({"role", "content"}), or token ids."""


def load(
    model: str | None = None,
    *,
    drafter: str = "hybrid",
    store: str | Path | Store | Sequence[str | Path | Store] | None = None,
    dtype: str = "auto",
    device: str = "auto",
    threads: int | None = None,
    nodes: int | str = "auto",
    options: Mapping[str, Any] | None = None,
) -> "Engine":
    """Load a target, open a store, and put a drafter before it.

    Args:
        model: folder or hub id of a transformers model; None: the packaged small model.
        drafter: a name of the registry (plain, rest, suffix, dresd, prompt, hybrid).
        store: folder of a datastore built for this model, an open one, or several of either:
            hybrid reads them all, other drafters the first.
        dtype: auto, float32, bfloat16 or float16.
        device: auto, cpu or cuda.
        threads: CPU threads; None leaves torch's own number.
        nodes: draft nodes per step, or auto: what the measured prices make best.
        options: the drafter's own options, e.g. {"sources": "suffix,prompt"} for hybrid.

    Raises:
        SpecretError: what was asked does not exist or does not fit, with the cure.
    """
    loaded = load_model(model, dtype=dtype, device=device, threads=threads)
    given = [] if store is None else [store] if isinstance(store, str | Path | Store) else store
    opened = open_stores(given, loaded.fingerprint)
    return Engine(
        Parts(loaded, TransformersTarget(loaded), opened),
        drafter=drafter,
        nodes=nodes,
        options=options or {},
    )


@dataclass(slots=True)
class Parts:
    """What engines with different drafters share. Prices are measured when first needed."""

    loaded: LoadedModel
    target: TransformersTarget
    stores: tuple[Store, ...] = ()
    prices: Prices | None = None


class Engine:
    """A target with a drafter. One sequence at a time; not to be shared between threads."""

    def __init__(
        self, parts: Parts, *, drafter: str, nodes: int | str, options: Mapping[str, Any]
    ) -> None:
        self._parts = parts
        self.loaded, self.target, self.stores = parts.loaded, parts.target, parts.stores
        self.tokenizer = parts.loaded.tokenizer
        self.drafter_name, self.options, self.asked_nodes = drafter, dict(options), nodes
        self.resources = Resources(
            vocab_size=self.target.vocab_size,
            hidden_size=self.loaded.fingerprint.hidden_size,
            store=self.store,
            further=parts.stores[1:],
        )
        if needs_store(drafter, options):
            need_store(self.resources, drafter)
        self.drafter = make_drafter(drafter, self.resources, options)
        self.nodes = self._count_nodes(nodes)

    @property
    def store(self) -> Store | None:
        """The first of its stores, which every drafter reads."""
        return self.stores[0] if self.stores else None

    @property
    def prices(self) -> Prices:
        """T(rows) of the target; measured at first use, cached per device, dtype and threads."""
        if self._parts.prices is None:
            self._parts.prices = measure_prices(self.target, self.loaded)
        return self._parts.prices

    def using(
        self,
        drafter: str,
        *,
        nodes: int | str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> "Engine":
        """The same target and store with another drafter."""
        return Engine(
            self._parts,
            drafter=drafter,
            nodes=self.asked_nodes if nodes is None else nodes,
            options=options or {},
        )

    def encode(self, prompt: Prompt, chat: bool | None = None) -> TokenArray:
        """Token ids (T,) of a prompt.

        Messages go through the model's chat template, and so does text where `chat` is true;
        None means: where the tokenizer has a template.

        Raises:
            SpecretError: no token, an id outside the vocabulary, more tokens than the context
                holds, or a chat asked of a tokenizer that has no template.
        """
        ids = self.tokenize(prompt, chat)
        vocab_size, context_len = self.target.vocab_size, self.target.context_len
        if len(ids) == 0:
            raise SpecretError("the prompt is empty, expected at least one token")
        outside = ids[(ids < 0) | (ids >= vocab_size)]
        if len(outside):
            raise SpecretError(
                f"the prompt holds id {outside[0]}, expected ids from 0 to {vocab_size - 1}"
            )
        if len(ids) > context_len:
            raise SpecretError(
                f"the prompt has {len(ids)} tokens, the model's context holds {context_len}",
                "shorten the prompt",
            )
        return ids

    def tokenize(self, prompt: Prompt, chat: bool | None = None) -> TokenArray:
        """As `encode`, but of any number of tokens.

        Raises:
            SpecretError: a chat asked of a tokenizer that has no template.
        """
        if isinstance(prompt, np.ndarray):
            return prompt.astype(np.int64)
        return np.array(self._text_ids(prompt, chat), np.int64)

    def generate(self, prompt: Prompt, **options: Any) -> Result:
        """Write a text and return it whole. Options are those of `Call`.

        Raises:
            SpecretError: as for `stream`.
        """
        run = self._begin(prompt, Call(**options))
        chunks = list(self._chunks(run))
        steps = tuple(chunk.step for chunk in chunks)
        tokens = np.array([t for step in steps for t in step.emitted], np.int64)
        finish = steps[-1].finish if steps else run.stopping.exhausted()
        assert finish is not None
        return Result("".join(c.text for c in chunks), tokens, steps, finish, run.prefill_s)

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Chunk]:
        """Write a text step by step. Options are those of `Call`.

        Raises:
            SpecretError: a prompt that is empty or longer than the context, an option out of
                its range, a processor that cannot be exact with drafts.
        """
        return self._chunks(self._begin(prompt, Call(**options)))

    def gap(self, prefix: TokenArray, call: Call, *, prompt_len: int) -> float:
        """Gap between the best two tokens after `prefix` (T,), as `call` chooses them."""
        return top2_gap(self.target, self._law(call, prompt_len), call.draw, prefix)

    def writer(self, call: Call, *, keep_features: bool = False) -> BatchWriter:
        """Answers many prompts together, each as `generate` would without drafts.

        Prompt number i is answered with seed `call.seed` + i.

        Raises:
            SpecretError: the call has stop strings, or features of a model whose layers cannot
                be found.
        """
        if call.stop:
            raise SpecretError("stop strings end single texts, not answers written together")
        return BatchWriter(
            self.target,
            Manner(
                law=lambda prompt_len: self._law(call, prompt_len),
                draw=lambda number: replace(call, seed=call.seed + number).draw,
                limits=self._limits(call),
            ),
            StateKeeper(self.loaded.model) if keep_features else None,
        )

    def _begin(self, prompt: Prompt, call: Call) -> "_Run":
        ids = self.encode(prompt, call.chat)
        parts = Decoding(
            target=self.target,
            drafter=self.drafter,
            verify=load_verifier("follow"),
            law=self._law(call, len(ids)),
            draw=call.draw,
            budget=Budget(self.nodes, MAX_DEPTH),
        )
        stopping = Stopping(self._limits(call), len(ids), self.tokenizer)
        context = Context.begin(ids, len(ids) + call.max_new_tokens)
        started = perf_counter()
        if stopping.exhausted() is None:
            context = begin(parts, context, len(ids) + call.max_new_tokens + self.nodes + 1)
        return _Run(parts, context, stopping, perf_counter() - started)

    def _chunks(self, run: "_Run") -> Iterator[Chunk]:
        for step, cut in decode(run.parts, run.context, run.stopping):
            yield Chunk(cut.text, step)

    def _law(self, call: Call, prompt_len: int) -> Law:
        return Law(
            call.sampling,
            self.loaded.generation_config,
            prompt_len=prompt_len,
            max_new_tokens=call.max_new_tokens,
            eos=self._eos(call),
            device=self.target.device,
        )

    def _limits(self, call: Call) -> Limits:
        eos = frozenset(self._eos(call))
        return Limits(call.max_new_tokens, eos, tuple(call.stop), self.target.context_len)

    def _eos(self, call: Call) -> list[int]:
        if call.eos is not None:
            return list(call.eos)
        eos = self.loaded.generation_config.eos_token_id
        return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)

    def _text_ids(self, prompt: str | Sequence[Mapping[str, str]], chat: bool | None) -> list[int]:
        templated = bool(getattr(self.tokenizer, "chat_template", None))
        if chat is None:
            chat = templated
        if not isinstance(prompt, str) or chat:
            if not templated:
                raise SpecretError(
                    "the tokenizer has no chat template, expected plain text",
                    "give the prompt as raw text (--raw)",
                )
            if isinstance(prompt, str):
                prompt = [{"role": "user", "content": prompt}]
            text = self.tokenizer.apply_chat_template(
                list(prompt), tokenize=False, add_generation_prompt=True
            )
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return list(self.tokenizer(prompt)["input_ids"])

    def _count_nodes(self, nodes: int | str) -> int:
        if self.drafter_name == "plain":
            return 0
        if isinstance(nodes, int) and nodes >= 0:
            return nodes
        if nodes != "auto":
            raise SpecretError(f"nodes is {nodes!r}, expected a number from 0 on, or 'auto'")
        options = self.options
        if isinstance(self.drafter, FusedDrafter):  # what it merges depends on the store
            options = {**options, "sources": self.drafter.sources}
        return nodes_for(self.drafter_name, options, self.prices, self.stores)


@dataclass(frozen=True, slots=True)
class _Run:
    parts: Decoding
    context: Context
    stopping: Stopping
    prefill_s: float
