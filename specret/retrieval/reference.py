"""The slow readable twin of the compiled index: what it must answer, node for node.

In: token lists and a context. Out: the same trees as `specret._suffix`, by the plainest means.
Knows no file and no speed; the oracle of the property tests, and the place to read the rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

ONE = 1 << 60
"""The weight of the root when nodes are weighed by escape: probability 1."""

MATCH = 1 << 20
"""The weight of one match. Weights are integers, so sums are exact and every tie is a real tie."""

Path = tuple[int, ...]


@dataclass(slots=True)
class Tree:
    """A draft tree of N nodes as parallel lists, as in `specret._suffix.TreeArrays`."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    prob: list[float] = field(default_factory=list)
    match_len: list[float] = field(default_factory=list)
    count: list[float] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Match:
    """Where a continuation starts, the tokens it reads, and what it weighs."""

    match_len: int
    scale: float  # occurrences it stands for
    start: int
    reads: Path
    weight: int = MATCH


class Corpus:
    """Documents one after the other; nothing crosses a boundary."""

    def __init__(self, documents: Sequence[Sequence[int]]) -> None:
        self.documents = [list(document) for document in documents if len(document)]
        separated = [[*document, -1] for document in self.documents]
        text = [token for document in separated for token in document]
        starts = [i for i in range(len(text)) if text[i] >= 0]
        starts.sort(key=lambda i: text[i:])
        before = np.cumsum([0] + [token < 0 for token in text])
        self.suffixes = [int(i - before[i]) for i in starts]
        """Token positions in the order of the suffixes; a document's end sorts first."""
        self._rest = {int(i - before[i]): text[i : text.index(-1, i)] for i in starts}

    def following(self, start: int, depth: int) -> Path:
        """At most `depth` tokens from `start` to the end of its document."""
        return tuple(self._rest.get(start, [])[:depth])

    def matches(self, suffix: Sequence[int]) -> list[int]:
        """Where occurrences of `suffix` that a token follows begin, in suffix order."""
        n = len(suffix)
        rest = self._rest
        return [i for i in self.suffixes if rest[i][:n] == list(suffix) and len(rest[i]) > n]


