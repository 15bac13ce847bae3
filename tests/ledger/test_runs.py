"""Runs are frozen, remember their row numbers, and come from whatever holds columns."""

import math

import numpy as np
import pytest

from loopworth.errors import BadInput
from loopworth.ledger import Runs, as_runs, check_runs

TWO = {"r": [1, 4], "loss": [2.5, 2.25], "recipe": ["plain", "linear"]}


class Frame:
    """What pandas and polars have in common: .columns are names, [name] is something numpy can read."""

    columns = tuple(TWO)

    def __getitem__(self, name):
        return np.array(TWO[name])


@pytest.mark.parametrize(
    "data",
    [TWO, [dict(zip(TWO, row, strict=True)) for row in zip(*TWO.values(), strict=True)], Frame()],
    ids=["mapping", "records", "frame"],
)
def test_every_kind_of_data_gives_the_same_runs(data):
    runs = as_runs(data)
    assert list(runs.columns) == list(TWO)
    assert runs["r"].dtype == runs["loss"].dtype == np.float64
    assert runs["loss"].tolist() == TWO["loss"]
    assert runs["recipe"].tolist() == TWO["recipe"]
    assert len(runs) == 2
    assert runs.rows.tolist() == [1, 2]
    assert as_runs(runs) is runs


@pytest.mark.full
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_real_data_frames_give_the_same_runs(library):
    module = pytest.importorskip(library)
    rows = {**TWO, "seed": [None, 3]}
    frame = module.table(rows) if library == "pyarrow" else module.DataFrame(rows)
    runs = as_runs(frame)
    assert runs["loss"].tolist() == TWO["loss"]
    assert runs["recipe"].tolist() == TWO["recipe"]
    assert math.isnan(runs["seed"][0])
    assert runs["seed"][1] == 3


def test_a_path_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("r,loss\n1,2.5\n")
    assert as_runs(tmp_path / "a.csv")["loss"].tolist() == as_runs(str(tmp_path / "a.csv"))["loss"].tolist() == [2.5]


def test_nothing_can_be_changed_and_the_callers_array_stays_his():
    mine = np.array([1.0, 2.0])
    runs = as_runs({"loss": mine})
    with pytest.raises(ValueError, match="read-only"):
        runs["loss"][0] = 9
    with pytest.raises(TypeError):
        runs.columns["loss"] = mine  # type: ignore[index]
    mine[0] = 9
    assert runs["loss"][0] == 1


@pytest.mark.parametrize("chosen", [[False, True, True], [1, 2], np.array([1, 2])])
def test_select_keeps_the_row_numbers_of_the_source(chosen):
    runs = as_runs({"r": [1, 2, 4], "recipe": ["a", "b", "c"]}).select(chosen, "said aloud").select([1])
    assert runs["r"].tolist() == [4]
    assert runs["recipe"].tolist() == ["c"]
    assert runs.rows.tolist() == [3]
    assert runs.notes == ("said aloud",)


def test_select_nothing():
    assert len(as_runs(TWO).select([])) == 0


def test_a_column_is_numbers_again_once_its_text_is_left_out():
    runs = as_runs({"loss": ["2.5", "diverged", 2], "id": ["7", "x", "8"]})
    assert runs["loss"].tolist() == ["2.5", "diverged", "2"]
    kept = runs.select([0, 2])
    assert kept["loss"].tolist() == [2.5, 2.0]
    assert kept["id"].tolist() == ["7", "8"]


def test_with_columns_adds_and_replaces():
    runs = as_runs(TWO).select([1]).with_columns(budget=[1e18], recipe=["other"])
    assert runs["budget"].tolist() == [1e18]
    assert runs["recipe"].tolist() == ["other"]
    assert runs.rows.tolist() == [2]
    assert "budget" in runs
    assert "budget" not in as_runs(TWO)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("size", [4.0, 2.5, math.nan, 1e18], ["4", "2.5", "", "1e+18"]),
        ("architecture", [4.0, 8.0], ["4", "8"]),
        ("architecture", ["007", None], ["007", ""]),
        ("seen", [True, False], ["true", "false"]),
        ("note", [" x ", None], ["x", ""]),
    ],
)
def test_labels(name, values, expected):
    assert as_runs({name: values}).label(name).tolist() == expected


@pytest.mark.parametrize("values", [[1, None, "3"], [" 1", "", "3e0 "], np.array([1, np.nan, 3], np.float32)])
def test_numbers_with_blanks(values):
    np.testing.assert_array_equal(as_runs({"seed": values, "other": values})["other"], [1, np.nan, 3])
    np.testing.assert_array_equal(as_runs({"seed": values, "other": values})["seed"], [1, np.nan, 3])


@pytest.mark.parametrize("cell", ["1_000", "1,000", "true", True, "x", 10**400])
def test_what_float_would_stretch_to_is_text(cell):
    assert as_runs({"tokens": [1, cell]})["tokens"].dtype == object


def test_records_that_lack_a_key_have_a_blank_there():
    runs = as_runs([{"a": 1}, {"b": "x"}, {"a": 3, "b": "y"}])
    np.testing.assert_array_equal(runs["a"], [1, np.nan, 3])
    assert runs["b"].tolist() == ["", "x", "y"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"a": [1, 2], "b": [1]}, ["a 2", "b 1"]),
        ({"a": "text"}, ["column a", "str"]),
        ({"a": 2.5}, ["column a", "float"]),
        ({"a": np.ones((2, 2))}, ["column a", "2 dimensions"]),
        ([{"a": 1}, 7], ["row 2", "7"]),
        (7, ["int", "mapping"]),
    ],
)
def test_what_is_no_table_is_refused(data, words):
    with pytest.raises(BadInput) as caught:
        as_runs(data, "mine")
    assert all(word in str(caught.value) for word in words)


def test_repeated_dataframe_columns_are_refused():
    class Twice(Frame):
        columns = ("r", "r")

    with pytest.raises(BadInput, match="repeated"):
        as_runs(Twice())


def test_pandas_missing_values_are_blank():
    class NAType:
        def __repr__(self):
            return "<NA>"

        def __bool__(self):
            raise TypeError("boolean value of NA is ambiguous")

    runs = as_runs({"seed": np.array([1, NAType()], object), "recipe": np.array(["a", NAType()], object)})
    np.testing.assert_array_equal(runs["seed"], [1, np.nan])
    assert runs["recipe"].tolist() == ["a", ""]


def test_in_memory_a_nan_is_called_blank_or_nan():
    with pytest.raises(BadInput, match="loss is blank or nan"):
        check_runs(as_runs({"loss": np.array([2.5, np.nan])}), ["loss"])


def test_repr_is_one_line():
    assert repr(as_runs(TWO, "mine")) == "<Runs mine: 2 rows of r, loss, recipe>"
    assert len(Runs({})) == 0
