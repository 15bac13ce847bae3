"""What goes into a pack comes out of it, whatever the form of the source; and it is whole or not there."""

import bz2
import gzip
import json
import lzma
import subprocess
import sys

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopworth.corpus import open_corpus, pack
from loopworth.corpus.packing import Progress
from loopworth.errors import BadInput


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:400"])
def test_every_document_is_in_the_pack_once_and_in_order(packed, documents, texts, tokenizer):
    corpus = packed(tokenizer=tokenizer)
    train, held_out = documents(corpus, "train"), documents(corpus, "held_out")
    assert sorted([*train, *held_out]) == sorted(texts)
    assert [text for text in texts if text in set(train)] == train
    manifest = corpus.manifest
    for name, found in (("train", train), ("held_out", held_out)):
        side = getattr(manifest, name)
        assert side.documents == len(found)
        assert side.bytes == sum(len(text.encode()) for text in found)
        assert side.tokens == len(corpus.stream(name))
    assert manifest.bytes_per_token == manifest.held_out.bytes / manifest.held_out.tokens


def test_duplicates_stay_on_one_side(packed, documents):
    text = [f"text number {k % 50}" for k in range(400)]
    corpus = packed(text, held_out=0.3)
    train, held_out = (set(documents(corpus, side)) for side in ("train", "held_out"))
    assert not train & held_out
    assert len(train | held_out) == 50


def test_what_is_held_out_depends_on_the_text_alone(packed, documents, texts):
    held = set(documents(packed(), "held_out"))
    assert set(documents(packed(texts[::-1], to="backwards"), "held_out")) == held
    more = set(documents(packed([*texts, "one more", "and another"], to="more"), "held_out"))
    assert held == more - {"one more", "and another"}
    assert held < set(documents(packed(to="larger", held_out=0.2), "held_out"))


@pytest.mark.parametrize("count", [1, 7, 179])
def test_a_number_of_documents_can_be_held_out(packed, documents, count):
    corpus = packed(held_out=count)
    assert len(set(documents(corpus, "held_out"))) == count
    assert not set(documents(corpus, "train")) & set(documents(corpus, "held_out"))


def test_a_source_can_be_held_out(packed, documents, write, texts):
    apart = write([*texts[5:8], "seen nowhere else"], "apart/b.jsonl")
    corpus = packed(held_out=apart)
    assert documents(corpus, "held_out") == [*texts[5:8], "seen nowhere else"]
    assert documents(corpus, "train") == [text for text in texts if text not in texts[5:8]]
    assert [source.name for source in corpus.manifest.sources] == ["a.jsonl", "b.jsonl"]


def parquet(path, texts):
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (n INTEGER, text VARCHAR)")
        con.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(texts)))
        con.execute(f"COPY t TO '{path}' (FORMAT parquet)")


@pytest.mark.parametrize("form", ["gz", "xz", "bz2", "parquet", "folder", "divided"])
def test_the_form_of_the_source_does_not_change_the_pack(packed, tmp_path, write, texts, form):
    usual = packed().manifest
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    if form == "folder":
        write(texts[:90], "many/a.jsonl")
        write(gzip.compress("".join(json.dumps({"text": t}) + "\n" for t in texts[90:140]).encode()), "many/b.jsonl.gz")
        (tmp_path / "many" / "sub").mkdir()
        parquet(tmp_path / "many" / "sub" / "c.parquet", texts[140:])
        write("not read", "many/notes.md")
        source = str(tmp_path / "many")
    elif form == "parquet":
        parquet(tmp_path / "t.parquet", texts)
        source = str(tmp_path / "t.parquet")
    elif form == "divided":
        source = write("\n<end>\n".join(text.rstrip() for text in texts), "t.txt")
    else:
        packer = {"gz": gzip, "xz": lzma, "bz2": bz2}[form]
        source = write(packer.compress(lines), f"t.jsonl.{form}")
    found = pack([source], tmp_path / "other", divide="<end>" if form == "divided" else None)
    if form == "divided":  # a line's end belongs to its document
        assert found.train.documents + found.held_out.documents == len(texts)
    else:
        assert found.hash == usual.hash
        assert found.sources[0].sha256 == usual.sources[0].sha256


def test_a_long_text_is_cut_at_blank_lines_into_documents(tmp_path, write, documents, texts):
    text = "\ufeff" + "\n\n".join(texts * 4) + "\n\n" + "ü" * 100_000
    manifest = pack([write(text, "long.txt")], tmp_path / "pack", held_out=1)
    corpus = open_corpus(tmp_path / "pack")
    found = documents(corpus, "train") + documents(corpus, "held_out")
    assert sum(map(len, found)) == len(text) - 1
    assert manifest.train.documents > 5
    assert sum(piece.endswith("\n\n") for piece in found) > 4
    assert all(2**14 <= len(piece.encode()) <= 2**16 for piece in found[1:-2])


