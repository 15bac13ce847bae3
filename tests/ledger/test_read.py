"""Files of every kind give the same runs; every malformed one gives one message that says what to do."""

import gzip
import io
import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopworth.errors import BadInput
from loopworth.ledger import check_runs, read_runs

CSV = "r,loss,recipe\n1,2.5,plain\n2,,linear\n4,2.25,\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="runs.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(path, **options):
    with pytest.raises(BadInput) as caught:
        read_runs(path, **options)
    message = str(caught.value)
    assert len(message) < 500
    return message


def assert_is_the_table(runs):
    assert list(runs.columns) == ["r", "loss", "recipe"]
    np.testing.assert_array_equal(runs["r"], [1, 2, 4])
    np.testing.assert_array_equal(runs["loss"], [2.5, np.nan, 2.25])
    assert runs["recipe"].tolist() == ["plain", "linear", ""]
    assert runs.rows.tolist() == [1, 2, 3]
    assert runs.notes == ()


RECORDS = [
    {"r": 1, "loss": 2.5, "recipe": "plain"},
    {"r": 2, "loss": None, "recipe": "linear"},
    {"r": 4, "loss": 2.25},
]
LINES = "\n".join(map(json.dumps, RECORDS))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.csv", CSV.rstrip()),
        ("a.csv", CSV.replace("\n", "\r\n")),
        ("a.csv", CSV.replace("\n", "\r")),
        ("a.csv", b"\xef\xbb\xbf" + CSV.encode()),
        ("a.csv", CSV.replace(",", ";")),
        ("a.csv", "\n\n" + CSV + "\n\n"),
        ("a.csv", '"r", loss,recipe\n"1",  2.5 ,"plain"\n2,"", linear\n 4,2.25e0,""\n'),
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.TXT", CSV.replace(",", "|")),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("[a]*?.csv", CSV),
        ("k=3.csv", CSV),
        ("a.data", CSV),
        ("a.jsonl", LINES),
        ("a.ndjson", "\n" + LINES.replace("\n", "\r\n\r\n")),
        ("a.json", LINES),
        ("a.json", json.dumps(RECORDS)),
        ("a.json", json.dumps(RECORDS, indent=2)),
        ("a.json.gz", gzip.compress(LINES.encode(), mtime=0)),
        ("a.json", b"\xef\xbb\xbf" + LINES.encode()),
        ("a.log", LINES),
    ],
)
def test_one_table_in_many_forms(write, name, content):
    assert_is_the_table(read_runs(write(content, name)))


@pytest.mark.parametrize("name", ["a.parquet", "a.data"])
def test_parquet(tmp_path, name):
    values = "(1, 2.5, 'plain'), (2, NULL, 'linear'), (4, 2.25, NULL)"
    duckdb.execute(f"COPY (FROM (VALUES {values}) AS t(r, loss, recipe)) TO '{tmp_path / name}' (FORMAT parquet)")
    assert_is_the_table(read_runs(tmp_path / name))


def test_parquet_keeps_every_bit_and_tells_nan_from_blank(tmp_path):
    path = tmp_path / "a.parquet"
    sql = 'SELECT 0.1::DOUBLE + 0.2 AS tokens, \'nan\'::DOUBLE AS loss, true AS seen, 9007199254740991 AS "a""b"'
    duckdb.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")
    runs = read_runs(path)
    assert runs["tokens"][0] == 0.1 + 0.2
    assert runs["seen"].tolist() == ["true"]
    assert runs['a"b'][0] == 2**53 - 1
    with pytest.raises(BadInput, match="row 1: loss 'nan' is not finite"):
        check_runs(runs, ["loss"])


def test_standard_input_is_csv(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(CSV.encode())))
    runs = read_runs("-")
    assert runs.source == "standard input"
    assert_is_the_table(runs)


def test_a_ledger_folder_in_the_order_of_its_paths(tmp_path):
    for place, loss in [("b", 2.25), ("a/deep", 2.5)]:
        (tmp_path / place).mkdir(parents=True)
        record = {"shape": {"n_loop": 7, "more": {"x": 1}}, "result": {"loss": loss}, "curve": [1, 2]}
        (tmp_path / place / "record.json").write_text(json.dumps(record, indent=1))
    runs = read_runs(tmp_path, rename={"result.loss": "loss"}, where='"shape.n_loop" = 7')
    assert list(runs.columns) == ["shape.n_loop", "shape.more.x", "loss", "curve"]
    assert runs["loss"].tolist() == [2.5, 2.25]
    assert runs["curve"].tolist() == ["[1, 2]", "[1, 2]"]


