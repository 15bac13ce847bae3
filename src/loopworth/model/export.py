"""A run as a folder that `transformers` loads: config, weights, and the model's own source."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from loopworth.errors import BadInput
from loopworth.model.load import load
from loopworth.model.looped import LoopedTransformer

_SOURCES = ("model/exported.py", "model/looped.py", "model/injections.py", "model/layers.py", "shape.py")


def export(run: str | Path, to: str | Path, tokenizer: Path | None = None) -> Path:
    """Write the model of a finished run to a new folder, with `tokenizer.json` where the run's corpus has one.

    It loads by `AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)`, without loopworth installed.
    """
    model, to = load(run), Path(to)
    if to.exists():
        raise BadInput(f"{to} exists. Name a folder that does not: an export never overwrites.")
    beside = to.with_name(f".{to.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    config = {
        "model_type": "loopworth",
        "architectures": ["LoopedForCausalLM"],
        "auto_map": {"AutoConfig": "exported.LoopedConfig", "AutoModelForCausalLM": "exported.LoopedForCausalLM"},
        "shape": asdict(model.shape),
        "dtype": "float32",
    }
    (beside / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = {f"model.{name}": value.contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, beside / "model.safetensors", metadata={"format": "pt"})
    for source in _SOURCES:
        text = files("loopworth").joinpath(source).read_text(encoding="utf-8")
        # Side by side in one folder, they import each other as neighbours.
        text = re.sub(r"from loopworth\.(?:model\.)?(\w+) import", r"from .\1 import", text)
        (beside / Path(source).name).write_text(text, encoding="utf-8")
    if tokenizer is not None:
        shutil.copyfile(tokenizer, beside / "tokenizer.json")
        of = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.shape.context}
        (beside / "tokenizer_config.json").write_text(json.dumps(of, indent=1) + "\n")
    beside.rename(to)
    return to


@torch.no_grad()
def generate(model: LoopedTransformer, tokens_bt: Tensor, count: int, passes: int | None = None) -> Tensor:
    """The rows followed by `count` tokens, each the likeliest."""
    for _ in range(count):
        likeliest = model(tokens_bt, passes)[:, -1:].argmax(-1)
        tokens_bt = torch.cat([tokens_bt, likeliest], 1)
    return tokens_bt
