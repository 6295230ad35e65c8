"""The law of the written text is the target's own, shown by visiting every outcome.

The real loop runs with an enumerating draw; the joint law of the text is compared with the product
of the target's conditionals. Mutants of the shipped verifier must fail the same comparison.
"""

import inspect
import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from toys import Enumerator, Scripted, TableTarget, make_draft, run_steps, written

import specret.decode.verify.follow as follow_module
from specret.decode.verify.follow import follow
from specret.types import Budget, Context, Draft

PROMPT = (0, 1)
LENGTH = 3


def random_law(vocab_size: int, seed: int, zeros: bool = False) -> Any:
    """Conditionals drawn at random per prefix; with `zeros` some tokens are impossible."""

    @cache
    def law(prefix: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([seed, len(prefix), *prefix])
        p = rng.dirichlet(np.full(vocab_size, 0.7))
        if zeros:
            p[rng.integers(vocab_size)] = 0.0
        return p / p.sum()

    return law


def chain(context: Context, budget: Budget, v: int) -> Draft:
    return make_draft([1, 0, 2 % v], [-1, 0, 1], v)


def wide_tree(context: Context, budget: Budget, v: int) -> Draft:
    return make_draft([0, 1, 0, 2 % v, 1], [-1, -1, 0, 0, 1], v)


def merged_tree(context: Context, budget: Budget, v: int) -> Draft:
    # two sources that share a prefix, and one that disagrees at the root
    paths = [(1, 1), (1, 0), (0,)]
    nodes: dict[tuple[int, ...], int] = {}
    tokens: list[int] = []
    parents: list[int] = []
    for path in paths:
        for depth in range(1, len(path) + 1):
            if path[:depth] not in nodes:
                nodes[path[:depth]] = len(tokens)
                tokens.append(path[depth - 1])
                parents.append(nodes.get(path[: depth - 1], -1))
    return make_draft(tokens, parents, v)


def text_dependent(context: Context, budget: Budget, v: int) -> Draft:
    # another shape at every prefix, empty ones among them
    rng = np.random.default_rng([7, *context.tokens.tolist()])
    n = int(rng.integers(0, 4))
    tokens, parents = [], []
    for i in range(n):
        parent = int(rng.integers(-1, i)) if i else -1
        taken = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
        free = [t for t in range(v) if t not in taken]
        if free:
            tokens.append(int(rng.choice(free)))
            parents.append(parent)
        else:
            break
    return make_draft(tokens, parents, v)


def nothing(context: Context, budget: Budget, v: int) -> Draft:
    return Draft.empty(v)


SHAPES = {
    "chain": chain,
    "wide tree": wide_tree,
    "merged tree": merged_tree,
    "text dependent": text_dependent,
    "empty": nothing,
}


def joint(verify: Any, shape: Any, v: int, law: Any) -> tuple[dict[Any, float], int, int]:
    """Law of the first LENGTH tokens through the real loop; accepted and rejected drafts."""
    found: dict[Any, float] = {}
    accepted = rejected = 0
    draw = Enumerator()
    for _ in draw.runs():
        drafter = Scripted(lambda context, budget: shape(context, budget, v))
        steps = run_steps(TableTarget(law, v), drafter, draw, PROMPT, LENGTH, verify=verify)
        text = tuple(written(steps))
        found[text] = found.get(text, 0.0) + draw.probability
        accepted += sum(s.accepted for s in steps)
        rejected += sum(s.drafted > 0 and s.accepted == 0 for s in steps)
    return found, accepted, rejected


def distance(found: dict[Any, float], v: int, law: Any) -> float:
    """Total variation between the found law and the target's own."""
    total = 0.0
    seen = 0.0
    for text in itertools.product(range(v), repeat=LENGTH):
        p = 1.0
        for i, token in enumerate(text):
            p *= float(law((*PROMPT, *text[:i]))[token])
        total += abs(p - found.get(text, 0.0))
        seen += found.get(text, 0.0)
    stray = sum(found.values()) - seen  # texts of another length count in full
    return 0.5 * (total + stray)


@pytest.mark.parametrize("zeros", [False, True], ids=["full support", "impossible tokens"])
@pytest.mark.parametrize("v", [3, 4, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_loop_writes_by_the_targets_own_law(shape: str, v: int, zeros: bool) -> None:
    law = random_law(v, seed=v, zeros=zeros)
    found, accepted, rejected = joint(follow, SHAPES[shape], v, law)
    assert distance(found, v, law) < 1e-12
    if shape != "empty":
        assert accepted > 0
        assert rejected > 0


def test_each_draw_is_told_the_position_it_decides() -> None:
    v = 3
    draw = Enumerator()
    for _ in draw.runs():
        drafter = Scripted(lambda context, budget: wide_tree(context, budget, v))
        run_steps(TableTarget(random_law(v, 1), v), drafter, draw, PROMPT, LENGTH, verify=follow)
        # the last step may draw past the limit; its surplus is cut
        start = len(PROMPT)
        assert draw.positions == list(range(start, start + len(draw.positions)))


DRAW_AGAIN = (
    "return Verdict(tuple(path), token)",
    "return Verdict(tuple(path), draw(position + len(path), law(node + 1, tuple(tokens))))",
)
DROP_THE_DRAW = (
    "return Verdict(tuple(path), token)",
    "return Verdict(tuple(path[:-1]), tokens[-1]) if path else Verdict((), token)",
)
DRAW_PER_ROW = (
    "    path: list[int] = []\n",
    """    best: Verdict | None = None
    for leaf in range(len(draft)):
        if leaf in draft.parents.tolist():
            continue
        chain = []
        node = leaf
        while node >= 0:
            chain.insert(0, node)
            node = int(draft.parents[node])
        walked: list[int] = []
        said: list[int] = []
        for child in [*chain, None]:
            row = walked[-1] + 1 if walked else 0
            token = draw(position + len(walked), law(row, tuple(said)))
            if child is None or int(draft.tokens[child]) != token:
                break
            walked.append(child)
            said.append(token)
        if best is None or len(walked) > len(best.path):
            best = Verdict(tuple(walked), token)
    if best is not None:
        return best
    path: list[int] = []
""",
)


@pytest.mark.parametrize(
    "change",
    [DRAW_AGAIN, DROP_THE_DRAW, DRAW_PER_ROW],
    ids=["draws again after a mismatch", "drops the drawn token", "draws per row"],
)
def test_a_mutant_of_the_verifier_is_caught(change: tuple[str, str]) -> None:
    source = inspect.getsource(follow_module)
    before, after = change
    assert source.count(before) == 1, "the shipped code changed: mend the mutant"
    scope: dict[str, Any] = {}
    exec(compile(source.replace(before, after), "mutant", "exec"), scope)
    v = 3
    law = random_law(v, seed=2)
    found, _, _ = joint(scope["follow"], wide_tree, v, law)
    assert distance(found, v, law) > 1e-3
