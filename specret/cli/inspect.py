"""`specret inspect`: what a datastore holds, by its manifest and files; loads no model."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from specret.cli import output
from specret.cli.options import STORE, Json, Model

if TYPE_CHECKING:
    from specret.datastore.manifest import Manifest
    from specret.datastore.store import Store

SAMPLE_TOKENS = 24
FIELDS = ("model_id", "weights", "tokenizer", "vocab_size", "hidden_size", "dtype", "layer")
SPARSE = ("tokens", "offsets", "documents", "suffix")
DENSE = ("index", "lists")


def inspect(
    store: Annotated[
        Path | None,
        typer.Argument(
            help=STORE,
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Documents to show, evenly spaced over the store.")
    ] = 3,
    model: Model = None,
    json: Json = False,
) -> None:
    """Show and verify what a datastore holds."""
    from specret.cli.opening import default_store
    from specret.datastore.manifest import open_manifest, verify
    from specret.datastore.store import Store

    folder = store or default_store(model)
    manifest = open_manifest(folder)
    verify(folder, manifest)
    opened = Store(folder, manifest)
    content = _content(folder, manifest) | {"skipped": opened.skipped()}
    shown = [_sample(opened, number) for number in _spread(manifest, samples)]
    tokenizer = _tokenizer(manifest, model) if shown else None
    for sample in shown:
        sample["text"] = (
            None
            if tokenizer is None
            else tokenizer.decode(sample["ids"], skip_special_tokens=False)
        )
    if json:
        output.record("inspect", {**content, "samples": shown})
        return
    output.data(_describe(content))
    for sample in shown:
        seen = sample["ids"] if sample["text"] is None else repr(sample["text"])
        output.data(f"{'sample':<10}  {sample['document']}: {seen}")


def _content(folder: Path, manifest: "Manifest") -> dict[str, Any]:
    tokens = manifest.counts["tokens"]
    return {
        "store": str(folder),
        "fingerprint": {name: getattr(manifest.fingerprint, name) for name in FIELDS},
        "parameters": dict(manifest.parameters),
        "counts": dict(manifest.counts),
        "files": {
            role: {"path": file.path, "bytes": file.bytes, "rows": file.rows}
            for role, file in manifest.files.items()
        },
        "features": sum(f.rows for r, f in manifest.files.items() if r.startswith("features-")),
        "bytes": manifest.bytes,
        "bytes_per_token": _ratio(manifest, SPARSE, tokens),
        "bytes_per_key": _ratio(manifest, DENSE, manifest.counts.get("keys", 0)),
    }


def _ratio(manifest: "Manifest", roles: tuple[str, ...], rows: int) -> float | None:
    held = sum(manifest.files[role].bytes for role in roles if role in manifest.files)
    return held / rows if rows else None


def _describe(content: Mapping[str, Any]) -> str:
    counts, known = content["counts"], content["fingerprint"]
    exception = ", features by their sizes" if content["features"] else ""
    rows = [
        ("store", f"{content['store']} (every file as its manifest says{exception})"),
        ("model", f"{known['model_id']}, weights {known['weights'][:12]}, {known['dtype']}"),
        ("tokenizer", f"{known['tokenizer'][:12]}, {known['vocab_size']:,} ids"),
        ("corpus", str(content["parameters"]["corpus"])),
        ("content", _kind(content["parameters"])),
        ("documents", f"{counts['documents']:,} ({counts['skipped']:,} skipped)"),
        ("tokens", f"{counts['tokens']:,}, {content['bytes_per_token']:.2f} bytes each"),
    ]
    if content["bytes_per_key"] is not None:
        rows.append(
            (
                "keys",
                f"{counts['keys']:,} of {counts['dim']} dimensions, "
                f"{content['bytes_per_key']:.1f} bytes each",
            )
        )
    if content["features"]:
        rows.append(("features", f"of {content['features']:,} answers, for training a draft head"))
    rows.append(("size", f"{content['bytes'] / 1e6:,.1f} MB"))
    return "\n".join(f"{name:<10}  {value}" for name, value in rows)


def _kind(parameters: Mapping[str, Any]) -> str:
    if "recipe" not in parameters:
        return "the corpus' own text"
    prompts = "with the prompts" if parameters["with_prompts"] else "without the prompts"
    if parameters["recipe"] == "recorded":
        return f"recorded answers, {prompts}"
    temperature = parameters["temperature"]
    how = f"temperature {temperature}, seed {parameters['seed']}" if temperature else "greedy"
    return f"the model's answers to prompts of the recipe {parameters['recipe']}, {how}, {prompts}"


def _spread(manifest: "Manifest", samples: int) -> list[int]:
    last = manifest.counts["documents"] - 1
    return sorted({int(i) for i in np.linspace(0, last, min(samples, last + 1)).round()})


def _sample(store: "Store", number: int) -> dict[str, Any]:
    start, end = int(store.offsets[number]), int(store.offsets[number + 1])
    ids = store.tokens[start : min(end, start + SAMPLE_TOKENS)].astype(np.int64).tolist()
    return {"document": store.document_of(start), "tokens": end - start, "ids": ids}


def _tokenizer(manifest: "Manifest", model: str | None) -> Any | None:
    """The store's own tokenizer; None, and a note, where the model at hand has another."""
    from specret.models.default import MODEL_ID
    from specret.models.source import find_source
    from specret.models.tokenizer import bare_tokenizer, tokenizer_digest

    wanted = manifest.fingerprint
    tokenizer = None
    if model is not None or wanted.model_id == MODEL_ID:
        tokenizer = bare_tokenizer(find_source(model))
    if tokenizer is None or tokenizer_digest(tokenizer) != wanted.tokenizer:
        output.note(f"samples are ids: text needs the tokenizer of {wanted.model_id} (--model)")
        return None
    return tokenizer