def test_a_bad_record_of_a_folder_is_named_by_its_path(tmp_path):
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "record.json"
    path.write_text('{"loss": 2.5,')
    assert f"{path}, line 1: not JSON" in refusal(tmp_path)
    path.write_text("[]")
    assert f"{path} holds 0 records" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", ["is empty"]),
        ("a.csv", "\n \n", ["is empty"]),
        ("a.csv", b"\xef\xbb\xbf\n", ["is empty"]),
        ("a.csv.gz", gzip.compress(b"", mtime=0), ["is empty"]),
        ("a.csv", "1,2.5\n4,2.25\n", ["no header", "'1,2.5'"]),
        ("a.csv", "1e9,plain\n4,linear\n", ["no header"]),
        ("a.csv", ",,\n1,2,3\n", ["no header"]),
        ("a.csv", "r,loss, r\n1,2,3\n", ["header", "r more than once"]),
        ("a.csv", "r,loss\n1,2.5\n4\n", ["line 3", "1 fields where the header has 2"]),
        ("a.csv", "r,loss\n1,2.5,9\n4,2\n", ["line 2", "3 fields where the header has 2"]),
        ("a.csv", "\n\nr,loss\n1\n", ["line 4"]),
        ("a.csv", 'r,loss\n1,"2.5\n4,2\n', ["line 2", "quote"]),
        ("a.csv", '"r,loss\n' + "1,2\n" * 50_000, ["header", "quote"]),
        ("a.csv", '"r,loss\n1,2\n', ["quote"]),
        ("a.csv", '"1","2"\n', ["no header", "'1,2'"]),
        ("a.csv", b"r,loss\n1,\x00\n", ["binary"]),
        ("a.csv", "r,loss\n1,2\n".encode("utf-16"), ["UTF-16"]),
        ("a.csv", b"r,recipe\n1,caf\xe9\n", ["UTF-8"]),
        ("a.csv", b"r,recipe\n" + b"1,x\n" * 400_000 + b"1,caf\xe9\n", ["line 400002", "UTF-8"]),
        ("a.csv.gz", CSV, ["cannot be read", "whole"]),
        ("a.csv.gz", gzip.compress(CSV.encode() * 100, mtime=0)[:-12], ["cannot be read", "whole"]),
        ("a.parquet", CSV, ["cannot be read", "suffix"]),
        ("a.jsonl", '{"r": 1}\n\n{"r": 2\n', ["line 3", "not JSON"]),
        ("a.jsonl", '{"r": 1}\n7\n', ["row 2", "'7' is not a record"]),
        ("a.json", '[{"r": 1},\n{"r": }]', ["line 2", "not JSON"]),
        ("a.jsonl", b'{"r": 1}\n{"recipe": "caf\xe9"}\n', ["line 2", "UTF-8"]),
    ],
)
def test_malformed_files_are_refused(write, name, content, words):
    message = refusal(write(content, name))
    for word in (name, *words):
        assert word in message


def test_a_truncated_gzip_whose_beginning_can_be_read_is_refused(write):
    rows = "".join(f"{i},{math.sin(i) + 2}\n" for i in range(100_000))
    message = refusal(write(gzip.compress(f"r,loss\n{rows}".encode(), mtime=0)[:-50], "a.csv.gz"))
    assert "cannot be read" in message


def test_missing_files_and_folders_without_records(tmp_path):
    assert "no file or folder" in refusal(tmp_path / "none.csv")
    assert "no record.json" in refusal(tmp_path)


def test_a_folder_that_may_not_be_entered(tmp_path, monkeypatch):
    def walk(top, onerror):
        onerror(PermissionError(13, "Permission denied", str(top / "closed")))
        return []

    monkeypatch.setattr(os, "walk", walk)  # root, who may run this, may enter everywhere
    assert "closed cannot be read: Permission denied" in refusal(tmp_path)


def test_a_header_alone_has_no_rows(write):
    for content in ('"loss"', "loss\n", "\ufeff\nloss"):
        runs = read_runs(write(content))
        assert list(runs.columns) == ["loss"]
        assert len(runs) == 0