def test_a_limit_ends_packing(packed, tmp_path):
    manifest = packed(limit=10_000).manifest
    assert 10_000 <= manifest.train.bytes + manifest.held_out.bytes < 10_300
    words = pack(["words:3"], tmp_path / "words", limit=100_000)
    assert words.train.bytes + words.held_out.bytes == -(-100_000 // 2048) * 2048


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=8))
def test_any_unicode_survives(tmp_path_factory, found):
    folder = tmp_path_factory.mktemp("unicode")
    kept = [text for text in dict.fromkeys(found) if text.encode().strip()]
    if len(kept) < 2:
        return
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in kept))
    pack([str(folder / "a.jsonl")], folder / "pack", held_out=1)
    corpus = open_corpus(folder / "pack")
    stream = np.concatenate([corpus.stream("train"), corpus.stream("held_out")])
    assert (stream == 0xFF).sum() == len(kept)
    assert sorted(bytes(stream[stream != 0xFF])) == sorted("".join(kept).encode())


def test_the_same_content_again_is_no_mistake_and_other_content_is(packed, tmp_path, write, texts):
    first = packed().manifest
    other_name = write(texts, "renamed.jsonl")
    assert pack([other_name], tmp_path / "pack").hash == first.hash
    with pytest.raises(BadInput, match="already a pack, of other content"):
        packed(texts[1:])
    with pytest.raises(BadInput, match="already a pack, with tokenizer bytes"):
        packed(tokenizer="bpe:300")
    with pytest.raises(BadInput, match=r"already a pack, .* a share of 0\.05"):
        packed(held_out=0.5)
    assert open_corpus(tmp_path / "pack").manifest == first
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(BadInput, match="is no pack"):
        packed(to="mine")
    assert names(tmp_path) == ["a.jsonl", "mine", "pack", "renamed.jsonl"]


