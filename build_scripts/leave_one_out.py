"""What answers to the same kind of task are worth: a second store of answers to the other prompts.

HumanEval prompts 61-120 are replayed with the stores given and one more, built anew for every
prompt from the target's own answers to all other HumanEval prompts. That the prompt's own answer
is not in it is checked, not assumed: by the names of the store's documents, and by searching the
answer in its text. Prints tokens per step by draft nodes.
"""

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from replaying import (
    HELD_OUT,
    Answer,
    answers_to,
    arguments,
    load_engine,
    record_all,
    report,
    say,
)

from specret import engine as engines
from specret.datastore.asking import Asked
from specret.datastore.own import build_own
from specret.datastore.own_plan import OwnOptions, plan_own
from specret.datastore.recorded import RecordedWriter
from specret.datastore.store import Store, open_store
from specret.datastore.traces import Trace
from specret.evaluation.overlap import longest_run
from specret.evaluation.prompts import Prompt, load_prompts
from specret.hybrid.confidences import confidences_of
from specret.hybrid.fused import available_sources
from specret.hybrid.several import calibration_for, store_of
from specret.models.encoder import TransformersEncoder
from specret.registry import Resources


def main() -> None:
    args = _arguments()
    engine = load_engine(args)
    prompts = load_prompts("humaneval")
    answers = answers_to(engine, prompts, args.tokens, args.answers)
    near = Near(engine, prompts, answers, Path(tempfile.mkdtemp(prefix="near-")))
    asked = range(HELD_OUT, HELD_OUT + args.limit)
    stores = [near.without(i) for i in asked]
    everything = available_sources(None, [*engine.stores, stores[0]])

    def resources(number: int) -> Resources:
        return replace(engine.resources, further=(*engine.resources.further, stores[number]))

    recorded = record_all(engine, [answers[i] for i in asked], everything, resources)
    known = confidences_of(None, [*engine.stores, stores[0]])
    last = len(engine.stores)
    before = tuple(name for name in everything if store_of(name) < last)
    of_near = tuple(name for name in everything if name == "prompt" or store_of(name) == last)
    sets = [before, of_near, everything]
    report(recorded, {sources: calibration_for(sources, known) for sources in sets})
    near.tell()


class Near:
    """Stores of the answers to all prompts but one."""

    def __init__(
        self,
        engine: engines.Engine,
        prompts: Sequence[Prompt],
        answers: Sequence[Answer],
        folder: Path,
    ) -> None:
        self._fingerprint, self._folder = engine.loaded.fingerprint, folder
        self._encoder = _Remembering(TransformersEncoder(engine.loaded))
        self._traces = [
            Trace(prompt.id, *answer) for prompt, answer in zip(prompts, answers, strict=True)
        ]
        self._longest: dict[int, int] = {}

    def without(self, number: int) -> Store:
        """A store of all answers but that to prompt `number`, proved not to hold it."""
        own = self._traces[number]
        others = [trace for trace in self._traces if trace is not own]
        asked = Asked(
            "the other HumanEval prompts",
            f"all but {own.name}",
            [trace.prompt for trace in others],
            [(trace.name, "") for trace in others],
            [],
            sum(len(trace.answer) for trace in others),
        )
        options = OwnOptions("recorded", asked.answer_tokens or 0)
        place = self._folder / str(number)
        writer = RecordedWriter(others, self._encoder)
        plan = plan_own(asked, writer, self._fingerprint, place, options)
        build_own(plan, writer, self._fingerprint)
        store = open_store(place, self._fingerprint)
        self._prove(store, own)
        self._longest[number] = longest_run(store.suffix, own.answer)
        return store

    def tell(self) -> None:
        """How much of each left-out answer the other answers hold."""
        longest = np.array(list(self._longest.values()))
        print(
            f"{len(longest)} stores, none with the prompt's own answer; longest run of its tokens "
            f"in one: median {np.median(longest):.0f}, at most {longest.max()}"
        )

    def _prove(self, store: Store, own: Trace) -> None:
        """That no document is this answer, by name and by content."""
        starts = store.offsets.astype(np.int64)
        documents = [store.tokens[a:b] for a, b in pairwise(starts.tolist())]
        assert len(documents) == len(self._traces) - 1
        assert all(store.document_of(int(at)) != own.name for at in starts[:-1])
        if any(np.array_equal(document, own.answer) for document in documents):
            say(f"{own.name}: another prompt has the very same answer")


class _Remembering:
    """An encoder that reads every text once, however many stores hold it."""

    def __init__(self, encoder: TransformersEncoder) -> None:
        self._encoder, self._known = encoder, dict[bytes, np.ndarray]()
        self.width = encoder.width

    def encode(self, windows: Iterable[np.ndarray]) -> list[np.ndarray]:
        texts = list(windows)
        for text in texts:
            if text.tobytes() not in self._known:
                (self._known[text.tobytes()],) = self._encoder.encode([text])
        return [self._known[text.tobytes()] for text in texts]


def _arguments() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--limit", type=int, default=60, help="how many prompts after the first 60")
    return parser.parse_args()


if __name__ == "__main__":
    main()