def draft_blend(
    corpus: Corpus,
    context: Sequence[int],
    *,
    max_nodes: int,
    max_depth: int,
    min_match: int = 1,
    max_match: int = 16,
    levels: int = 4,
    samples: int = 500,
    escape: float = 8.0,
) -> Tree:
    """The longest matching suffix and the next shorter ones that match more often."""
    found: list[Match] = []
    size = spoken = 0
    for length in range(min(max_match, len(context)), min_match - 1, -1):
        matches = corpus.matches(context[len(context) - length :])
        if len(matches) == size or spoken == levels:
            continue
        size, spoken = len(matches), spoken + 1
        take = min(size, samples)
        for start in (matches[i * size // take] + length for i in range(take)):
            found.append(Match(length, size / take, start, corpus.following(start, max_depth)))
    return grow(found, by_escape(escape), ONE, max_nodes, max_depth)


def draft_rest(
    corpus: Corpus,
    context: Sequence[int],
    *,
    max_nodes: int,
    max_depth: int,
    min_match: int = 2,
    max_match: int = 16,
    samples: int = 5000,
) -> Tree:
    """REST's rule: the longest suffix that matches, its first matches, plain counts."""
    for length in range(min(max_match, len(context)), min_match - 1, -1):
        starts = [i + length for i in corpus.matches(context[len(context) - length :])[:samples]]
        if starts:
            found = [Match(length, 1.0, s, corpus.following(s, max_depth)) for s in starts]
            return grow(found, by_count, len(found) * MATCH, max_nodes, max_depth)
    return Tree()


def draft_positions(
    corpus: Corpus,
    positions: Sequence[int],
    weights: Sequence[float],
    *,
    max_nodes: int,
    max_depth: int,
    skip: int = 0,
    escape: float = 0.0,
) -> Tree:
    """The continuations that start at `positions`, each with its weight (1 = a match)."""
    units = [int(min(max(float(weight), 0.0), 2.0**20) * MATCH) for weight in weights]
    found = []
    for position, unit in zip(positions, units, strict=True):
        reads = corpus.following(position, skip + max_depth)[skip:]
        if corpus.following(position, skip + 1)[skip:]:
            found.append(Match(0, 1.0, position + skip, reads, unit))
    found.sort(key=lambda match: (match.reads, match.start))
    if int(escape * MATCH) == 0:
        return grow(found, by_count, sum(units), max_nodes, max_depth)
    return grow(found, by_escape(escape), ONE, max_nodes, max_depth)


def draft_live(
    documents: Sequence[Sequence[int]],
    context: Sequence[int],
    *,
    max_nodes: int,
    max_depth: int,
    min_match: int = 1,
    max_match: int = 16,
    levels: int = 16,
    latest: int = 8,
    escape: float = 1.0,
) -> Tree:
    """The latest matches of each suffix length in a text whose last document still grows."""
    text = Corpus(documents)
    n = sum(map(len, text.documents))
    growing = n - len(documents[-1]) if documents else 0

    def following(start: int) -> Path:
        reads = text.following(start, max_depth)
        if start < growing or not reads:
            return reads
        return tuple(reads[i % len(reads)] for i in range(max_depth))

    found: list[Match] = []
    spoken = 0
    for length in range(min(max_match, len(context)), min_match - 1, -1):
        starts = sorted(i + length for i in text.matches(context[len(context) - length :]))
        if starts and spoken < levels:
            spoken += 1
            level = [Match(length, 1.0, start, following(start)) for start in starts[-latest:]]
            found += sorted(level, key=lambda match: (match.reads, match.start))
    return grow(found, by_escape(escape), ONE, max_nodes, max_depth)


Weigh = Callable[[list[Match], int, int], dict[int, tuple[int, float]]]
"""Weight and probability of each next token of a node: matches through it, depth, own weight."""


def by_count(through: list[Match], depth: int, above: int) -> dict[int, tuple[int, float]]:
    """Every token weighs what the matches that go on with it weigh."""
    sums: dict[int, int] = {}
    for match in through:
        sums[match.reads[depth]] = sums.get(match.reads[depth], 0) + match.weight
    return {token: (weight, weight / above) for token, weight in sums.items() if weight}


def by_escape(escape: float) -> Weigh:
    """Prediction by partial matching (method C where `escape` is 1), at every node anew.

    Longest suffix first: matches of weight n with d different next tokens share
    n / (n + escape * d) of what is left; shorter suffixes get the rest.
    """
    factor = int(escape * MATCH)

    def weigh(through: list[Match], depth: int, above: int) -> dict[int, tuple[int, float]]:
        left, shares = ONE, dict[int, int]()
        for length in sorted({match.match_len for match in through}, reverse=True):
            level = [match for match in through if match.match_len == length]
            sums = {token: weight for token, (weight, _) in by_count(level, depth, 1).items()}
            n, lost = sum(sums.values()), factor * len({match.reads[depth] for match in level})
            if n:
                for token, weight in sums.items():
                    shares[token] = shares.get(token, 0) + left * weight // (n + lost)
                left = left * lost // (n + lost)
        out = {token: (above * share // ONE, share / ONE) for token, share in shares.items()}
        return {token: weighed for token, weighed in out.items() if weighed[0]}

    return weigh


def grow(matches: list[Match], weigh: Weigh, root: int, max_nodes: int, max_depth: int) -> Tree:
    """The heaviest nodes; ties: the shallower, the smaller token, the earlier parent."""
    tree = Tree()
    paths: list[Path] = []
    waiting: list[tuple[tuple[int, int, int, int], float, Path]] = []

    def put_children(path: Path, own: int, index: int) -> None:
        n = len(path)
        through = [m for m in matches if m.reads[:n] == path and len(m.reads) > n]
        if n < max_depth:
            for token, (weight, prob) in weigh(through, n, own).items():
                waiting.append(((-weight, n + 1, token, index), prob, (*path, token)))

    put_children((), root, -1)
    while waiting and len(paths) < max_nodes:
        waiting.sort()
        (weight, _, token, parent), prob, path = waiting.pop(0)
        through = [match for match in matches if match.reads[: len(path)] == path]
        best = [m for m in through if m.match_len == max(m.match_len for m in through)]
        tree.tokens.append(token)
        tree.parents.append(parent)
        tree.prob.append(float(np.float32(prob)))
        tree.match_len.append(float(best[0].match_len))
        tree.count.append(float(np.float32(len(best) * best[0].scale)))
        tree.origin.append(best[0].start + len(path) - 1)
        paths.append(path)
        put_children(path, -weight, len(paths) - 1)
    return tree
