"""What a build will do, before it does it: documents, tokens, keys, time, bytes.

In: a corpus, a tokenizer, an `Encoder`. Out: a `Plan` that freezes every size which decides the
bytes of the store, with estimates from a sample of the corpus. Writes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from specret.datastore.corpus import Corpus
from specret.datastore.durable import canonical
from specret.datastore.manifest import FORMAT_VERSION, open_manifest, verify
from specret.datastore.projection import COMPONENTS
from specret.datastore.tokens import no_document, token_dtype
from specret.protocols import Encoder, Tokenizer
from specret.types import Fingerprint, SpecretError, TokenArray

SAMPLE_DOCUMENTS = 100
SAMPLE_CHARS = 1 << 16
"""Of one document."""

SUFFIX_SECONDS = 1.5e-6
"""Seconds a token that sorting suffixes takes, about (2 cores, 9 million tokens of code)."""

SUFFIX_BYTES = 4
"""Bytes a token of the suffix index."""

INDEX_BYTES = 8
"""Bytes of a key's position in the dense index, beside one for each dimension."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What a user can choose, and sizes that decide the bytes of a store.

    Attributes:
        max_tokens: stop exactly there; None: the whole corpus.
        dense_tokens: most positions that get a key; 0: a store without a dense side.
        window: tokens of context that a key can see at most. Keys from 32 tokens on into a
            window are as often right as later ones (measured on HumanEval), so it need not be
            long.
        batch_tokens: tokens of one batch for the model, padding included.
        shard_keys: keys of one shard of the build, about.
        components: most dimensions of a key.
    """

    max_tokens: int | None = None
    dense_tokens: int = 300_000
    window: int = 256
    batch_tokens: int = 4096
    shard_keys: int = 1 << 15
    components: int = COMPONENTS

    def __post_init__(self) -> None:
        for name, least in {"max_tokens": 1, "dense_tokens": 0, "window": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise SpecretError(f"{name} is {value}, expected at least {least}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a build will do. Figures are None where they cannot be known before.

    Attributes:
        folder: where the store goes.
        parameters: what it is built from and how, as the manifest will say.
        options: the frozen sizes; None for a store of own answers, which has others.
        documents: files or rows; of a store of own answers, prompts.
        tokens: about.
        keys: at most.
        seconds: by stage (tokens, suffix, states), about.
        bytes: of the finished store, about.
        finished: such a store is there already, whole.
        memory: most bytes held beside the model, where that is bounded beforehand.
    """

    folder: Path
    parameters: Mapping[str, Any]
    options: BuildOptions | None
    documents: int | None
    tokens: int | None
    keys: int | None
    seconds: Mapping[str, float | None]
    bytes: int | None
    finished: bool
    memory: int | None = None

    def __str__(self) -> str:
        seconds = ", ".join(f"{s} {_about(t, ' s')}" for s, t in self.seconds.items())
        size = None if self.bytes is None else self.bytes / 1e6
        own = "recipe" in self.parameters
        rows = [
            ("corpus", str(self.parameters["corpus"])),
            ("prompts", f"{self.documents:,}") if own else ("documents", _about(self.documents)),
            ("tokens", _about(self.tokens)),
            ("dense keys", _about(self.keys)),
            ("time", seconds),
            ("size", _about(size, " MB")),
        ]
        if self.memory is not None:
            rows.append(("memory", f"at most {self.memory / 1e6:,.0f} MB beside the model"))
        finished = " (finished already)" if self.finished else ""
        rows.append(("folder", f"{self.folder}{finished}"))
        return "\n".join(f"{name:<10}  {value}" for name, value in rows)


