"""The model of a run, from its folder."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from torch import Tensor

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
    try:
        _, tensors = read_tensors(found[-1])
    except (OSError, ValueError) as error:
        raise BadInput(f"{found[-1]} is damaged ({error}): restore it, or train the run again elsewhere.") from None
    model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    return model.to(device).eval()


def read_tensors(path: Path) -> tuple[int, dict[str, Tensor]]:
    """Step and tensors of a file of weights; ValueError where its checksum, in the .json beside it, is another."""
    note = json.loads(path.with_suffix(".json").read_bytes())
    content = path.read_bytes()
    if zlib.crc32(content) != note.get("crc32"):
        raise ValueError("its checksum is another")
    try:
        return note["step"], load_bytes(content)
    except (KeyError, SafetensorError) as error:
        raise ValueError(str(error)) from None
