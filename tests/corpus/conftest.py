"""A small text with repeats in it, ways to write it down, and packs of it."""

import json

import pytest

from loopworth.corpus import open_corpus, pack
from loopworth.worlds import Words


@pytest.fixture(scope="session")
def texts():
    """Two hundred documents of English-like text, some of them twice, characters of every length in UTF-8 in some."""
    rows = Words(5).rows(range(180), 150)[:, 1:]
    found = [row.tobytes().decode() for row in rows]
    found[3] += " café 数学 🌍"
    return found + found[:20]


@pytest.fixture
def write(tmp_path):
    """Write lines of JSON, or text or bytes as they are."""

    def write(content, name="a.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(json.dumps({"n": k, "text": text}) + "\n" for k, text in enumerate(content))
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def packed(tmp_path, write, texts):
    """A pack of `texts`, or of another content."""

    def packed(content=None, to="pack", **options):
        pack([write(content or texts)], tmp_path / to, **options)
        return open_corpus(tmp_path / to)

    return packed


@pytest.fixture
def documents():
    """The documents of one side of a pack, as text, by its offsets."""

    def documents(corpus, side):
        stream, begins = corpus.stream(side), corpus.documents(side)
        assert (stream[begins] == corpus.manifest.start_token).all()
        ends = [*begins[1:].tolist(), len(stream)]
        return [corpus.tokenizer.decode(stream[a:b]) for a, b in zip(begins.tolist(), ends, strict=True)]

    return documents
