"""The model of a run, from its folder."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from loopworth.errors import BadInput
from loopworth.ledger.folder import RunFolder
from loopworth.model.looped import LoopedTransformer
from loopworth.study import parse_spec


def load(folder: str | Path, device: str = "cpu") -> LoopedTransformer:
    """The trained model of a finished run; `spec.json` says its shape, `checkpoints/final-*` holds its weights."""
    run = RunFolder(Path(folder))
    raw = run.read("spec")
    if raw is None:
        raise BadInput(f"{folder} has no spec.json: name the folder of one run, such as runs/9f19d3c667312785.")
    found = sorted(run.checkpoints.glob("final-*.safetensors"))
    if not found:
        raise BadInput(f"{folder} holds no finished model: its run has not ended, diverged, or is a trunk.")
    model = LoopedTransformer(parse_spec(raw, f"{folder}/spec.json").shape)
    tensors = load_file(found[-1])
    model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    return model.to(device).eval()
