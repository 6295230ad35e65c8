"""What tests of the datastore share: a byte tokenizer, an encoder in numpy, builds of few bytes."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specret.datastore.asking import ask
from specret.datastore.build import Built, build_store
from specret.datastore.corpus import Corpus, open_corpus
from specret.datastore.own import build_own
from specret.datastore.own_plan import OwnOptions, OwnPlan, plan_own
from specret.datastore.plan import BuildOptions, plan_build
from specret.datastore.sources import Place, Skip, Text
from specret.protocols import Answer
from specret.types import Fingerprint

VOCAB = 256
WIDTH = 80
FINGERPRINT = Fingerprint("toy", "a" * 64, "b" * 64, VOCAB, WIDTH, "float32")


class ByteTokenizer:
    """Every byte is an id."""

    def __call__(self, text: Sequence[str], **options: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [list(t.encode()) for t in text]}

    def decode(self, ids: Iterable[int], **options: Any) -> str:
        return bytes(ids).decode()


class SumEncoder:
    """The state of a token: its own row of a random table, and a little of the eight before it."""

    width = WIDTH

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self._table = np.random.default_rng(7).normal(size=(VOCAB, WIDTH)).astype(np.float32)

    def encode(self, windows: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        self.calls.append([len(window) for window in windows])
        return [self.states(window) for window in windows]

    def states(self, window: NDArray[np.int64]) -> NDArray[np.float32]:
        own = self._table[window]
        out = own.copy()
        for back in range(1, min(9, len(window))):
            out[back:] += own[:-back] * 0.7**back
        return out


class ToyKeeper:
    """Keeps of each answer its number and tokens."""

    row_bytes = 8

    def pack(self, texts: Sequence[Any]) -> bytes:
        return json.dumps([list(text) for text in texts]).encode()


class ToyWriter:
    """Answers by a random walk that the prompt's number and ids decide; every fifth is empty."""

    width = WIDTH
    bytes_a_token = 16

    def __init__(self, kill_at: float = float("inf"), keeper: Any = None) -> None:
        self.left = kill_at
        self.keeper = keeper
        self.batches: list[list[int]] = []

    def write(
        self, prompts: Sequence[tuple[int, NDArray[np.int64]]], rows: int, capacity: int
    ) -> Iterator[Answer]:
        self.batches.append([number for number, _ in prompts])
        for number, ids in prompts:
            assert len(ids) < capacity
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            tokens, states = self.answer(number, ids)
            kept = None if self.keeper is None else [number, *tokens.tolist()]
            yield Answer(number, tokens, states, kept)

    def answer(
        self, number: int, ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rng = np.random.default_rng([number, *ids])
        tokens = rng.integers(0, VOCAB, 0 if number % 5 == 4 else rng.integers(1, 21))
        return tokens, SumEncoder().states(tokens)[: max(0, len(tokens) - 1)]

    def seconds(self, rows: int, prompt_tokens: int) -> tuple[float, float]:
        return 0.01, 0.1


class Faulty:
    """A source of 200 texts that fails at one of them, so many times."""

    faults: tuple[type[Exception], ...] = (OSError,)
    identity = "faulty"
    size = (200, None)

    def __init__(self, at: int, failures: float) -> None:
        self.at, self.left = at, failures

    def starts(self, number: int) -> list[Place]:
        return [(0, 0)]

    def items(self, start: Place) -> Iterator[Text | Skip]:
        for n in range(start[1], 200):
            if n == self.at and self.left > 0:
                self.left -= 1
                raise ConnectionError("the other side went away")
            yield Text(f"text {n}", str(n), (0, n + 1))


def write_files(folder: Path, texts: Sequence[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number:04d}.txt").write_text(text, encoding="utf-8")
    return folder


def prose(documents: int, words: int, seed: int = 0) -> list[str]:
    """Texts over a small made-up vocabulary, so that bytes repeat in context."""
    rng = np.random.default_rng(seed)
    made = ["".join(chr(97 + c) for c in rng.integers(0, 26, 2 + n % 6)) for n in range(60)]
    ranks = 1 / np.arange(1, 61)
    weights = ranks / ranks.sum()
    return [" ".join(rng.choice(made, words, p=weights)) + "\n" for _ in range(documents)]


def build(
    corpus: Corpus | Path | str,
    folder: Path,
    *,
    fingerprint: Fingerprint = FINGERPRINT,
    encoder: Any = None,
    progress: Any = lambda stage, done, total: None,
    **options: Any,
) -> Built:
    if not isinstance(corpus, Corpus):
        corpus = open_corpus(str(corpus))
    encoder = encoder or SumEncoder()
    chosen = BuildOptions(**{"window": 32, "batch_tokens": 128, "shard_keys": 1000} | options)
    plan = plan_build(corpus, ByteTokenizer(), encoder, fingerprint, folder, chosen)
    return build_store(plan, corpus, ByteTokenizer(), encoder, fingerprint, progress)


OWN = OwnOptions("text", generate_tokens=400, answer_tokens=20, dense_tokens=10_000)
"""Options of a store of answers with several shards, where `own_plan.MOST_ROWS` is 2."""


def plan_answers(
    corpus: Path, folder: Path, writer: ToyWriter, options: OwnOptions = OWN
) -> OwnPlan:
    asked = ask(open_corpus(str(corpus)), options.recipe, in_bytes, 10_000, 10_000)
    return plan_own(asked, writer, FINGERPRINT, folder, options)


def build_answers(
    corpus: Path, folder: Path, options: OwnOptions = OWN, writer: ToyWriter | None = None
) -> tuple[OwnPlan, Built]:
    writer = writer or ToyWriter()
    plan = plan_answers(corpus, folder, writer, options)
    return plan, build_own(plan, writer, FINGERPRINT)


def in_bytes(text: str) -> NDArray[np.int64]:
    """A prompt's tokens: its bytes."""
    return np.array(list(text.encode()), np.int64)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store by its relative name, but the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "_lock"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
