"""Small things several tests share: tiny random models, toy targets, drafters, an enumerator."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers

from specret.decode.loop import Decoding, begin, decode
from specret.decode.stopping import Limits, Stopping
from specret.decode.target import TransformersTarget
from specret.types import Budget, Context, Draft, Features, Scores, Verdict


@dataclass
class Loaded:
    """A model as the target wants it."""

    model: Any
    context_len: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32


TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def tiny_model(kind: str = "llama", seed: int = 0, **changes: Any) -> Any:
    """A random model of a family, deterministic in `seed`, eager or sdpa by `attn`."""
    attention = changes.pop("attn", "sdpa")
    settings = TINY | changes
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(
            n_embd=settings["hidden_size"],
            n_layer=2,
            n_head=4,
            n_positions=changes.get("n_positions", 64),
            vocab_size=settings["vocab_size"],
            initializer_range=0.2,
            bos_token_id=None,
            eos_token_id=None,
        )
        config._attn_implementation = attention
        build: Any = transformers.GPT2LMHeadModel
    else:
        names = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "gemma3": "Gemma3Text"}
        config = getattr(transformers, f"{names[kind]}Config")(**settings)
        config._attn_implementation = attention
        causal = {"gemma3": "Gemma3ForCausalLM"}.get(kind, f"{names[kind]}ForCausalLM")
        build = getattr(transformers, causal)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build(config).eval().requires_grad_(False)


def tiny_target(kind: str = "llama", **changes: Any) -> TransformersTarget:
    model = tiny_model(kind, **changes)
    return TransformersTarget(Loaded(model, int(model.config.max_position_embeddings)))


def make_draft(tokens: Sequence[int], parents: Sequence[int], vocab_size: int) -> Draft:
    n = len(tokens)
    return Draft(
        np.array(tokens, np.int64),
        np.array(parents, np.int32),
        np.full(n, 0.5, np.float32),
        vocab_size,
        np.ones(n, np.uint8),
        np.full(n, -1, np.int64),
    )


class Scripted:
    """A drafter from a function of the text so far; trims nothing itself."""

    layers = ()

    def __init__(self, guess: Callable[[Context, Budget], Draft]) -> None:
        self._guess = guess
        self.seen: list[tuple[int, ...]] = []

    def start(self, context: Context) -> None:
        self.seen = [tuple(context.tokens.tolist())]

    def propose(self, context: Context, budget: Budget) -> Draft:
        return self._guess(context, budget)

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        self.seen.append(tuple(context.tokens.tolist()))

    def lookup_seconds(self) -> float:
        return 0.0


def no_guess(vocab_size: int) -> Scripted:
    return Scripted(lambda context, budget: Draft.empty(vocab_size))


class TableTarget:
    """A target whose law is a function of the prefix; checks the loop's invariants as it goes."""

    context_len = 1000

    def __init__(self, law: Callable[[tuple[int, ...]], np.ndarray], vocab_size: int) -> None:
        self._law, self.vocab_size = law, vocab_size
        self._cached: tuple[int, ...] = ()
        self._rows: list[int] = []

    def prefill(self, tokens: Any, capacity: int) -> Features:
        self._cached = tuple(int(t) for t in tokens)
        return Features(0, {})

    def score(self, context: Context, draft: Draft) -> Scores:
        text = tuple(int(t) for t in context.tokens)
        assert self._cached == text[:-1], "the cache holds all but the newest token"
        self._rows = [text[-1], *draft.tokens.tolist()]
        prefixes = [text]
        for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
            prefixes.append((*prefixes[parent + 1], token))
        with np.errstate(divide="ignore"):  # impossible tokens
            logits = np.log(np.stack([self._law(p) for p in prefixes]))
        return Scores(torch.from_numpy(logits))

    def commit(self, verdict: Verdict) -> Features:
        kept = [self._rows[0], *(self._rows[n + 1] for n in verdict.path)]
        self._cached = (*self._cached, *kept)
        return Features(0, {})


class AsIs:
    """The law without processors."""

    def rows(self, context: Context, scores: Scores) -> Any:
        return lambda row, path: scores.logits[row]


class Enumerator:
    """A draw that, run again and again, visits every sequence of choices with its probability."""

    def __init__(self) -> None:
        self._script: list[tuple[list[int], int]] = []  # (tokens still open, the one chosen)
        self._at = 0
        self.probability = 1.0
        self.positions: list[int] = []

    def __call__(self, position: int, logits: torch.Tensor) -> int:
        p = torch.softmax(logits.double(), -1).numpy()
        if self._at == len(self._script):
            support = np.flatnonzero(p > 0).tolist()
            self._script.append((support[1:], support[0]))
        token = self._script[self._at][1]
        self._at += 1
        self.probability *= float(p[token])
        self.positions.append(position)
        return token

    def runs(self) -> Iterator[None]:
        """One iteration per branch."""
        while True:
            self._at, self.probability, self.positions = 0, 1.0, []
            yield
            while self._script and not self._script[-1][0]:
                self._script.pop()
            if not self._script:
                return
            left, _ = self._script.pop()
            self._script.append((left[1:], left[0]))


def run_steps(
    target: Any,
    drafter: Any,
    draw: Any,
    prompt: Sequence[int],
    new_tokens: int,
    *,
    verify: Any,
    nodes: int = 16,
    law: Any = None,
    eos: Sequence[int] = (),
) -> list[Any]:
    """The steps of the real loop with the parts given."""
    parts = Decoding(target, drafter, verify, law or AsIs(), draw, Budget(nodes, 16))
    limits = Limits(new_tokens, frozenset(eos), (), target.context_len)
    context = begin(parts, Context.begin(np.array(prompt, np.int64), 64), 64)
    stopping = Stopping(limits, len(prompt), None)
    return [step for step, _ in decode(parts, context, stopping)]


def written(steps: Sequence[Any]) -> list[int]:
    return [token for step in steps for token in step.emitted]


def byte_tokenizer(vocab_size: int = 278) -> Any:
    """A byte-level BPE with every byte, some merges, and two added tokens past `vocab_size`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat, the end of the tale"] * 4, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.add_tokens(["<left>", "<right>"])
    return fast
