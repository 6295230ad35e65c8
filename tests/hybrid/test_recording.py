"""Recording: drafters see at each position just what the loop would show them."""

import numpy as np

from specret.hybrid.recording import record
from specret.types import FINAL_NORM, Budget, Draft, Verdict

VOCAB = 20


class Witness:
    """Notes what it is shown and proposes nothing."""

    layers = (FINAL_NORM,)

    def __init__(self):
        self.started, self.seen, self.observed = None, [], []

    def start(self, context):
        self.started = context.tokens.tolist()

    def propose(self, context, budget):
        state = context.features.last(FINAL_NORM)
        self.seen.append((context.tokens.tolist(), None if state is None else float(state[0])))
        assert budget == Budget(4, 5)
        return Draft.empty(VOCAB)

    def observe(self, context, draft, verdict):
        self.observed.append((context.tokens.tolist(), verdict))

    def lookup_seconds(self):
        return 0.0


def run(prompt, answer):
    witness = Witness()
    states = np.arange(len(prompt) + len(answer), dtype=np.float32)[:, None]
    prompt, answer = np.array(prompt, np.int64), np.array(answer, np.int64)
    moments = record({"w": witness}, prompt, answer, states, Budget(4, 5))
    return witness, moments


def test_each_position_shows_the_text_before_it_and_the_state_that_led_to_its_newest_token():
    witness, _ = run([5, 6, 7], [8, 9])
    assert witness.started == [5, 6, 7]
    # the state at position i is i; the newest token stands one after it
    assert witness.seen == [([5, 6, 7], 1.0), ([5, 6, 7, 8], 2.0)]


def test_outcomes_are_reported_with_the_longer_text():
    witness, _ = run([5, 6], [8, 9])
    assert witness.observed == [([5, 6, 8], Verdict((), 8)), ([5, 6, 8, 9], Verdict((), 9))]


def test_each_moment_holds_what_really_followed():
    _, moments = run([5], [8, 9, 3])
    assert [moment.truth.tolist() for moment in moments] == [[8, 9, 3], [9, 3], [3]]
    assert all(moment.seconds["w"] >= 0 for moment in moments)


def test_a_one_token_prompt_has_no_state_at_first():
    witness, _ = run([5], [8])
    assert witness.seen == [([5], None)]
