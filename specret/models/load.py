"""A transformers model, loaded and prepared for decoding, with the identity of what was loaded.

In: the name of a model, a dtype, a device. Out: a `LoadedModel`. Knows no store, no drafter and
no decoding loop. Where a model's files come from is `source`'s affair.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM

from specret.models.fingerprint import fingerprint_of
from specret.models.quiet import quiet
from specret.models.repack import has_onednn, repack_linears
from specret.models.source import Source, find_source
from specret.models.tokenizer import load_tokenizer
from specret.types import Fingerprint, SpecretError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in eval mode, its tokenizer, and what they are.

    Args:
        model: transformers causal language model; on a CPU its linear layers are repacked.
        tokenizer: its transformers tokenizer.
        fingerprint: identity of weights and tokenizer.
        device: where the weights are.
        dtype: what they are computed in.
        generation_config: the model's own defaults for generation.
        context_len: positions that the model can hold.
    """

    model: Any
    tokenizer: Any
    fingerprint: Fingerprint
    device: torch.device
    dtype: torch.dtype
    generation_config: Any
    context_len: int


def load_model(
    model: str | Path | None = None,
    *,
    dtype: str = "auto",
    device: str = "auto",
    threads: int | None = None,
) -> LoadedModel:
    """Load a causal language model and prepare it.

    Args:
        model: a folder, a GGUF file, or a hub id; None: the packaged small model.
        dtype: auto, float32, bfloat16 or float16; auto is the fastest one for verifying drafts.
        device: auto, cpu or cuda; auto takes a GPU where there is one.
        threads: CPU threads of torch; None leaves the number as it is.

    Raises:
        SpecretError: what was asked is not there, or is not a causal language model.
    """
    if threads is not None and threads < 1:
        raise SpecretError(f"threads is {threads}, expected 1 or more")
    place = _device(device)
    kind = choose_dtype(dtype, place)
    source = find_source(model)
    if threads is not None:
        torch.set_num_threads(threads)
    tokenizer = load_tokenizer(source)
    with quiet():
        network = _read(source, kind)
    network = network.to(place).eval().requires_grad_(False)
    fingerprint = fingerprint_of(source, network, tokenizer, str(kind).removeprefix("torch."))
    context_len = _context_len(network.config)
    if place.type == "cpu":
        repack_linears(network)
    return LoadedModel(
        network, tokenizer, fingerprint, place, kind, network.generation_config, context_len
    )


def _read(source: Source, dtype: torch.dtype) -> Any:
    try:
        config = AutoConfig.from_pretrained(source.folder)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source.folder,
            config=config,
            dtype=dtype,
            attn_implementation=_attention(config),
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise SpecretError(
            f"{source.model_id} does not load as a causal language model: {first_line}",
            "give a folder or hub id with config.json and safetensors weights",
        ) from error
    network, report = loaded
    absent = sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"]))
    if absent:
        raise SpecretError(
            f"{source.model_id}: its files hold no weights for {absent[0]} "
            f"({len(absent)} missing in all), expected a complete causal language model"
        )
    return network


def _attention(config: Any) -> str:
    # draft trees need masks of any shape, which flash kernels do not take; and transformers'
    # sdpa leaves out the soft cap of attention scores
    text = config.get_text_config()
    network = AutoModelForCausalLM._model_mapping.get(type(config), None)
    sdpa = getattr(network, "_supports_sdpa", False)
    capped = getattr(text, "attn_logit_softcapping", None) is not None
    return "sdpa" if sdpa and not capped else "eager"


def _device(name: str) -> torch.device:
    if name not in DEVICES:
        raise SpecretError(f"device is {name!r}, expected one of {', '.join(DEVICES)}")
    gpu = torch.cuda.is_available()
    if name == "cuda" and not gpu:
        raise SpecretError(
            "device is 'cuda', but torch sees no CUDA device here", "use --device cpu"
        )
    return torch.device("cuda" if gpu and name != "cpu" else "cpu")


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype asked for, or for `auto` the one that verifies drafts fastest.

    A CPU multiplies bfloat16 at twice the speed of float32 where it has the instructions
    (AVX512-BF16 or AMX). Without them one row is still faster in bfloat16 (half the bytes: 35
    against 46 ms for 135 M weights on 2 AVX2 cores), but rows cost extra one by one (8 rows 134
    against 59 ms), and drafts are verified by the row.
    """
    if name in DTYPES:
        return DTYPES[name]
    if name != "auto":
        raise SpecretError(f"dtype is {name!r}, expected auto, {', '.join(DTYPES)}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    fast = has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


def _context_len(config: Any) -> int:
    text = config.get_text_config()
    for name in ("max_position_embeddings", "max_seq_len", "seq_length"):
        length = getattr(text, name, None)
        if length is not None:
            return int(length)
    raise SpecretError(
        f"{type(config).__name__} states no context length, expected max_position_embeddings"
    )
