"""Text to packed rows of T + 1 tokens with a manifest; rows are a pure function of (manifest, data_seed, index)."""

from loopworth.corpus.manifest import Manifest, Side, Source
from loopworth.corpus.opening import Corpus, Generated, Pack, open_corpus
from loopworth.corpus.packing import pack
from loopworth.corpus.rows import Rows
from loopworth.corpus.tokens import Tokenizer

__all__ = [
    "Corpus",
    "Generated",
    "Manifest",
    "Pack",
    "Rows",
    "Side",
    "Source",
    "Tokenizer",
    "open_corpus",
    "pack",
]