def test_a_column_without_a_name_is_left_out_aloud(write):
    runs = read_runs(write(",r,loss\n0,1,2.5\n1,1,2.5\n"))
    assert list(runs.columns) == ["r", "loss"]
    assert "1 column without a name" in runs.notes[0]
    with pytest.raises(BadInput, match="rows 1 and 2 are the same"):
        check_runs(runs, ["loss"])


def test_text_of_labels_and_other_columns_is_kept(write):
    runs = read_runs(write('architecture,id,note,size\n007,1e3,"a ""b""\nc,d",\n8,x1, é ,3\n'))
    assert runs["architecture"].tolist() == ["007", "8"]
    assert runs["id"].tolist() == ["1e3", "x1"]
    assert runs["note"].tolist() == ['a "b"\nc,d', "é"]
    np.testing.assert_array_equal(runs["size"], [np.nan, 3])


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("diverged", "row 2: loss 'diverged' is not a number"),
        ("1_000", "row 2: loss '1_000' is not a number"),
        ("NaN", "row 2: loss 'NaN' is not finite"),
        ("Infinity", "row 2: loss 'Infinity' is not finite"),
        ("", "row 2: loss is blank. Fill"),
    ],
)
def test_a_bad_cell_is_named_by_its_text(write, name, cell, said):
    if name == "a.csv":
        content = f"r,loss\n1,2.5\n2,{cell}\n"
    else:
        literal = cell if cell in ("NaN", "Infinity") else json.dumps(cell or None)
        content = f'{{"r": 1, "loss": 2.5}}\n{{"r": 2, "loss": {literal}}}\n'
    with pytest.raises(BadInput) as caught:
        check_runs(read_runs(write(content, name)), ["r", "loss"])
    assert said in str(caught.value)


def float_or_text(text):
    try:
        return float(text) if "_" not in text else text
    except ValueError:
        return text


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text("0123456789+-.eE_ xinfaINFA\xa0\t", max_size=7).filter(str.strip), min_size=1, max_size=40))
def test_a_number_is_what_float_reads(tmp_path_factory, cells):
    path = tmp_path_factory.mktemp("cells") / "a.csv"
    header = ",".join(f"c{place}" for place in range(len(cells)))
    path.write_text(f"{header}\n{','.join(cells)}\n", encoding="utf-8")
    runs = read_runs(path)
    for place, cell in enumerate(cells):
        expected = float_or_text(cell)
        found = runs[f"c{place}"][0]
        assert found == (cell.strip() if isinstance(expected, str) else expected) or math.isnan(expected)  # type: ignore[arg-type]


def test_rename_and_its_refusals(write):
    path = write("N,D,loss\n1,2,3\n")
    assert list(read_runs(path, rename={"N": "n", "D": "tokens"}).columns) == ["n", "tokens", "loss"]
    assert read_runs(path, rename={"N": "D", "D": "N"})["D"].tolist() == [1]
    assert "'M'" in refusal(path, rename={"M": "n"})
    assert "N, D, loss" in refusal(path, rename={"M": "n"})
    assert "N and D" in refusal(path, rename={"N": "n", "D": "n"})
    assert "N and loss" in refusal(path, rename={"N": "loss"})


RUNS = """architecture,r,loss,Recipe,status
plain,1,2.5,a,done
looped,2,,b,diverged
looped,4,2.25,,done
looped,8,x,b,done
"""


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("r != 2", [1, 3, 4]),
        ("r >= 2 and status = 'done'", [3, 4]),
        ("loss is not null", [1, 3]),
        ("loss is not null and loss < 2.4 -- a comment", [3]),
        ("kind = 'b'", [2, 4]),
        ("kind is null or r = 1", [1, 3]),
        ("\"architecture\" in ('plain')", [1]),
        ("true", [1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_where_keeps_exactly_the_rows_where_it_is_true(write, where, rows, form):
    content = RUNS
    if form == "jsonl":
        header, *lines = [line.split(",") for line in RUNS.splitlines()]
        content = "\n".join(json.dumps(dict(zip(header, line, strict=True))) for line in lines)
    runs = read_runs(write(content, f"a.{form}"), rename={"Recipe": "kind"}, where=where)
    assert runs.rows.tolist() == rows
    assert runs.notes == (f"--where {where!r} left out {4 - len(rows)} of 4 rows",)


def test_where_comes_before_the_check(write):
    runs = check_runs(read_runs(write(RUNS), where="status = 'done' and r < 8"), ["loss"])
    assert runs["loss"].tolist() == [2.5, 2.25]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("lss < 2", ["lss", "loss, Recipe"]),
        ("r = ", ["syntax"]),
        ("max(loss) > 2", ["aggregates"]),
        ("status = 2", ["'done'", "convert"]),
        ("r = 1); SELECT (1", ["one expression"]),
        ("r in (select 1 from read_csv('{path}'))", ["Cannot access"]),
        ("r in (select 1 from '{path}')", ["{path}"]),
        ("r in (select 1 from np)", ["np"]),
        ("r > 99", ["left out all 4 rows"]),
    ],
)
def test_where_that_cannot_be_used_is_refused(write, where, words):
    path = str(write(RUNS.replace("2,,b", "2,2,b")))
    message = refusal(path, where=where.format(path=path))
    assert "--where" in message
    for word in words:
        assert word.format(path=path) in message


