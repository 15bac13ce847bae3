"""Text to tokens: bytes, a BPE trained on the spot, or the tokenizer of a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loopworth.errors import BadInput

START_NAMES = (
    "<|bos|>",
    "<bos>",
    "<s>",
    "<|begin_of_text|>",
    "<|startoftext|>",
    "[BOS]",
    "<|endoftext|>",
    "[CLS]",
)
# Text that a BPE is trained on: the first of the documents that are not held out.
SAMPLE_BYTES = 2**26
_BYTE_ALPHABET = 256


class Tokenizer:
    """Documents to arrays of tokens, without their start token; `bytes`, or a tokenizer of the `tokenizers` library."""

    def __init__(self, name: str = "bytes", definition: str | None = None):
        self.name = name
        self.definition = definition
        self._inner: Any = None
        self.start_token, self.true_vocabulary = 0xFF, 256
        if definition is not None:
            self._load(definition)

    def _load(self, definition: str) -> None:
        inner = _library().Tokenizer.from_str(definition)
        special = {token.content: index for index, token in inner.get_added_tokens_decoder().items() if token.special}
        start = next((special[name] for name in START_NAMES if name in special), None)
        if start is None:
            inner.add_special_tokens([START_NAMES[0]])
            start = inner.token_to_id(START_NAMES[0])
        inner.no_truncation()
        inner.no_padding()
        # Text that happens to spell the start token must not begin a document.
        inner.encode_special_tokens = True
        self.start_token = start
        self.true_vocabulary = max(inner.get_vocab(with_added_tokens=True).values()) + 1
        self._inner = inner

    @cached_property
    def sha256(self) -> str | None:
        """Of the tokenizer's file; None for bytes."""
        return None if self.definition is None else hashlib.sha256(self.definition.encode()).hexdigest()

    @property
    def dtype(self) -> str:
        """The narrowest unsigned integers that hold every token."""
        return next(t for t in ("uint8", "uint16", "uint32") if self.true_vocabulary <= np.iinfo(t).max + 1)

    def encode(self, documents: Sequence[bytes]) -> list[NDArray[Any]]:
        """The tokens of each document, UTF-8."""
        if self._inner is None:
            return [np.frombuffer(document, np.uint8) for document in documents]
        found = self._inner.encode_batch_fast([d.decode() for d in documents], add_special_tokens=False)
        return [np.array(one.ids, self.dtype) for one in found]

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of tokens; start tokens are left out, a cut character becomes a replacement mark."""
        kept = [int(token) for token in tokens if int(token) != self.start_token]
        if self._inner is None:
            return bytes(kept).decode(errors="replace")
        return self._inner.decode(kept, skip_special_tokens=False)


def parse_tokenizer(name: str) -> int | Tokenizer:
    """`bytes` or a file as a tokenizer; for bpe:N, the N to train one with."""
    if name == "bytes":
        return Tokenizer()
    if name.startswith("bpe:"):
        size = name.removeprefix("bpe:")
        if not size.isdecimal() or not _BYTE_ALPHABET < int(size) <= 2**20:
            raise BadInput(
                f"tokenizer {name!r}: the vocabulary must be a whole number from 257 to 1048576, as bpe:4096."
            )
        _library()
        return int(size)
    path = Path(name).expanduser()
    try:
        definition = path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise BadInput(
            f"unknown tokenizer {name!r}: no file of that name in {Path.cwd()}. Allowed: bytes, bpe:N (as bpe:4096), "
            "or the path of a tokenizer.json."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"tokenizer {name} cannot be read: {error}.") from None
    return _from_definition(path.name, definition)


def _from_definition(name: str, definition: str) -> Tokenizer:
    _library()
    try:
        json.loads(definition)
        return Tokenizer(name, definition)
    except Exception as error:  # the library raises plain Exception
        why = str(error).splitlines()[0]
        raise BadInput(f"tokenizer {name} is no tokenizer.json of the tokenizers library: {why}.") from None


def read_tokenizer(folder: Path, name: str, sha256: str | None) -> Tokenizer:
    """The tokenizer that a pack was made with."""
    if sha256 is None:
        return Tokenizer()
    path = folder / "tokenizer.json"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}. The pack is not whole: pack it again.") from None
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise BadInput(f"{path} is not the tokenizer that the pack was made with. Pack it again.")
    return _from_definition(name, raw.decode())


def train_bpe(documents: Iterable[bytes], size: int) -> Tokenizer:
    """A byte-level BPE with `size` tokens, the start token among them; the same text gives the same tokenizer."""
    library = _library()
    from tokenizers import decoders, models, pre_tokenizers, trainers

    inner = library.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[START_NAMES[0]],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator((document.decode() for document in documents), trainer)
    found = inner.get_vocab_size(with_added_tokens=True)
    if found < size:
        raise BadInput(
            f"the text gives a BPE of {found:,} tokens only, not {size:,}: no further pair of tokens repeats. Use "
            f"--tokenizer bpe:{found} or less, or more text."
        )
    return Tokenizer(f"bpe:{size}", inner.to_str())


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise BadInput(
            "tokenizers other than bytes need a package that is not installed. pip install 'loopworth[text]', or use "
            "--tokenizer bytes."
        ) from None
    return tokenizers
