"""Checkpoints: safetensors written beside and renamed, the previous one kept, a torn one passed over aloud."""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from loopworth.ledger.folder import replace
from loopworth.model.load import read_tensors

KEPT = 2


class TornCheckpoint(UserWarning):
    """A checkpoint that does not hold what was written; the one before it is taken."""


def write_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], name: str = "step") -> None:
    """`name`-`step`.safetensors, with its checksum in a file of its own that is written last."""
    content = save({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})
    path = folder / f"{name}-{step:09d}.safetensors"
    replace(path, content)
    replace(path.with_suffix(".json"), json.dumps({"step": step, "crc32": zlib.crc32(content)}).encode())
    if name == "step":
        for old in _paths(folder)[KEPT:]:
            old.with_suffix(".json").unlink(missing_ok=True)
            old.unlink(missing_ok=True)


def newest_checkpoint(folder: Path) -> tuple[int, dict[str, Tensor]] | None:
    """Step and tensors of the newest whole checkpoint; each that is not is told of by TornCheckpoint, and removed."""
    for path in _paths(folder):
        if found := read_checkpoint(path):
            return found
        # Left there, it would count among those that are kept.
        path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return None


def read_checkpoint(path: Path) -> tuple[int, dict[str, Tensor]] | None:
    """Step and tensors of one checkpoint, or None (and a warning) where it is not whole."""
    try:
        return read_tensors(path)
    except (OSError, ValueError) as error:
        why = str(error)
    warnings.warn(f"checkpoint {path} is torn ({why}): going on from the one before", TornCheckpoint, stacklevel=3)
    return None


def forget_checkpoints(folder: Path) -> None:
    """Remove what a finished run needs no more."""
    for path in _paths(folder):
        path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _paths(folder: Path) -> list[Path]:
    """Newest first; leftovers of a killed write are swept away."""
    for leftover in folder.glob(".*.safetensors.*"):
        if not _alive(leftover):
            leftover.unlink(missing_ok=True)
    # The checksum comes last: without one, a write (or a removal) was cut off and the file is no checkpoint.
    found = sorted(folder.glob("step-*.safetensors"), reverse=True)
    for path in found:
        if not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)
    return [path for path in found if path.exists()]


def _alive(leftover: Path) -> bool:
    try:
        os.kill(int(leftover.name.rpartition(".")[2]), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return int(leftover.name.rpartition(".")[2]) != os.getpid()
