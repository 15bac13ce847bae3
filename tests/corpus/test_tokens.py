"""Tokenizers: bytes need nothing, a trained one is the same every time, text cannot fake a start token."""

import json

import numpy as np
import pytest

from loopworth.corpus.tokens import START_NAMES, Tokenizer, parse_tokenizer, train_bpe
from loopworth.errors import BadInput

TEXT = [b"the cat sat on the mat", "le café est là 🌍".encode(), b"whatever the weather, the end of the cat"] * 5


@pytest.fixture(scope="module")
def trained():
    return train_bpe(TEXT, 280)


def test_bytes_are_bytes():
    tokenizer = Tokenizer()
    assert tokenizer.encode([b"ab", "é".encode()])[1].tolist() == [0xC3, 0xA9]
    assert (tokenizer.start_token, tokenizer.true_vocabulary, tokenizer.dtype) == (255, 256, "uint8")
    assert tokenizer.decode([255, 0x61, 0xC3, 0xA9, 0xC3]) == "aé\N{REPLACEMENT CHARACTER}"
    assert tokenizer.sha256 is None


def test_a_trained_tokenizer_has_the_size_asked_for_and_loses_nothing(trained):
    assert trained.true_vocabulary == 280
    assert trained.dtype == "uint16"
    encoded = trained.encode(TEXT)
    assert [trained.decode(tokens) for tokens in encoded] == [text.decode() for text in TEXT]
    assert max(tokens.max() for tokens in encoded) < 280
    assert len(encoded[0]) < len(TEXT[0]) / 2
    unseen = "ЖЩ 数学 \x00\t"
    assert trained.decode(trained.encode([unseen.encode()])[0]) == unseen


def test_training_twice_gives_the_same_tokenizer(trained):
    assert train_bpe(TEXT, 280).sha256 == trained.sha256


def test_text_cannot_fake_a_start_token(trained):
    text = f"a {START_NAMES[0]} b"
    (tokens,) = trained.encode([text.encode()])
    assert trained.start_token not in tokens
    assert trained.decode(tokens) == text


@pytest.mark.parametrize("name", [*START_NAMES, "<pad>"])
def test_the_start_token_of_a_file_is_found_or_added(tmp_path, trained, name):
    plain = json.loads(trained.definition)
    plain["added_tokens"][0]["content"] = name
    plain["model"]["vocab"][name] = plain["model"]["vocab"].pop(START_NAMES[0])
    plain["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain))
    found = parse_tokenizer(str(tmp_path / "tokenizer.json"))
    assert isinstance(found, Tokenizer)
    assert found.name == "tokenizer.json"
    added = name not in START_NAMES
    assert found.start_token == (280 if added else trained.start_token)
    assert found.true_vocabulary == 280 + added
    expected = trained.encode(TEXT[:2])
    assert all(np.array_equal(a, b) for a, b in zip(found.encode(TEXT[:2]), expected, strict=True))


@pytest.mark.parametrize("name", ["bpe:", "bpe:x", "bpe:-5", "bpe:256", "bpe:9999999", "", "no/such.json"])
def test_an_unknown_tokenizer_names_what_is_allowed(name):
    with pytest.raises(BadInput, match="bpe:4096"):
        parse_tokenizer(name)
