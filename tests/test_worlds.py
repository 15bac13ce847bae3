"""The generated language: the same on every machine, spelt in one way, and exactly as hard as it says."""

import hashlib
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopworth.worlds import START, TOPICS, WORDS, Words, _tables, mix, permuted

GOLDEN_PERMUTATION = [344, 828, 702, 971, 395, 116, 64, 409]
GOLDEN_TEXT = b"joka wu sine hosa neda wuzulu li su miq"
GOLDEN_HASH = "ba1c57aad250d730e7785dbbb7ec307c5153269b3220539f149779ef74b747b9"
GOLDEN_RATE = 1.25458377392


@pytest.fixture(scope="module")
def words():
    return Words()


@pytest.fixture(scope="module")
def tables():
    return _tables(0)


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**64))
def test_a_permutation_hits_everything_once(size, seed):
    assert np.array_equal(np.sort(permuted(np.arange(size), size, seed)), np.arange(size))


@given(size=st.integers(2**33, 2**62), seed=st.integers(0, 9))
def test_a_permutation_of_any_size_needs_no_memory(size, seed):
    index = np.array([0, 1, size // 2, size - 1])
    found = permuted(index, size, seed)
    assert len(set(found.tolist())) == 4
    assert found.min() >= 0
    assert found.max() < size


def test_a_permutation_mixes():
    found = permuted(np.arange(10_000), 10_000, 3)
    assert abs(np.corrcoef(np.arange(10_000), found)[0, 1]) < 0.05
    assert np.mean(found == permuted(np.arange(10_000), 10_000, 4)) < 0.002
    # Neighbours of one run are not neighbours in the text.
    assert np.mean(np.abs(np.diff(found)) < 100) < 0.03


def test_hashes_and_permutations_are_the_same_for_ever():
    assert mix([0, 1]).tolist() == [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1]  # SplitMix64's published first output
    assert permuted(np.arange(8), 1000, 7).tolist() == GOLDEN_PERMUTATION


def test_the_language_is_the_same_for_ever(words):
    rows = words.rows([0, 1, 10**12], 300, 5)
    assert rows[0, 1:40].tobytes() == GOLDEN_TEXT
    assert hashlib.sha256(rows.tobytes()).hexdigest() == GOLDEN_HASH
    assert Words(1).rows([0], 40).tobytes() != Words(2).rows([0], 40).tobytes()


def test_a_row_depends_on_its_index_and_stream_alone(words):
    index = np.arange(3000)
    rows = words.rows(index, 200, 1)
    assert rows.shape == (3000, 201)
    assert (rows[:, 0] == START).all()
    assert np.array_equal(rows[[7, 2999]], words.rows([7, 2999], 200, 1))
    assert np.array_equal(rows[7], words.rows([7], 4096, 1)[0, :201])
    assert len(np.unique(rows, axis=0)) == 3000
    assert not (words.rows(index, 200, 2) == rows).all(1).any()
    assert words.rows([], 9).shape == (0, 10)


def test_no_word_is_spelt_like_another_and_none_has_a_space_inside(tables):
    spelt = {tables.letters[k, : tables.length[k]].tobytes() for k in range(WORDS)}
    assert len(spelt) == WORDS
    assert all(word.index(b" ") == len(word) - 1 for word in spelt)


@pytest.mark.parametrize("topic", [0, TOPICS - 1])
def test_what_is_drawn_is_what_the_formula_says(tables, topic):
    """How often each word comes, given the words before; and what comes after the most frequent word."""
    drawn = tables.draw(mix(np.arange(4000, dtype=np.uint64)), 0, 120, None)
    drawn = drawn[:, tables.topic_of(drawn[0]) == topic]
    before, after = drawn[:-1].reshape(-1), drawn[1:].reshape(-1)
    for which in (before >= 0, before == 0):
        given = np.bincount(before[which], minlength=WORDS).astype(float)
        expected = tables.step(given, tables.fresh(topic))
        assert expected.sum() == pytest.approx(which.sum())
        counts = np.bincount(after[which], minlength=WORDS)
        common = expected > 20
        z2 = (counts - expected)[common] ** 2 / expected[common]
        assert common.sum() >= 4
        assert z2.mean() < 1 + 5 * math.sqrt(2 / common.sum())


def test_probabilities_of_the_next_byte_add_up_to_one(words):
    text = words.rows([3], 60)[0, 1:].tobytes()
    for cut in (0, 1, 4, 5, 6, 23, 24, 25, 60):
        rows = np.full((256, cut + 2), START, np.uint8)
        rows[:, 1 : cut + 1] = np.frombuffer(text[:cut], np.uint8)
        rows[:, -1] = np.arange(256)
        assert np.exp(-words.nats(rows)[:, -1]).sum() == pytest.approx(1, abs=1e-9)


def test_log_probability_is_the_sum_over_words(words, tables):
    """By the definition, word by word, in numbers that the byte-wise computation never forms."""
    ranks = tables.draw(mix([99]), 0, 30, None)[:, 0]
    expected = -math.log(TOPICS)
    for before, after in pairwise(ranks):
        follow = sum(
            share for word, share in zip(tables.followers[:, before], (4, 2, 1, 1), strict=True) if word == after
        )
        expected += math.log(tables.fresh(int(tables.topic_of(ranks[:1])[0]))[after] + 3 / 8 * follow / 8)
    text = b"".join(tables.letters[k, : tables.length[k]].tobytes() for k in ranks)
    assert words.log_probability(text) == pytest.approx(expected, abs=1e-6)
    assert words.log_probability(text.decode()) == words.log_probability(text)


@pytest.mark.parametrize("text", ["the ", "ba", " ", "Fezo ", "zzzzzzzzzzzz", "fezo  fezo", "\xe9", "fezo fezofezo "])
def test_text_of_another_language_is_impossible(words, text):
    assert words.log_probability(text) == -math.inf
    assert words.log_probability("") == 0


def test_entropy_is_what_generated_text_costs(words):
    """Monte Carlo against the exact numbers: the mean, and each byte of a row."""
    context = 48
    exact = words.entropy(context)
    nats = words.nats(words.rows(np.arange(20_000), context, 9))
    error = nats.mean(1).std() / math.sqrt(len(nats))
    assert error < 0.003
    assert abs(nats.mean() - exact.mean()) < 4 * error
    error_by_byte = np.maximum(nats.std(0) / math.sqrt(len(nats)), 1e-9)
    assert (np.abs(nats.mean(0) - exact) < 4.5 * error_by_byte).all()


def test_the_entropy_rate_is_what_long_documents_cost(words):
    assert words.entropy_rate == pytest.approx(GOLDEN_RATE, abs=1e-9)
    per_row = words.nats(words.rows(np.arange(60), 4096, 9))[:, 200:].mean(1)
    assert abs(per_row.mean() - words.entropy_rate) < 4 * per_row.std() / math.sqrt(len(per_row))


@pytest.mark.full
def test_the_entropy_by_byte_ends_at_the_rate(words):
    exact = words.entropy(400)
    assert np.abs(exact[300:] - words.entropy_rate).max() < 1e-7
    assert exact.mean() < words.entropy_rate + 0.01
    assert np.array_equal(exact[:150], words.entropy(150))


def byte_keys(rows, order):
    found = np.zeros((len(rows), rows.shape[1] - order), np.uint64)
    for place in range(order):
        found = mix(found + rows[:, place : rows.shape[1] - order + place].astype(np.uint64))
    return found


def ngram_loss(train, test, orders=(0, 1, 2, 3, 4, 6, 8, 11), strength=2.0):
    """Nats per byte of byte n-grams, each order falling back on the one before."""
    longest = max(orders)
    train, test = (np.pad(rows, ((0, 0), (longest - 1, 0)), constant_values=START) for rows in (train, test))
    p = np.full(test[:, longest:].shape, 1 / 256)
    for order in orders:
        seen = []
        for rows in (train, test):
            now = rows[:, longest:].astype(np.uint64)
            before = byte_keys(rows[:, longest - order :], order)[:, : now.shape[1]]
            seen.append((before, mix(before + now * np.uint64(2**40 + 1))))
        both, alone = (count(*(side[k] for side in seen)) for k in (1, 0))
        p = (both + strength * p) / (alone + strength)
    return -np.log(p).mean()


def count(train, test):
    values, counts = np.unique(train, return_counts=True)
    place = np.minimum(np.searchsorted(values, test), len(values) - 1)
    return np.where(values[place] == test, counts[place], 0)


def test_more_data_keeps_helping_and_nothing_beats_the_language(words):
    test = words.rows(np.arange(200), 128, 0)
    floor = words.nats(test).mean()
    losses = [ngram_loss(words.rows(np.arange(n), 128, 1), test) for n in (80, 800, 8000)]
    excess = np.array(losses) - floor
    assert excess[-1] > 0.5
    # Each tenfold takes off about a quarter of what can be learnt: a power law, not an end.
    assert (excess[1:] / excess[:-1] < 0.9).all()
    assert (excess[1:] / excess[:-1] > 0.6).all()
