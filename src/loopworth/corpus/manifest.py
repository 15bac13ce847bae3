"""What a pack holds, as data: enough to tell two packs apart, and a whole one from a torn one."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from loopworth.errors import BadInput

SCHEMA = 1
FILE = "manifest.json"
# Bytes at either end of a file that are read again whenever a pack is opened.
END = 2**16


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Frozen):
    """One thing that was packed: its name without its folder, and a hash of its documents in their order."""

    name: str
    documents: int
    bytes: int
    sha256: str


class Side(_Frozen):
    """One token stream. `bytes` is of text, without start tokens; `ends` hashes the file's first and last bytes."""

    tokens: int
    documents: int
    bytes: int
    sha256: str
    ends: str


class Manifest(_Frozen):
    """`vocabulary` is what a model needs: `true_vocabulary` tokens, rounded up to a multiple of 64.

    A generated world has no sides: there is no end to it.
    """

    sources: tuple[Source, ...] = ()
    world: str | None = None
    tokenizer: str = "bytes"
    tokenizer_sha256: str | None = None
    start_token: int = 0xFF
    true_vocabulary: int = 256
    vocabulary: int = 256
    dtype: Literal["uint8", "uint16", "uint32"] = "uint8"
    held_out_rule: str = ""
    train: Side | None = None
    held_out: Side | None = None

    @cached_property
    def hash(self) -> str:
        """Of what defines the content: two packs of one hash train the same model. Names of files do not count."""
        sides = {name: side and side.sha256 for name, side in (("train", self.train), ("held_out", self.held_out))}
        kept = {"world", "tokenizer_sha256", "start_token", "vocabulary", "dtype"}
        text = json.dumps({"schema": SCHEMA, **sides, **self.model_dump(include=kept)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def bytes_per_token(self) -> float:
        """Of held-out text, start tokens among the tokens: nats per token / ln 2 / this = bits per byte."""
        return self.held_out.bytes / self.held_out.tokens if self.held_out else 1.0

    def as_json(self) -> str:
        """The text of manifest.json."""
        plain = self.model_dump(mode="json")
        shown = {"schema": SCHEMA, "hash": self.hash, "bytes_per_token": self.bytes_per_token, **plain}
        return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a pack; BadInput if there is none, or if it was changed by hand."""
    path = folder / FILE
    again = "Pack it again with 'loopworth pack'."
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        schema, named = raw.pop("schema"), raw.pop("hash")
        raw.pop("bytes_per_token")
    except FileNotFoundError:
        if not folder.exists():
            raise BadInput(
                f"there is no corpus {folder}: no folder of that name in {Path.cwd()}, and what comes with the project "
                "is words, words:SEED and sotu. Make a pack with 'loopworth pack SOURCE --to FOLDER'."
            ) from None
        raise BadInput(f"{folder} is no pack: it has no {FILE}. Make one with 'loopworth pack'.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}. Check its permissions.") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise BadInput(f"{path} is no manifest of a pack. {again}") from None
    if schema != SCHEMA:
        raise BadInput(f"{path} has schema {schema}; this version reads {SCHEMA}. {again}")
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise BadInput(f"{path}: {at}: {first['msg']}. {again}") from None
    if manifest.hash != named or manifest.train is None or manifest.held_out is None:
        raise BadInput(f"{path} was changed: its hash is not that of its content. {again}")
    return manifest


def ends_of(path: Path) -> str:
    """A hash of a file's first and last bytes, which tells a torn or swapped file without reading all of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        found = hashlib.sha256(file.read(END))
        file.seek(max(0, size - END))
        found.update(file.read(END))
    return found.hexdigest()
