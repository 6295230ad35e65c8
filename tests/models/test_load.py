"""What load_model returns, how it tells models and tokenizers apart, and what it refuses."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_folder import save_tiny
from toys import byte_tokenizer

from specret.models.load import load_model
from specret.models.repack import PackedLinear
from specret.models.source import find_source
from specret.models.tokenizer import bare_tokenizer, load_tokenizer, tokenizer_digest
from specret.types import SpecretError


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: Any) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECRET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_a_loaded_model_is_ready_and_known(folder: Path) -> None:
    loaded = load_model(str(folder), dtype="float32", device="cpu")
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert isinstance(loaded.model.get_output_embeddings(), PackedLinear)
    assert loaded.model.config._attn_implementation == "sdpa"
    assert (loaded.device, loaded.dtype) == (torch.device("cpu"), torch.float32)
    assert loaded.context_len == 128
    assert loaded.generation_config.eos_token_id == 276
    print_ = loaded.fingerprint
    assert (print_.model_id, print_.vocab_size, print_.hidden_size) == ("tiny", 288, 64)
    assert print_.dtype == "float32"


def test_dtype_auto_is_bfloat16_just_where_the_cpu_multiplies_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkldnn = torch.ops.mkldnn
    fast = bool(mkldnn._is_mkldnn_bf16_supported())
    assert load_model(folder, device="cpu").dtype is (torch.bfloat16 if fast else torch.float32)
    monkeypatch.setattr("specret.models.load.has_onednn", lambda: False)
    assert load_model(folder, device="cpu").dtype is torch.float32


def test_bfloat16_loads_and_computes_everywhere(folder: Path) -> None:
    loaded = load_model(folder, dtype="bfloat16", device="cpu")
    with torch.inference_mode():
        logits = loaded.model(torch.arange(5)[None]).logits
    assert logits.dtype is torch.bfloat16
    assert torch.isfinite(logits).all()


def test_threads_sets_torch_threads(folder: Path) -> None:
    before = torch.get_num_threads()
    try:
        load_model(folder, device="cpu", threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_loading_prints_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model(folder, device="cpu")
    assert capfd.readouterr() == ("", "")


def test_fingerprints_of_one_model_agree_and_of_two_differ(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    other = save_tiny(tmp_path / "other", seed=1)
    first, same, changed = (load_model(f).fingerprint for f in (folder, copy, other))
    assert first.weights == same.weights != changed.weights
    assert first.tokenizer == same.tokenizer == changed.tokenizer


def test_changed_weights_change_the_fingerprint_though_digests_are_remembered(
    tmp_path: Path,
) -> None:
    folder = save_tiny(tmp_path / "model")
    first = load_model(folder).fingerprint
    save_tiny(folder, seed=2)
    assert load_model(folder).fingerprint.weights != first.weights


def permuted(tokenizer: Any) -> Any:
    """The same tokens with two ids exchanged: same sizes, other meaning."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocab = content["model"]["vocab"]
    vocab["A"], vocab["B"] = vocab["B"], vocab["A"]
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(json.dumps(content))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend)


def with_token(tokenizer: Any) -> Any:
    tokenizer.add_tokens(["<more>"])
    return tokenizer


@pytest.mark.parametrize("change", [permuted, with_token])
def test_another_tokenizer_has_another_digest(change: Any) -> None:
    assert tokenizer_digest(change(byte_tokenizer())) != tokenizer_digest(byte_tokenizer())


def test_a_tokenizer_has_one_digest_whoever_reads_it(folder: Path) -> None:
    for source in (find_source(folder), find_source(None)):
        bare, whole = bare_tokenizer(source), load_tokenizer(source)
        assert tokenizer_digest(bare) == tokenizer_digest(whole)
        ids = whole("def f(x):\n    return 'é'")["input_ids"]
        assert bare.decode(ids, skip_special_tokens=False) == whole.decode(ids)


def test_the_state_of_a_call_does_not_change_a_digest() -> None:
    tokenizer = byte_tokenizer()
    before = tokenizer_digest(tokenizer)
    tokenizer.add_special_tokens({"pad_token": "<right>"})
    with_pad = tokenizer_digest(tokenizer)
    tokenizer(["a", "bcd"], padding=True, truncation=True, max_length=2)
    assert tokenizer_digest(tokenizer) == with_pad
    assert tokenizer_digest(byte_tokenizer()) == before


def no_config(folder: Path) -> Path:
    (folder / "config.json").unlink()
    return folder


def no_weights(folder: Path) -> Path:
    (folder / "model.safetensors").unlink()
    return folder


def no_tokenizer(folder: Path) -> Path:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    return folder


def cut_weights(folder: Path) -> Path:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    return folder


def weights_of_another_depth(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    return folder


def tokenizer_too_large(folder: Path) -> Path:
    return save_tiny(folder, vocab_size=277)


def a_file(folder: Path) -> Path:
    return folder / "config.json"


def damaged_gguf(folder: Path) -> Path:
    (folder / "m.gguf").write_bytes(b"GGUF nothing more")
    return folder / "m.gguf"


REFUSED = {
    no_config: "has no config.json, expected one model",
    no_weights: "has no weights, expected *.safetensors",
    no_tokenizer: "copy has no tokenizer that loads",
    cut_weights: "copy does not load as a causal language model",
    weights_of_another_depth: "its files hold no weights for model.layers.2",
    tokenizer_too_large: "its tokenizer has id 277, but its LM head has only 277 rows",
    a_file: "is a file, expected a folder or a .gguf file",
    damaged_gguf: "is not a GGUF model that transformers reads",
}


@pytest.mark.parametrize("damage", REFUSED, ids=lambda d: d.__name__)
def test_unfit_models_are_refused_by_name(damage: Any, folder: Path, tmp_path: Path) -> None:
    model = damage(shutil.copytree(folder, tmp_path / "copy"))
    with pytest.raises(SpecretError, match=re.escape(REFUSED[damage])):
        load_model(model, device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype is 'int8', expected auto, float32"),
        ({"device": "tpu"}, "device is 'tpu', expected one of auto, cpu, cuda"),
        ({"threads": 0}, "threads is 0, expected 1 or more"),
        ({"model": "./nowhere"}, "model './nowhere' is no folder, file or hub id"),
        ({"model": "no-one/nothing"}, "the hub cannot be reached"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecretError, match=re.escape(message)):
        load_model(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_refused(folder: Path) -> None:
    with pytest.raises(SpecretError, match="torch sees no CUDA device") as caught:
        load_model(folder, device="cuda")
    assert caught.value.hint == "use --device cpu"
