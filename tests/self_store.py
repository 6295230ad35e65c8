"""A store of the target's own answers, in memory but of real parts: drafts from it are accepted."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from toys import no_guess, run_steps, written

from specret._suffix import SuffixIndex, build_suffix
from specret.datastore.projection import Moments, Projection
from specret.datastore.vectors import DenseIndex
from specret.decode.draw import Greedy
from specret.decode.verify.follow import follow


def store_of(documents: Sequence[np.ndarray], target: Any, folder: Path) -> SimpleNamespace:
    """What drafters see of a store: suffix index, dense index, projection, tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = np.concatenate(documents).astype("<u4")
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.uint64)
    (folder / "tokens").write_bytes(tokens.tobytes())
    paths = str(folder / "tokens"), str(folder / "suffix")
    build_suffix(paths[0], 4, offsets, target.vocab_size, paths[1])
    suffix = SuffixIndex.open(paths[0], 4, paths[1], target.vocab_size)
    states, positions = [], []
    for start, document in zip(offsets.tolist(), documents, strict=False):
        with torch.inference_mode():
            ids = torch.from_numpy(document[:-2].astype(np.int64))[None]
            own = target.model.base_model(ids, use_cache=False).last_hidden_state[0]
        states.append(own.float().numpy())
        positions.append(start + np.arange(len(document) - 2))
    rows, at = np.concatenate(states), np.concatenate(positions).astype(np.int64)
    moments = Moments(rows.shape[1])
    moments.add(rows)
    projection = Projection.fit(moments, 64)
    following = tokens[at + 1].astype(np.int64)
    lists = np.unique(following)
    dense = DenseIndex.build(lists, [(projection.apply(rows), following, at)])
    return SimpleNamespace(
        path=folder,
        own_answers=True,
        suffix=suffix,
        dense=dense,
        projection=projection,
        tokens=tokens,
        offsets=offsets,
    )


def own_answers(target: Any, prompts: Sequence[Sequence[int]], new: int) -> list[np.ndarray]:
    """Prompt and greedy answer of each prompt, as one document each."""
    out = []
    for prompt in prompts:
        steps = run_steps(target, no_guess(target.vocab_size), Greedy(), prompt, new, verify=follow)
        out.append(np.array([*prompt, *written(steps)], np.int64))
    return out
