"""Compare specret.retrieval.draftretriever with REST's own module, where one is installed.

    python build_scripts/compare_draftretriever.py --queries 200

REST's module is built from its repository (branch main or llama3); the package of that name on
PyPI is another project's. Each query runs twelve times in a process of its own, for REST may
abort; where all twelve trees are equal ours must be that tree.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from specret.retrieval.draftretriever import Reader, Writer

CALLS = 12
ASK = """
import json, sys
import draftretriever
path, query, k, choices, long, calls = json.loads(sys.argv[1])
reader = draftretriever.Reader(index_file_path=path)
print(json.dumps([reader.search(query, k=k, choices=choices, long=long)[0] for _ in range(calls)]))
"""
WRITE = """
import json, sys
import draftretriever
path, chunk, vocab, corpus = json.loads(sys.argv[1])
writer = draftretriever.Writer(index_file_path=path, max_chunk_len=chunk, vocab_size=vocab)
for entry in json.load(open(corpus)):
    writer.add_entry(entry)
writer.finalize()
"""


def run(code: str, *arguments: Any) -> tuple[int, str]:
    command = [sys.executable, "-c", code, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr


def made_corpus(rng: np.random.Generator, vocab: int) -> list[list[int]]:
    """Entries that repeat spans of one another, as code does."""
    spans = [(rng.zipf(1.3, 40) % vocab).tolist() for _ in range(60)]
    entries = []
    for _ in range(120):
        entry: list[int] = []
        for span in rng.integers(len(spans), size=10):
            entry += spans[span][: rng.integers(5, 40)]
        entries.append(entry)
    return entries


def nodes_of(rows: list[list[int]]) -> set[tuple[int, ...]]:
    paths = [tuple(token for token in row if token != -2) for row in rows]
    return {path[:n] for path in paths for n in range(1, len(path) + 1)}


def compare(reader: Reader, path: str, ask: tuple[list[int], int, int, int]) -> str:
    query, k, choices, long = ask
    code, text = run(ASK, path, *ask, CALLS)
    ours = nodes_of(reader.search(query, k, choices, long)[0])
    if len(ours) > choices:
        return "OVER BUDGET"
    if code != 0:
        return "REST raises" if code > 0 else "REST aborts"
    answers = [nodes_of(rows) for rows in json.loads(text)]
    if any(answer != answers[0] for answer in answers):
        return "REST differs from call to call"
    return "equal" if ours == answers[0] else "DIFFERENT"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--chunk", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if importlib.util.find_spec("draftretriever") is None:
        print("no module draftretriever here: build REST's DraftRetriever folder with maturin")
        return 1
    rng = np.random.default_rng(args.seed)
    vocab = 20_000
    corpus = made_corpus(rng, vocab)
    flat = [token for entry in corpus for token in entry]
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours, listed = (Path(folder) / name for name in ("rest.idx", "ours.idx", "c.json"))
        listed.write_text(json.dumps(corpus))
        code, text = run(WRITE, str(theirs), args.chunk, vocab, str(listed))
        if code != 0:
            print(f"this draftretriever is not REST's, or it failed:\n{text}")
            return 1
        reader = Reader(theirs)
        with Writer(ours, args.chunk, vocab, token_width=reader.reader.token_width) as writer:
            for entry in corpus:
                writer.add_entry(entry)
        same = theirs.read_bytes() == ours.read_bytes()
        tally: Counter[str] = Counter()
        for at in rng.integers(0, len(flat) - 16, args.queries):
            query = flat[at : at + int(rng.integers(1, 6))]
            choices = int(rng.choice([1, 2, 4, 8, 16, 32, 64]))
            tally[compare(reader, str(theirs), (query, 5000, choices, 10))] += 1
    print(f"files byte-equal: {same}")
    for kind, count in tally.most_common():
        print(f"{count:6} {kind}")
    return 0 if same and not tally["DIFFERENT"] and not tally["OVER BUDGET"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