def plan_build(
    corpus: Corpus,
    tokenizer: Tokenizer,
    encoder: Encoder | None,
    fingerprint: Fingerprint,
    folder: str | Path,
    options: BuildOptions | None = None,
) -> Plan:
    """Look at a sample of the corpus and say what building a store from it will take.

    Args:
        corpus: what to build from.
        tokenizer: of the model.
        encoder: of the model; None only where `options.dense_tokens` is 0.
        fingerprint: of the model.
        folder: where the store goes.
        options: None: the defaults.

    Raises:
        SpecretError: no usable document in the corpus, or it cannot be read; the folder's place
            is taken by a file.
    """
    options = options or BuildOptions()
    check_folder(Path(folder))
    assert encoder is not None or not options.dense_tokens, "keys need an encoder"
    parameters = _parameters(corpus, fingerprint, options)
    ids, seconds_a_token, tokens_a_byte = _sample(corpus, tokenizer)
    documents, size = corpus.size
    tokens = None if size is None else max(1, round(size * tokens_a_byte))
    if options.max_tokens is not None:
        tokens = min(options.max_tokens, tokens or options.max_tokens)
    keys = min(options.dense_tokens, options.dense_tokens if tokens is None else tokens)
    seconds: dict[str, float | None] = {
        "tokens": None if tokens is None else tokens * seconds_a_token,
        "suffix": None if tokens is None else tokens * SUFFIX_SECONDS,
    }
    if encoder is not None and keys:
        seconds["states"] = keys * _seconds_a_state(encoder, ids, options)
    width = token_dtype(fingerprint.vocab_size).itemsize
    stored = None if tokens is None else tokens * (width + SUFFIX_BYTES)
    return Plan(
        Path(folder),
        parameters,
        options,
        documents,
        tokens,
        keys,
        seconds,
        None if stored is None else stored + keys * (options.components + INDEX_BYTES),
        is_finished(Path(folder), parameters),
    )


def check_folder(folder: Path) -> None:
    """Whether a store can lie there.

    Raises:
        SpecretError: the place is taken by a file.
    """
    if folder.exists() and not folder.is_dir():
        raise SpecretError(f"{folder} is a file, expected a folder for the store", "name another")


def is_finished(folder: Path, parameters: Mapping[str, Any]) -> bool:
    """Whether a whole store with these parameters lies in the folder."""
    try:
        manifest = open_manifest(folder)
        if dict(manifest.parameters) != dict(parameters):
            return False
        verify(folder, manifest)
    except SpecretError:  # none there, or a damaged one: it will be built
        return False
    return True


def _parameters(corpus: Corpus, fingerprint: Fingerprint, options: BuildOptions) -> dict[str, Any]:
    """Everything that decides the bytes of the store, and the two keys that name its files."""
    sparse = {
        "format": FORMAT_VERSION,
        "corpus": corpus.spec,
        "identity": corpus.identity,
        "tokenizer": fingerprint.tokenizer,
        "vocab_size": fingerprint.vocab_size,
        "max_tokens": options.max_tokens,
    }
    sparse_key = key_of(sparse)
    dense_key = None
    if options.dense_tokens:
        dense_key = key_of({"of": sparse_key, **asdict(fingerprint), **asdict(options)})
    return {**asdict(options), **sparse, "sparse_key": sparse_key, "dense_key": dense_key}


def key_of(parameters: Mapping[str, Any]) -> str:
    """Twelve hex digits that name the files of a build with these parameters."""
    return sha256(canonical(parameters)).hexdigest()[:12]


def _sample(corpus: Corpus, tokenizer: Tokenizer) -> tuple[list[TokenArray], float, float]:
    """Ids of some documents; seconds a token; tokens a byte."""
    texts = [text.text[:SAMPLE_CHARS] for text in corpus.sample(SAMPLE_DOCUMENTS)]
    if not texts:
        raise no_document(corpus)
    started = perf_counter()
    ids = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
    elapsed = perf_counter() - started
    arrays = [np.array(row, np.int64) for row in ids["input_ids"]]
    tokens = max(1, sum(len(array) for array in arrays))
    return arrays, elapsed / tokens, tokens / sum(len(text.encode()) for text in texts)


def _seconds_a_state(encoder: Encoder, ids: Sequence[TokenArray], options: BuildOptions) -> float:
    """Measured on one batch, after a short one to warm up."""
    stream = np.concatenate(ids)[: options.batch_tokens]
    windows = [stream[i : i + options.window] for i in range(0, len(stream), options.window)]
    if not windows:
        return 0.0
    encoder.encode([windows[0][:16]])
    started = perf_counter()
    encoder.encode(windows)
    return (perf_counter() - started) / len(stream)


def _about(figure: float | None, unit: str = "") -> str:
    if figure is None:
        return "unknown"
    return f"less than 1{unit}" if 0 < figure < 0.5 else f"about {figure:,.0f}{unit}"