def test_a_mistake_half_way_leaves_nothing(tmp_path, write, texts):
    source = write("".join(json.dumps({"text": text}) + "\n" for text in texts * 100) + "{torn\n")
    with pytest.raises(BadInput, match="line 20,001 is not JSON"):
        pack([source], tmp_path / "pack")
    assert names(tmp_path) == ["a.jsonl"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, write, texts):
    """A limit on the size of files stands in for a disk without space."""
    source = write(texts * 100)
    code = (
        "import resource, signal, sys\n"
        "from loopworth.corpus import pack\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: pack([sys.argv[1]], sys.argv[2])\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, source, tmp_path / "pack"], capture_output=True, text=True)
    assert done.stdout.startswith("BadInput")
    assert "cannot be written: File too large" in done.stdout
    assert names(tmp_path) == ["a.jsonl"]


def test_a_kill_leaves_no_pack_behind(tmp_path, write, texts):
    source = write(texts * 100)
    code = (
        "import os, signal, sys\n"
        "from loopworth.corpus import pack\n"
        "pack([sys.argv[1]], sys.argv[2], watch=lambda now: os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, source, tmp_path / "pack"], capture_output=True)
    assert done.returncode == -9
    assert not (tmp_path / "pack").exists()
    pack([source], tmp_path / "pack")
    assert open_corpus(tmp_path / "pack").manifest.train.documents > 0


def test_progress_goes_up_to_the_end(tmp_path, write, texts):
    seen: list[Progress] = []
    pack([write(texts * 70)], tmp_path / "pack", tokenizer="bpe:300", watch=seen.append)
    assert {one.stage for one in seen} == {"training the tokenizer", "packing"}
    shares = [one.share for one in seen if one.stage == "packing"]
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert shares[-1] == 1


MISTAKES = {
    "nothing there": ("gone.txt", {}, "there is no file or folder gone.txt"),
    "no text": ("empty.txt", {}, "empty.txt is empty"),
    "blanks only": ("blanks.jsonl", {}, "blanks.jsonl is empty"),
    "Latin-1": ("latin.txt", {}, "latin.txt is not UTF-8 text: byte 3 is 0xE9"),
    "no JSON": ("torn.jsonl", {}, "torn.jsonl, line 2 is not JSON"),
    "no object": ("list.jsonl", {}, "list.jsonl, line 1 is no object"),
    "no such field": (
        "good.jsonl",
        {"text_field": "body"},
        "line 1 has no field 'body'; it has n, text. .* --text-field",
    ),
    "a number for text": ("good.jsonl", {"text_field": "n"}, "line 1, field 'n' is of type int, not text"),
    "half a character": ("half.jsonl", {}, r"half.jsonl, line 1, field 'text' holds half a character \('\\ud83d'\)"),
    "no such column": ("t.parquet", {"text_field": "body"}, "t.parquet has no column 'body'; it has n, text"),
    "null": ("null.parquet", {}, r"row 2, column 'text' is empty \(null\)"),
    "torn Parquet": ("torn.parquet", {}, "torn.parquet cannot be read as Parquet"),
    "torn gzip": ("torn.jsonl.gz", {}, "torn.jsonl.gz cannot be read: .*whole"),
    "torn xz": ("torn.jsonl.xz", {}, "torn.jsonl.xz cannot be read: .*whole"),
    "a folder without text": ("bare", {}, "the folder bare has no text in it. .*txt"),
    "no end": ("words", {}, "words has no end: give --limit"),
    "no seed": ("words:x", {}, "'words:x': the seed .* whole number"),
    "unknown tokenizer": ("good.jsonl", {"tokenizer": "gpt5"}, "unknown tokenizer 'gpt5'.*bytes, bpe:N"),
    "too small a BPE": ("good.jsonl", {"tokenizer": "bpe:256"}, "from 257"),
    "too large a BPE": ("good.jsonl", {"tokenizer": "bpe:50000"}, "gives a BPE of .* tokens only, not 50,000"),
    "no tokenizer": ("good.jsonl", {"tokenizer": "list.jsonl"}, "list.jsonl is no tokenizer.json"),
    "held out what": ("good.jsonl", {"held_out": "much"}, "there is no file or folder much"),
    "held out nothing": ("good.jsonl", {"held_out": "0"}, "between 0 and 1"),
    "held out a half": ("good.jsonl", {"held_out": "1.5"}, "between 0 and 1"),
    "held out nan": ("good.jsonl", {"held_out": "nan"}, "between 0 and 1"),
    "held out all": ("good.jsonl", {"held_out": "3"}, "nothing to train on, there are 3 different"),
    "one side empty": ("one.txt", {}, "nothing was held out: .* puts all 1 documents on one side"),
    "no bytes": ("good.jsonl", {"limit": 0}, "limit is 0 bytes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_said_and_leaves_nothing(tmp_path, monkeypatch, write, mistake):
    monkeypatch.chdir(tmp_path)
    source, options, words = MISTAKES[mistake]
    write(["first", "second", "third"], "good.jsonl")
    write("", "empty.txt")
    write(["", " \n"], "blanks.jsonl")
    write(b"caf\xe9", "latin.txt")
    write(b'{"text": "a"}\n{"text": "b', "torn.jsonl")
    write("[1, 2]\n", "list.jsonl")
    write(b'{"text": "\\ud83d"}\n', "half.jsonl")
    parquet("t.parquet", ["a", "b"])
    parquet("null.parquet", ["a", None])
    write((tmp_path / "t.parquet").read_bytes()[:-30], "torn.parquet")
    write(gzip.compress(b'{"text": "a"}\n' * 1000)[:-12], "torn.jsonl.gz")
    write(lzma.compress(b'{"text": "a"}\n' * 1000)[:-12], "torn.jsonl.xz")
    write("short", "one.txt")
    write("x", "bare/notes.md")
    before = names(tmp_path)
    with pytest.raises(BadInput, match=words) as caught:
        pack([source], "pack", **options)
    assert len(str(caught.value)) < 500
    assert names(tmp_path) == before


@pytest.mark.full
@pytest.mark.filterwarnings("default")
def test_a_hugging_face_data_set_gives_the_same_pack(packed, tmp_path, write, texts):
    pytest.importorskip("datasets", reason="the package datasets is not installed")
    usual = packed()
    write(texts, "set/train.jsonl")
    assert pack([f"hf:{tmp_path / 'set'}"], tmp_path / "other").hash == usual.manifest.hash
    with pytest.raises(BadInput, match=r"cannot be read: .*--split test"):
        pack([f"hf:{tmp_path / 'set'}"], tmp_path / "third", split="test")
    with pytest.raises(BadInput, match="record 1 has no field 'body'"):
        pack([f"hf:{tmp_path / 'set'}"], tmp_path / "third", text_field="body")


@pytest.mark.full
@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:4096"])
def test_real_text(tmp_path, shared_corpora, documents, tokenizer):
    source = shared_corpora / "edu-10mb.jsonl.xz"
    manifest = pack([str(source)], tmp_path / "pack", tokenizer=tokenizer)
    corpus = open_corpus(tmp_path / "pack")
    assert manifest.train.documents + manifest.held_out.documents == 606
    assert manifest.train.bytes + manifest.held_out.bytes == 9_807_472
    with lzma.open(source, "rt", encoding="utf-8") as lines:
        expected = [json.loads(line)["text"] for line in lines]
    assert sorted(documents(corpus, "train") + documents(corpus, "held_out")) == sorted(expected)
    assert manifest.bytes_per_token == pytest.approx(1 if tokenizer == "bytes" else 3.68, abs=0.01)


@pytest.fixture
def shared_corpora(pytestconfig):
    folder = pytestconfig.rootpath.parent / "shared" / "data" / "corpora"
    if not folder.is_dir():
        pytest.skip(f"no shared text at {folder}")
    return folder
