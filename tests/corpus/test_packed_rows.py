"""Rows of a run: none twice, the same after resuming, on any number of ranks, and for every architecture."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopworth.corpus import open_corpus
from loopworth.corpus.rows import PackedRows
from loopworth.errors import BadInput

GOLDEN = [36, 20, 32, 4, 12, 0, 28, 8, 24, 16]


@given(rows=st.integers(1, 300), context=st.integers(1, 40), left_over=st.integers(0, 40), seed=st.integers(0, 2**40))
def test_a_run_over_all_rows_reads_every_token_once(rows, context, left_over, seed):
    stream = np.arange(rows * (context + 1) + min(left_over, context), dtype=np.uint32)
    found = PackedRows(stream, stream, context, 0)
    assert found.count == rows
    taken = found.take(np.arange(rows), seed)
    assert taken.shape == (rows, context + 1)
    assert np.array_equal(np.sort(taken.reshape(-1)), np.arange(rows * (context + 1)))
    assert (np.diff(taken.astype(int)) == 1).all()


@pytest.mark.parametrize("name", ["pack", "words"])
def test_the_stream_is_the_same_after_resuming_and_on_any_number_of_ranks(packed, name):
    corpus = packed() if name == "pack" else open_corpus("words")
    steps, per_step = 5, 12
    whole = corpus.rows(31).take(np.arange(steps * per_step), 3)
    rows = corpus.rows(31)
    for ranks in (1, 2, 4):
        share = per_step // ranks
        parts = [
            rows.take(np.arange(share) + step * per_step + rank * share, 3)
            for step in range(steps)
            for rank in range(ranks)
        ]
        assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(rows.take([59, 2, 2], 3), whole[[59, 2, 2]])
    assert not np.array_equal(rows.take(np.arange(60), 4), whole)


@pytest.mark.parametrize("name", ["pack", "words"])
def test_held_out_rows_are_the_same_for_every_run(packed, name):
    rows = (packed() if name == "pack" else open_corpus("words")).rows(31)
    assert np.array_equal(rows.held_out(9)[:4], rows.held_out(4))
    seen = {row.tobytes() for row in rows.take(np.arange(300), 0)}
    assert not seen & {row.tobytes() for row in rows.held_out(9)}


def test_fewer_held_out_rows_than_asked_for_are_all_of_them(packed):
    corpus = packed()
    assert len(corpus.rows(31).held_out(10**6)) == corpus.manifest.held_out.tokens // 32


def test_a_run_longer_than_the_text_is_refused(packed):
    corpus = packed()
    rows = corpus.rows(31)
    assert rows.count == corpus.manifest.train.tokens // 32
    rows.need(rows.count * 31)
    with pytest.raises(BadInput, match=f"{rows.count * 31 + 1:,} training tokens are needed, the corpus has"):
        rows.need(rows.count * 31 + 1)
    with pytest.raises(BadInput, match="no row is used twice"):
        rows.take([0, rows.count], 0)
    with pytest.raises(BadInput, match="from 0"):
        rows.take([-1], 0)
    with pytest.raises(BadInput, match="makes no row of 100001"):
        corpus.rows(100_000)


def test_a_generated_world_has_no_end():
    rows = open_corpus("words").rows(31)
    assert rows.count == math.inf
    rows.need(1e30)
    assert rows.take([10**15], 0).shape == (1, 32)


def test_documents_begin_where_the_start_token_is(packed):
    corpus = packed()
    rows = corpus.rows(63)
    everything = rows.take(np.arange(int(rows.count)), 1)
    starts = rows.document_starts(everything)
    whole = corpus.manifest.train.tokens // 64 * 64
    assert starts.sum() == (corpus.documents("train") < whole).sum()
    assert rows.document_starts(open_corpus("words").rows(5).take([0, 1], 0)).sum() == 2


def test_rows_of_a_pack_are_the_same_for_ever():
    stream = np.arange(40, dtype=np.uint8)
    rows = PackedRows(stream, stream, 3, 255)
    assert rows.take(np.arange(10), 11)[:, 0].tolist() == GOLDEN
