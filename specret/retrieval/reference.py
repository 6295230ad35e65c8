"""The slow readable twin of the compiled index: what it must answer, node for node.

In: token lists and a context. Out: the same trees as `specret._suffix`, by the plainest means.
Knows no file and no speed; the oracle of the property tests, and the place to read the rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

ONE = 1 << 52
"""All votes together. Votes are integers, so sums are exact and every tie is a real tie."""

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
class Vote:
    """One match: where its continuation starts, the tokens it reads, and its weight."""

    match_len: int
    scale: float  # occurrences it stands for
    start: int
    reads: Path
    votes: int


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
) -> Tree:
    """The longest matching suffix and the next shorter ones that match more often."""
    found: list[tuple[int, float, list[int]]] = []
    size = 0
    for length in range(min(max_match, len(context)), min_match - 1, -1):
        matches = corpus.matches(context[len(context) - length :])
        if len(matches) == size or len(found) == levels:
            continue
        size = len(matches)
        take = min(size, samples)
        starts = [matches[i * size // take] + length for i in range(take)]
        found.append((length, size / take, starts))
    return grow(escape(found, corpus.following, max_depth), ONE, max_nodes, max_depth)


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
            votes = [Vote(length, 1.0, s, corpus.following(s, max_depth), 1) for s in starts]
            return grow(votes, len(votes), max_nodes, max_depth)
    return Tree()


def draft_positions(
    corpus: Corpus,
    positions: Sequence[int],
    weights: Sequence[float],
    *,
    max_nodes: int,
    max_depth: int,
    skip: int = 0,
) -> Tree:
    """The continuations that start at `positions`, each with its share of the weights."""
    total = 0.0
    for weight in weights:
        total += float(weight)
    votes = []
    for position, weight in zip(positions, weights, strict=True):
        share = int(float(weight) / total * ONE) if total else 0
        reads = corpus.following(position, skip + max_depth)[skip:]
        if share and reads:
            votes.append(Vote(0, 1.0, position + skip, reads, share))
    votes.sort(key=lambda vote: (vote.reads, vote.start))
    return grow(votes, ONE, max_nodes, max_depth)


def draft_live(
    documents: Sequence[Sequence[int]],
    context: Sequence[int],
    *,
    max_nodes: int,
    max_depth: int,
    min_match: int = 1,
    max_match: int = 16,
    levels: int = 16,
    latest: int = 3,
) -> Tree:
    """The latest matches of each suffix length in a text whose last document still grows."""
    text = Corpus(documents)
    n = sum(map(len, text.documents))
    growing = n - len(documents[-1]) if documents else 0

    def following(start: int, depth: int) -> Path:
        reads = text.following(start, depth)
        if start < growing or not reads:
            return reads
        return tuple(reads[i % len(reads)] for i in range(depth))

    found: list[tuple[int, float, list[int]]] = []
    for length in range(min(max_match, len(context)), min_match - 1, -1):
        starts = sorted(i + length for i in text.matches(context[len(context) - length :]))
        if starts and len(found) < levels:
            newest = sorted(
                starts[-latest:], key=lambda start: (following(start, max_depth), start)
            )
            found.append((length, 1.0, newest))
    return grow(escape(found, following, max_depth), ONE, max_nodes, max_depth)


def escape(
    found: list[tuple[int, float, list[int]]],
    following: Callable[[int, int], Path],
    max_depth: int,
) -> list[Vote]:
    """Votes by escape weights (PPM, method C), longest suffix first.

    Of what is left, each of n matches with d different next tokens gets 1/(n + d).
    """
    left, out = ONE, []
    for length, scale, starts in found:
        distinct = len({following(start, 1) for start in starts})
        each = left // (len(starts) + distinct)
        left -= each * len(starts)
        out += [Vote(length, scale, s, following(s, max_depth), each) for s in starts]
    return out


def grow(votes: list[Vote], total: int, max_nodes: int, max_depth: int) -> Tree:
    """The nodes with the most votes; ties: the shallower, the smaller token, the earlier parent."""
    tree = Tree()
    nodes: dict[Path, int] = {(): -1}
    weight: dict[Path, int] = {(): total}
    waiting = _children(votes, (), -1) if max_depth else []
    while waiting and len(tree.tokens) < max_nodes:
        waiting.sort()
        key, path = waiting.pop(0)
        weight[path] = -key[0]
        through = [vote for vote in votes if vote.votes and vote.reads[: len(path)] == path]
        longest = max(vote.match_len for vote in through)
        best = [vote for vote in through if vote.match_len == longest]
        tree.tokens.append(path[-1])
        tree.parents.append(nodes[path[:-1]])
        tree.prob.append(float(np.float32(weight[path] / weight[path[:-1]])))
        tree.match_len.append(float(longest))
        tree.count.append(float(np.float32(len(best) * best[0].scale)))
        tree.origin.append(best[0].start + len(path) - 1)
        nodes[path] = len(nodes) - 1
        if len(path) < max_depth:
            waiting += _children(votes, path, nodes[path])
    return tree


def _children(
    votes: list[Vote], path: Path, parent: int
) -> list[tuple[tuple[int, int, int, int], Path]]:
    """Nodes below `path` with their sort key: votes (most first), depth, token, parent."""
    depth = len(path) + 1
    sums: dict[Path, int] = {}
    for vote in votes:
        if vote.votes and len(vote.reads) >= depth and vote.reads[: depth - 1] == path:
            child = vote.reads[:depth]
            sums[child] = sums.get(child, 0) + vote.votes
    return [((-total, depth, child[-1], parent), child) for child, total in sums.items()]
