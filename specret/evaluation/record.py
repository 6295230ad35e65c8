"""A run's record: where it was measured and what was written, as files that others can read.

In: an engine, a result, samples. Out: results.json, and samples.jsonl with Spec-Bench's fields.
"""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from time import time
from typing import Any

import torch

from specret.engine import Engine
from specret.evaluation.prompts import Prompt
from specret.evaluation.sample import Answer, Sample

PACKAGES = ("specret", "torch", "transformers", "faiss-cpu", "faiss-gpu", "numpy")


def provenance(engine: Engine, command: Sequence[str]) -> dict[str, Any]:
    """Command, versions, device and what the figures belong to."""
    loaded, device = engine.loaded, engine.loaded.device
    cuda = device.type == "cuda"
    return {
        "command": list(command),
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if cuda else str(device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "attention": loaded.model.config._attn_implementation,
        "model": asdict(loaded.fingerprint),
        "stores": [
            {
                "fingerprint": asdict(store.manifest.fingerprint),
                "parameters": dict(store.manifest.parameters),
                "counts": dict(store.manifest.counts),
            }
            for store in engine.stores
        ],
    }


def answer_lines(prompts: Sequence[Prompt], answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """One line for each method and prompt, in the fields of Spec-Bench's answer files.

    `wall_time` holds the prefill as theirs does; `prefill_time` tells it apart.
    `accept_lengths` has one entry for each decode pass, the target's own token included.
    """
    lines = []
    for number, prompt in enumerate(prompts):
        turns = [answer for answer in answers if answer.prompt == number]
        for name in turns[0].samples:
            lines.append(_line(prompt, name, [turn.samples[name] for turn in turns]))
    return lines


def save(folder: Path, result: dict[str, Any], lines: Sequence[dict[str, Any]]) -> None:
    """Write results.json and samples.jsonl into the folder, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "samples.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    _write(folder / "results.json", json.dumps(result, indent=1, allow_nan=False) + "\n")


def _line(prompt: Prompt, method: str, samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "question_id": prompt.id,
        "category": prompt.category,
        "answer_id": f"{method}/{prompt.id}",
        "model_id": method,
        "choices": [
            {
                "index": 0,
                "turns": [s.text for s in samples],
                "decoding_steps": [len(s.accept_lengths) for s in samples],
                "new_tokens": [len(s.tokens) for s in samples],
                "wall_time": [s.prefill_s + s.decode_s for s in samples],
                "accept_lengths": [length for s in samples for length in s.accept_lengths],
                "prefill_time": [s.prefill_s for s in samples],
            }
        ],
        "tstamp": time(),
    }


def _write(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)


def _versions() -> dict[str, str]:
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # the other FAISS, or a checkout on the path
            continue
    return installed
