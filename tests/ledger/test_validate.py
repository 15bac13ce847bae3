"""Every kind of bad table is refused with its row, its column, its value and what to do."""

import time

import numpy as np
import pytest

from loopworth.errors import BadInput
from loopworth.ledger import Runs, as_runs, check_runs

NEEDS = ("n_once", "n_rec", "r", "tokens", "loss")
GOOD = {
    "n_once": [10, 10, 0],
    "n_rec": [90, 0, 90],
    "r": [1, 2.5, 4],
    "tokens": [1e9, 2e9, 3e9],
    "loss": [2.9, 2.8, 2.7],
}


def refusal(columns, needs=NEEDS, optional=()):
    with pytest.raises(BadInput) as caught:
        check_runs(as_runs(columns, "runs.csv"), needs, optional)
    return str(caught.value)


def test_good_runs_pass_unchanged():
    runs = as_runs(GOOD)
    assert check_runs(runs, NEEDS, ("budget", "seed")) is runs


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("loss", None, ["loss is blank", "--where 'loss is not null'"]),
        ("loss", "diverged", ["'diverged'", "not a number"]),
        ("loss", "1,000", ["'1,000'", "not a number"]),
        ("loss", "nan", ["'nan'", "not finite"]),
        ("loss", "-inf", ["'-inf'", "not finite"]),
        ("loss", np.inf, ["inf", "not finite"]),
        ("loss", 0, [" 0 ", "not above 0"]),
        ("tokens", -5, ["-5", "not above 0"]),
        ("n", 0, ["not above 0"]),
        ("budget", 0, ["not above 0"]),
        ("position", 0, ["not above 0"]),
        ("passes", -1, ["not above 0"]),
        ("flops_per_token", 0, ["not above 0"]),
        ("n_once", -1, ["-1", "below 0"]),
        ("n_rec", -1, ["below 0"]),
        ("n_injection", -2, ["below 0"]),
        ("n_head", -2, ["below 0"]),
        ("r", 0.5, ["0.5", "below 1"]),
        ("n_rec", 0, ["n_once", "n_rec", "both 0"]),
        ("recipe", "", ["recipe is blank"]),
    ],
)
def test_a_bad_cell_is_named(name, value, words):
    start = GOOD.get(name, ["a", "b", "c"] if name == "recipe" else [1.0, 2.0, 3.0])
    message = refusal(GOOD | {name: [*start[:2], value]}, (*NEEDS, name))
    for word in ("runs.csv, row 3", name, *words):
        assert word in message
    assert "more row" not in message


def test_the_first_of_many_is_named_and_the_rest_counted():
    message = refusal({"loss": np.r_[np.ones(5), -np.ones(1001)], "seed": np.arange(1006)}, ["loss"])
    assert "row 6: loss -1" in message
    assert "(and 1,000 more rows)" in message
    assert "(and 1 more row)" in refusal({"loss": [1, 0, 0], "seed": [1, 2, 3]}, ["loss"])


def test_row_numbers_are_the_sources_after_a_selection():
    runs = as_runs({"loss": [3, 2, -1]}).select([0, 2])
    with pytest.raises(BadInput, match="row 3: loss -1"):
        check_runs(runs, ["loss"])


def test_a_missing_column_is_named_with_the_nearest_and_the_remedy():
    message = refusal({"N_once": [1], "D": [2]}, ["n_once", "tokens"])
    assert "no column n_once and no tokens" in message
    assert "It has: N_once, D." in message
    assert "--map N_once=n_once" in message
    assert "--map theirs=loss" in refusal({"zzz": [1]}, ["loss"])


@pytest.mark.parametrize("runs", [Runs({}), as_runs([]), as_runs({"loss": []})])
def test_no_rows(runs):
    with pytest.raises(BadInput, match="no rows"):
        check_runs(runs, ["loss"])


def test_an_optional_column_may_have_blanks_but_no_nonsense():
    runs = as_runs({"loss": [1, 2], "seed": [None, 3]})
    assert check_runs(runs, ["loss"], ["seed", "passes"]) is runs
    assert "seed 'x' is not a number" in refusal({"loss": [1, 2], "seed": [None, "x"]}, ["loss"], ["seed"])
    assert "passes 0 is not above 0" in refusal({"loss": [1, 2], "passes": [None, 0]}, ["loss"], ["passes"])
    assert check_runs(as_runs({"loss": [1, 2], "seed": [None, "x"]}), ["loss"])


@pytest.mark.parametrize("name", ["n_injection", "n_head", "budget", "flops_per_token"])
def test_all_or_no_cells_of_these(name):
    message = refusal({"loss": [1, 2], name: [None, 3]}, ["loss"], [name])
    assert f"row 1: {name} is blank" in message
    assert "empty the whole column" in message
    checked = check_runs(as_runs({"loss": [1, 2], name: [None, None]}), ["loss"], [name])
    assert name not in checked
    assert "loss" in checked
    assert f"{name} is blank" in refusal({"loss": [1, 2], name: [None, None]}, ["loss", name])


def test_a_repeated_row_is_refused_unless_a_seed_tells_it_apart():
    columns = {"loss": [1.0, 2.0, 1.0, 1.0], "recipe": ["a", "a", "a", "a"], "other": [0.0, 5, -0.0, 0]}
    message = refusal(columns, ["loss"])
    assert "rows 1 and 3 are the same in every column (and 1 more row)" in message
    assert "seed column" in message
    assert check_runs(as_runs(columns | {"seed": [1, 2, 3, 4]}), ["loss"])
    assert check_runs(as_runs(columns | {"recipe": ["a", "a", "b", "c"]}), ["loss"])


def test_blank_cells_are_equal_in_a_repeat():
    assert "rows 1 and 2" in refusal({"loss": [1, 1], "seed": [None, None], "group": ["", None]}, ["loss"])


def test_one_swapped_pair_of_cells_is_no_repeat():
    assert check_runs(as_runs({"loss": [1, 2], "tokens": [2, 1]}), ["loss"])


def test_a_status_points_to_the_rule_that_leaves_the_run_out():
    bad = {"loss": [2.5, None], "status": ["done", "diverged"]}
    message = refusal(bad, ["loss"])
    assert "'diverged'" in message
    assert "--where \"status = 'done'\"" in message
    assert "\"status = 'ok'\"" in refusal(bad | {"status": ["ok", "diverged"]}, ["loss"])
    assert "status" not in refusal(bad | {"status": ["done", "finished"]}, ["loss"])
    assert "status" not in refusal(bad | {"status": ["diverged", ""]}, ["loss"])


@pytest.mark.full
def test_ten_million_rows_are_checked_in_seconds():
    rng = np.random.default_rng(0)
    size = 10_000_000
    label = np.array(["plain", "linear"], object)[np.arange(size) % 2]
    runs = Runs({name: rng.uniform(1, 9, size) for name in NEEDS} | {"recipe": label})
    begin = time.perf_counter()
    check_runs(runs, NEEDS)
    assert time.perf_counter() - begin < 20
    with pytest.raises(BadInput, match="rows 5 and 10000000 "):
        check_runs(Runs({name: np.r_[values[:-1], values[4:5]] for name, values in runs.columns.items()}), NEEDS)