def test_where_with_columns_that_differ_by_case_only(write):
    path = write("N,n\n1,2\n3,4\n")
    assert "cannot tell N from n" in refusal(path, where="n = 2")
    assert len(read_runs(path, where="n = 2", rename={"N": "size"})) == 1


def test_units(write):
    path = write("loss,tokens\n2,3\n,\n")
    runs = read_runs(path, loss_unit="bits", token_unit="M", where="tokens = 3 or loss is null")
    np.testing.assert_array_equal(runs["loss"], [2 * math.log(2), np.nan])
    np.testing.assert_array_equal(runs["tokens"], [3e6, np.nan])
    assert runs.notes[1:] == ("loss converted from bits to nats", "tokens multiplied by 1e+06")
    assert read_runs(path, token_unit=10)["tokens"][0] == read_runs(path, token_unit="1e1")["tokens"][0] == 30
    assert read_runs(path, where=" ").notes == ()
    assert "nats or bits" in refusal(path, loss_unit="bans")
    for unit in ("Q", 0, -1, "nan", "inf"):
        assert "K, M, B, T" in refusal(path, token_unit=unit)


def test_many_rows_keep_their_order(tmp_path):
    path = tmp_path / "a.csv"
    rows = "SELECT i AS seed, 'g' || i % 3 AS \"group\" FROM range(300000) t(i)"
    duckdb.execute(f"COPY ({rows}) TO '{path}' (HEADER)")
    runs = read_runs(path, where="\"group\" <> 'g1'")
    expected = np.arange(300_000)[np.arange(300_000) % 3 != 1]
    np.testing.assert_array_equal(runs["seed"], expected)
    np.testing.assert_array_equal(runs.rows, expected + 1)
    assert runs["group"][:3].tolist() == ["g0", "g2", "g0"]


def test_importing_loopworth_does_not_import_duckdb():
    code = "import sys, loopworth.ledger; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.full
def test_ten_million_rows_are_read_in_a_minute_and_8_gb(tmp_path):
    path = tmp_path / "big.csv"
    rows = (
        "SELECT i + 1e6 AS n_once, i + 2e6 AS n_rec, [1, 2, 4, 8][1 + i % 4] AS r, 1e9 + i * 1e3 AS tokens, "
        "2 + random() AS loss, ['plain', 'linear'][1 + i % 2] AS architecture FROM range(10000000) t(i)"
    )
    duckdb.execute(f"COPY ({rows}) TO '{path}' (HEADER)")
    begin = time.perf_counter()
    runs = check_runs(read_runs(path, where="r <> 2"), ["n_once", "n_rec", "r", "tokens", "loss"])
    assert time.perf_counter() - begin < 60
    assert len(runs) == 7_500_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8e6  # kB


def test_a_line_added_by_hand_to_a_file_from_windows_is_read(write):
    runs = read_runs(write('r,loss\r\n1,2.5\n4,"2"\r\n'))
    assert runs["loss"].tolist() == [2.5, 2.0]


def test_what_is_wrong_in_a_file_of_mixed_line_ends_is_still_named(write):
    assert "line 3" in refusal(write("r,loss\r\n1,2.5\n4\r\n"))


def test_a_condition_on_a_cell_that_is_no_number_is_refused(write):
    """Its row would be left out in silence."""
    message = refusal(write(RUNS, "a.csv"), where="loss < 2.4")
    assert "row 4" in message
    assert "'x'" in message


def test_runs_from_a_pipe_and_from_no_path_at_all(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(CSV,))
    writer.start()
    assert len(read_runs(pipe)) == len(CSV.splitlines()) - 1
    writer.join()
    assert "empty" in refusal("  ")
