"""A run's folder: spec.json, metrics.jsonl (appended), record.json (written once); everything else can be rebuilt."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows, where nothing keeps two processes out of a folder
    fcntl = None

from pydantic import ValidationError

from loopworth.errors import BadInput, RunStopped
from loopworth.study import RunRecord


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
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise BadInput(f"{self.path / name}.json is not JSON ({error}): remove the file, then run again.") from None

    def record(self) -> RunRecord | None:
        """What the run came to, where it has ended."""
        if (found := self.read("record")) is None:
            return None
        try:
            return RunRecord.model_validate(found)
        except ValidationError as error:
            at = ".".join(map(str, error.errors()[0]["loc"]))
            raise BadInput(
                f"{self.path / 'record.json'} is not what this version of loopworth writes ({at}): read it with the "
                "version that wrote it, or move the run's folder away and run again."
            ) from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else trains in this folder meanwhile; the system lets go when this process ends, however it ends."""
        if fcntl is None:
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunStopped(f"{self.path} is being trained by another process: wait for it to end.") from None
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # a file system without locks
                    raise
            yield

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
                one = json.loads(line)
            except ValueError:
                break
            if not isinstance(one, dict):
                break
            found.append(one)
        return found

    def rewind(self, step: int) -> None:
        """Forget metrics after a step: a resumed run writes them again."""
        kept = [m for m in self.metrics() if m.get("step", step + 1) <= step]
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
