"""The methods of a run, from their names: drafters of the registry, and transformers' `generate`.

In: an engine and names. Out: `Method`s that share its target and its store.
"""

from collections.abc import Sequence
from time import perf_counter

from specret.engine import Engine
from specret.evaluation.rivals import LOOKUP_TOKENS, TransformersGenerate
from specret.evaluation.sample import Method, Sample, Writing
from specret.hybrid.fused import FusedDrafter
from specret.registry import DRAFTERS
from specret.types import Seconds, SpecretError, TokenArray

RIVALS = ("hf-generate", "hf-lookup")
"""Transformers' own decoding, plain and with prompt lookup."""

LOOKUP = "hf-lookup"


class Drafted:
    """Specret's loop with one drafter."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.nodes = engine.nodes
        self._engine = engine

    def same_text(self, temperature: float) -> bool:
        """At any temperature: noise is keyed by seed and position."""
        return True

    def write(self, prompt: TokenArray, how: Writing) -> Sample:
        """Answer one prompt (T,). What no step accounts for counts as `other`."""
        started = perf_counter()
        result = self._engine.generate(prompt, **how.options())
        decode_s = perf_counter() - started - result.prefill_s
        parts = [step.seconds for step in result.steps]
        known = {
            name: sum(getattr(part, name) for part in parts)
            for name in ("lookup", "draft", "score", "verify", "commit")
        }
        return Sample(
            tuple(result.tokens.tolist()),
            result.text,
            accept_lengths=tuple(len(step.emitted) for step in result.steps),
            drafted=tuple(step.drafted for step in result.steps),
            accepted=sum(step.accepted for step in result.steps),
            seconds=Seconds(**known, other=decode_s - sum(known.values())),
            decode_s=decode_s,
            prefill_s=result.prefill_s,
        )


def make_methods(
    engine: Engine,
    names: Sequence[str],
    *,
    nodes: int | str,
    sources: Sequence[str] | str | None,
    leave_one_out: bool,
) -> list[Method]:
    """The methods of those names, `plain` first; each name once.

    Args:
        engine: whose target and store they use.
        names: drafters of the registry, `hf-generate`, `hf-lookup` (three methods: `hf-lookup/3`,
            `/5` and `/10`).
        nodes: draft nodes per step, or `auto`.
        sources: what hybrid merges; None: all that there are.
        leave_one_out: also hybrid without each of its sources.

    Raises:
        SpecretError: an unknown name, a store that is missing, leaving out of hybrid where hybrid
            is not measured or has one source.
    """
    methods: list[Method] = []
    for name in dict.fromkeys(["plain", *names]):
        if name == "hf-generate":
            methods.append(TransformersGenerate(engine.loaded))
        elif name == LOOKUP:
            methods += [TransformersGenerate(engine.loaded, count) for count in LOOKUP_TOKENS]
        elif name in DRAFTERS:
            options = {"sources": sources} if name == "hybrid" and sources is not None else {}
            methods.append(Drafted(name, engine.using(name, nodes=nodes, options=options)))
        else:
            known = ", ".join([*DRAFTERS, *RIVALS])
            raise SpecretError(f"unknown method {name!r}, expected some of {known}")
    if leave_one_out:
        if "hybrid" not in names:
            raise SpecretError("leaving sources out of hybrid needs hybrid among the methods")
        methods += _without_each(engine, sources, nodes)
    return methods


def without(source: str) -> str:
    """The name of hybrid without one of its sources."""
    return f"hybrid without {source}"


def _without_each(
    engine: Engine, sources: Sequence[str] | str | None, nodes: int | str
) -> list[Method]:
    # as hybrid itself understands them
    full = engine.using("hybrid", nodes=0, options={} if sources is None else {"sources": sources})
    assert isinstance(full.drafter, FusedDrafter)
    names = full.drafter.sources
    if len(names) < 2:
        raise SpecretError(f"hybrid has only the source {names[0]}, expected two or more")
    return [
        Drafted(
            without(left_out),
            engine.using(
                "hybrid",
                nodes=nodes,
                options={"sources": [name for name in names if name != left_out]},
            ),
        )
        for left_out in names
    ]
