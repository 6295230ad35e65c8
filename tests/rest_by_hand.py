"""REST's rule and its five buffers by the plainest means, to compare with."""

from collections.abc import Sequence

from specret.retrieval.reference import MATCH, Match, by_count, grow

Path = tuple[int, ...]
Buffers = tuple[list[list[int]], list[list[int]], list[int], list[int], list[list[int]]]


def chunks_of(entries: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    chunks: list[list[int]] = [[]]
    for entry in entries:
        if len(chunks[-1]) + len(entry) > most:
            chunks.append([])
        chunks[-1] += entry
    return chunks


def continuations(chunk: list[int], query: list[int], k: int, long: int) -> list[Path]:
    n = len(query)
    starts = [i for i in range(len(chunk) - n + 1) if chunk[i : i + n] == query]
    found = sorted(tuple(chunk[i + n : i + n + long]) for i in starts)
    return [path for path in (found[: max(k, 1)] if k >= 0 else found) if path]


def select(
    chunks: list[list[int]], query: list[int], k: int, choices: int, long: int
) -> list[Path]:
    """The paths that are kept, best first."""
    read = [path for chunk in chunks for path in continuations(chunk, query, k, long)]
    tree = grow(
        [Match(0, 1.0, 0, path) for path in sorted(read)],
        by_count,
        len(read) * MATCH,
        choices,
        long,
    )
    paths: list[Path] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    while sum(len(set(path)) for path in paths) > choices or len(prefixes(paths)) > choices:
        largest = max(len(set(path)) for path in paths)
        paths.pop(max(i for i, path in enumerate(paths) if len(set(path)) == largest))
    return paths


def prefixes(paths: Sequence[Path]) -> set[Path]:
    return {path[:n] for path in paths for n in range(1, len(path) + 1)}


def rows_to_paths(rows: list[list[int]]) -> list[Path]:
    return [tuple(token for token in row if token != -2) for row in rows]


def buffers(rows: list[list[int]]) -> Buffers:
    """All five from the first: the order of the rows is free, everything else follows from it."""
    if not rows:
        return [], [], [], [], []
    paths = rows_to_paths(rows)
    deepest = max(map(len, paths))
    columns = [list(dict.fromkeys(p[d] for p in paths if len(p) > d)) for d in range(deepest)]
    widest = max(map(len, columns))

    def places(path: Path) -> list[int]:
        return [column.index(token) for column, token in zip(columns, path, strict=False)]

    nodes = [(), *sorted(prefixes(paths), key=lambda path: (len(path), places(path)))]
    mask = [[int(a[: len(b)] == b) for b in nodes] for a in nodes]
    slots = [0] + [1 + widest * (len(n) - 1) + places(n)[-1] for n in nodes[1:]]
    leaves = [n for n in nodes if not any(o[:-1] == n for o in nodes[1:])]
    down = [[nodes.index(leaf[:n]) for n in range(len(leaf) + 1)] for leaf in reversed(leaves)]
    padded = [row + [-1] * (deepest + 1 - len(row)) for row in down]
    return rows, mask, slots, [len(n) for n in nodes], padded
