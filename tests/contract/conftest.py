from typing import Any

import numpy as np
import pytest
from self_store import own_answers, store_of
from toys import tiny_target

from specret.registry import Resources

PROMPTS = [np.random.default_rng(seed).integers(0, 64, 12).tolist() for seed in range(4)]


@pytest.fixture(scope="session", name="target")
def _target() -> Any:
    return tiny_target(hidden_size=96)


@pytest.fixture(scope="session", name="answers")
def _answers(target: Any) -> list[np.ndarray]:
    return own_answers(target, PROMPTS, 60)


@pytest.fixture(scope="session", name="resources")
def _resources(
    target: Any, answers: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> Resources:
    """A self-corpus: long blocks of it are accepted, so no test here passes for want of drafts."""
    store = store_of(answers, target, tmp_path_factory.mktemp("self"))
    return Resources(vocab_size=64, hidden_size=96, store=store)


@pytest.fixture(scope="session", name="hostile")
def _hostile(target: Any, tmp_path_factory: pytest.TempPathFactory) -> Resources:
    """A store of random ids: nearly nothing of it is accepted."""
    rng = np.random.default_rng(9)
    documents = [rng.integers(0, 64, 200) for _ in range(3)]
    store = store_of(documents, target, tmp_path_factory.mktemp("hostile"))
    return Resources(vocab_size=64, hidden_size=96, store=store)
