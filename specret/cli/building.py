"""The two kinds of build behind `build-index`: a corpus as it is, or the target's own answers.

In: what the options say. Out: a `Job`: a plan to show, and what carries it out. Prints nothing
but that the model is loading.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specret.cli import output
from specret.cli.opening import store_place
from specret.cli.options import Machine

if TYPE_CHECKING:
    from specret.datastore.build import Built
    from specret.datastore.own_plan import OwnOptions
    from specret.datastore.plan import BuildOptions, Plan


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


def answers_job(machine: Machine, corpus: str, out: Path | None, options: "OwnOptions") -> Job:
    """A store of the target's own answers to prompts made from the corpus.

    Raises:
        SpecretError: corpus or model are not there, or give no prompts.
    """
    from specret.datastore.corpus import open_corpus
    from specret.datastore.own import build_own
    from specret.datastore.own_plan import plan_own
    from specret.datastore.recipes import questions

    texts = open_corpus(corpus)
    found = questions(options.recipe, texts)
    output.working("loading the model")
    from specret import engine as engines
    from specret.decode.call import Call

    engine = engines.load(
        machine.model,
        drafter="plain",
        dtype=machine.dtype,
        device=machine.device,
        threads=machine.threads,
    )
    known = engine.loaded.fingerprint
    folder = out or store_place(known.model_id, known.weights, corpus, own=True)
    writer = engine.writer(
        Call(
            max_new_tokens=options.answer_tokens,
            temperature=options.temperature,
            seed=options.seed,
        )
    )
    prompts = [engine.tokenize(question.text) for question in found]
    context = engine.target.context_len
    own = plan_own(texts, found, prompts, writer, context, known, folder, options)
    return Job(own.plan, lambda shown: build_own(own, writer, known, shown))
