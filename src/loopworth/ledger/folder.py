"""A run's folder: spec.json, metrics.jsonl (appended), record.json (written once); everything else can be rebuilt."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopworth.errors import BadInput


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes what a run leaves behind; nothing is ever half written."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Where weights lie."""
        return self.path / "checkpoints"

    def open(self) -> RunFolder:
        """Make the folder; BadInput where that cannot be done."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{self.path} cannot be made: {error.strerror}. Name a folder that you may write.") from None
        return self

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file by atomic rename: a reader sees the old one or the new one, whole."""
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        replace(self.path / f"{name}.json", text.encode())

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the folder; None where there is none."""
        try:
            return json.loads((self.path / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise BadInput(f"{self.path / name}.json is not JSON ({error}): remove the file, then run again.") from None

    def append(self, metrics: Mapping[str, Any]) -> None:
        """One line of metrics."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=True) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Every whole line of metrics, in order; a torn last line is left out."""
        try:
            lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def rewind(self, step: int) -> None:
        """Forget metrics after a step: a resumed run writes them again."""
        kept = [m for m in self.metrics() if m["step"] <= step]
        replace(self.path / "metrics.jsonl", "".join(json.dumps(m) + "\n" for m in kept).encode())


def replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and see it to the disk."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
