"""The kinds of build behind `build-index`: a corpus, the target's own answers, recorded ones.

In: what the options say. Out: a `Job`: a plan to show, and what carries it out. Prints nothing
but that the model is loading.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specret.cli import output
from specret.cli.opening import open_engine, store_place
from specret.cli.options import Machine
from specret.types import SpecretError, TokenArray

if TYPE_CHECKING:
    from specret.datastore.asking import Asked
    from specret.datastore.build import Built
    from specret.datastore.own_plan import OwnOptions
    from specret.datastore.plan import BuildOptions, Plan
    from specret.engine import Engine
    from specret.protocols import Writer


@dataclass(frozen=True, slots=True)
class Job:
    """A build that was planned; `build(progress)` carries it out."""

    plan: "Plan"
    build: Callable[[output.Progress], "Built"]


def corpus_job(machine: Machine, corpus: str, out: Path | None, options: "BuildOptions") -> Job:
    """A store of the corpus' own text.

    Raises:
        SpecretError: corpus or model are not there, or of no use.
    """
    from specret.datastore.build import build_store
    from specret.datastore.corpus import open_corpus
    from specret.datastore.plan import plan_build

    texts = open_corpus(corpus)
    output.working("loading the model")
    from specret.models.encoder import TransformersEncoder
    from specret.models.load import load_model

    loaded = load_model(
        machine.model, dtype=machine.dtype, device=machine.device, threads=machine.threads
    )
    known, tokenizer = loaded.fingerprint, loaded.tokenizer
    folder = out or store_place(known.model_id, known.weights, corpus)
    encoder = TransformersEncoder(loaded) if options.dense_tokens else None
    plan = plan_build(texts, tokenizer, encoder, known, folder, options)
    return Job(plan, lambda shown: build_store(plan, texts, tokenizer, encoder, known, shown))


def answers_job(
    machine: Machine,
    corpus: str,
    out: Path | None,
    options: "OwnOptions",
    *,
    keep_features: bool,
) -> Job:
    """A store of the target's own answers to prompts made from the corpus.

    Raises:
        SpecretError: corpus or model are not there, or give no prompts.
    """
    from specret.datastore.asking import ask
    from specret.datastore.corpus import open_corpus
    from specret.datastore.recipes import check_recipe

    texts = open_corpus(corpus)
    check_recipe(options.recipe)
    engine = open_engine(machine, "plain", stores=[], reads_store=False, nodes=0, options={})
    from specret.decode.call import Call

    room = engine.target.context_len - options.answer_tokens
    asked = ask(texts, options.recipe, engine.tokenize, room, options.generate_tokens)
    call = Call(
        max_new_tokens=options.answer_tokens, temperature=options.temperature, seed=options.seed
    )
    writer = engine.writer(call, keep_features=keep_features)
    return _own_job(engine, asked, writer, corpus, out, options)


def traces_job(
    machine: Machine, file: Path, out: Path | None, dense_tokens: int, chosen: "Traced"
) -> Job:
    """A store of answers that were recorded.

    Raises:
        SpecretError: file or model are not there, or the file gives no answers.
    """
    from specret.datastore.asking import asked_before
    from specret.datastore.own_plan import OwnOptions
    from specret.datastore.recorded import RecordedWriter
    from specret.datastore.traces import Reading

    if not file.is_file():
        raise SpecretError(f"traces {file}: no such file", "decode --trace FILE writes one")
    engine = open_engine(machine, "plain", stores=[], reads_store=False, nodes=0, options={})
    from specret.models.encoder import TransformersEncoder

    def answer_ids(text: str) -> TokenArray:
        return np.array(engine.tokenizer(text, add_special_tokens=False)["input_ids"], np.int64)

    reading = Reading(
        engine.tokenize, answer_ids, engine.loaded.fingerprint, engine.target.context_len
    )
    asked, traces = asked_before(file, reading, refuse=chosen.refuse)
    options = OwnOptions(
        recipe="recorded",
        generate_tokens=sum(len(trace.answer) for trace in traces),
        answer_tokens=max(len(trace.answer) for trace in traces),
        dense_tokens=dense_tokens,
        with_prompts=chosen.with_prompts,
    )
    encoder = TransformersEncoder(engine.loaded) if dense_tokens else None
    return _own_job(engine, asked, RecordedWriter(traces, encoder), str(file), out, options)


@dataclass(frozen=True, slots=True)
class Traced:
    """How recorded answers are taken: refuse the file for one bad line, index the prompts too."""

    refuse: bool
    with_prompts: bool


def _own_job(
    engine: "Engine",
    asked: "Asked",
    writer: "Writer",
    name: str,
    out: Path | None,
    options: "OwnOptions",
) -> Job:
    from specret.datastore.own import build_own
    from specret.datastore.own_plan import plan_own

    known = engine.loaded.fingerprint
    folder = out or store_place(known.model_id, known.weights, name, own=True)
    own = plan_own(asked, writer, known, folder, options)
    return Job(own.plan, lambda shown: build_own(own, writer, known, shown))
