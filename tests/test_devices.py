"""Devices are chosen at one place; everything else follows the model."""

import re
from pathlib import Path

import specret

CHOOSES = {"models/load.py", "cli/options.py"}
"""Where a device may be named to choose it."""


def test_no_other_file_places_anything_on_a_gpu_by_name() -> None:
    root = Path(specret.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        placed = re.search(r"""\.cuda\(\)|(\.to|device)\(["']cuda|device=["']cuda""", text)
        if placed and name not in CHOOSES:
            found.add(name)
    assert not found
