"""Budgets, cells and counting conventions are read off a table as a person would."""

import numpy as np
import pytest

import loopworth as lw
from loopworth.laws import published
from loopworth.laws.design import CONVENTIONS, architectures, budgets, cells, convention_problem, law_columns
from loopworth.ledger import as_runs

JOINT = lw.LAWS["joint"]
ROW = {
    "n_once": [100.0], "n_rec": [200.0], "n_injection": [10.0], "n_head": [1000.0], "r": [4.0], "tokens": [1e9],
    "loss": [2.5],
}  # fmt: skip


@pytest.mark.parametrize(
    ("convention", "once", "rec"),
    [("once", 110, 200), ("loop", 100, 210), ("dropped", 100, 200), ("once+head", 1110, 200)],
)
def test_the_injection_is_counted_where_the_convention_says(convention, once, rec):
    counted = law_columns(JOINT, as_runs(ROW), convention)
    assert counted["n_once"].tolist() == [once]
    assert counted["n_rec"].tolist() == [rec]
    unique = law_columns(lw.LAWS["chinchilla"], as_runs(ROW), convention)
    assert unique["n"].tolist() == [once + rec]


def test_an_n_of_its_own_goes_before_one_from_parts():
    assert law_columns(lw.LAWS["chinchilla"], as_runs({**ROW, "n": [7.0]}))["n"].tolist() == [7.0]


@pytest.mark.parametrize(
    ("convention", "absent", "words"),
    [
        ("loop", ["n_injection"], "no n_injection"),
        ("dropped", ["n_injection"], "no n_injection"),
        ("once+head", ["n_head"], "no n_head"),
        ("once+head", ["n_injection", "n_head"], "no n_injection, no n_head"),
    ],
)
def test_a_convention_whose_columns_are_absent_is_not_computable(convention, absent, words):
    runs = as_runs({name: values for name, values in ROW.items() if name not in absent})
    problem = convention_problem(JOINT, runs, convention)
    assert "not computable from these columns" in problem
    assert words in problem
    with pytest.raises(lw.BadInput, match="not computable from these columns"):
        lw.fit(runs, convention=convention)


def test_without_injection_the_default_convention_is_still_computable():
    runs = as_runs({name: values for name, values in ROW.items() if name not in ("n_injection", "n_head")})
    assert convention_problem(JOINT, runs, "once") is None
    assert law_columns(JOINT, runs)["n_once"].tolist() == [100]


def test_an_unknown_convention_is_refused_with_the_known_ones():
    with pytest.raises(lw.BadInput, match="once, loop, dropped"):
        lw.fit(as_runs(ROW), convention="twice")


def test_the_convention_moves_phi_and_is_recorded(draw, quick):
    runs = draw(0.0)
    found = {c: quick(runs, convention=c) for c in CONVENTIONS}
    assert {c: f.convention for c, f in found.items()} == {c: c for c in CONVENTIONS}
    assert found["loop"].phi < found["once"].phi < found["dropped"].phi
    assert found["once+head"].phi < found["loop"].phi


def test_budgets_come_from_their_column_and_near_equal_ones_are_one():
    runs = as_runs({**_rows(6), "budget": [1e18, 1.01e18, 0.995e18, 2.15e18, 2.16e18, 2.15e18]})
    found = budgets(runs)
    assert len(np.unique(found)) == 2
    np.testing.assert_allclose(found, [1e18] * 3 + [2.15e18] * 3, rtol=0.01)


def test_budgets_come_from_flops_per_token_where_there_is_no_column(grid):
    derived = budgets(as_runs({n: c for n, c in grid.columns.items() if n != "budget"}))
    np.testing.assert_allclose(derived, grid["budget"], rtol=1e-9)


def test_budgets_come_from_six_n_d_where_there_is_nothing_else():
    size = np.array([1e7, 2e7, 4e7, 1e7, 2e7, 4e7])
    compute = np.array([1e17] * 3 + [4e17] * 3)
    found = budgets(as_runs({"n": size, "tokens": compute / (6 * size), "loss": np.ones(6)}))
    np.testing.assert_allclose(found, compute, rtol=1e-9)


def test_a_grid_of_sizes_and_tokens_has_no_budgets():
    rng = np.random.default_rng(0)
    runs = as_runs({"n": 10 ** rng.uniform(7, 9, 40), "tokens": 10 ** rng.uniform(9, 11, 40), "loss": np.ones(40)})
    assert budgets(runs) is None


def _rows(count):
    return {
        "n_once": np.full(count, 100.0), "n_rec": np.arange(1.0, count + 1), "r": np.ones(count),
        "tokens": np.arange(1.0, count + 1) * 1e9, "loss": np.full(count, 2.0),
    }  # fmt: skip


def test_a_cell_is_a_budget_and_an_architecture(grid):
    member, words = cells(grid)
    assert words == "(budget, architecture) cells"
    pairs = {
        (c, r): set(member[(grid["budget"] == c) & (grid["r"] == r)])
        for c, r in zip(grid["budget"], grid["r"], strict=True)
    }
    assert all(len(found) == 1 for found in pairs.values())
    assert len(set.union(*pairs.values())) == 24


def test_recipes_of_a_budget_are_cells_of_their_own(grid):
    recipe = np.where(np.arange(116) % 2, "plain", "linear")
    assert cells(grid.with_columns(recipe=recipe))[0].max() + 1 == 48


def test_an_architecture_column_goes_before_r(grid):
    kind = np.where(grid["r"] > 1, "looped", "plain")
    runs = grid.with_columns(architecture=kind)
    assert set(architectures(runs)) == {"looped", "plain"}
    assert cells(runs)[0].max() + 1 == 12


def test_runs_of_a_trunk_stay_together(draw):
    runs = draw(0.003)
    trunk = np.array([f"trunk {k // 4}" for k in range(116)])
    grouped = runs.with_columns(group=trunk)
    member, words = cells(grouped)
    assert words == "groups"
    assert all(len(set(member[trunk == t])) == 1 for t in set(trunk))
    assert lw.fit(grouped, diagnostics=False).n_cells == 29


def test_without_budgets_repeats_of_a_design_stay_together():
    rng = np.random.default_rng(0)
    size, tokens = np.repeat(10 ** rng.uniform(7, 9, 20), 3), np.repeat(10 ** rng.uniform(9, 11, 20), 3)
    runs = as_runs({"n": size, "tokens": tokens, "seed": np.tile(np.arange(3.0), 20), "loss": np.ones(60)})
    member, words = cells(runs)
    assert member.max() + 1 == 20
    assert (member.reshape(20, 3) == member.reshape(20, 3)[:, :1]).all()
    assert "no budgets to group them by" in words


def test_an_interval_without_budgets_says_what_it_does_not_see():
    rng = np.random.default_rng(3)
    size, tokens = 10 ** rng.uniform(7, 9, 40), 10 ** rng.uniform(9, 11, 40)
    loss = (1.7 + 60 * size**-0.25 + 400 * tokens**-0.3) * np.exp(0.002 * rng.standard_normal(40))
    found = lw.fit({"n": size, "tokens": tokens, "loss": loss}, "chinchilla", diagnostics=False)
    assert any("noise that runs of a budget share is not seen" in w for w in found.warnings)


def test_many_cells_are_left_out_by_random_groups_with_as_wide_an_interval():
    rng = np.random.default_rng(1)
    size, tokens = 10 ** rng.uniform(7, 9, 1500), 10 ** rng.uniform(9, 11, 1500)
    loss = (1.7 + 60 * size**-0.25 + 400 * tokens**-0.3) * np.exp(0.002 * rng.standard_normal(1500))
    runs = {"n": size, "tokens": tokens, "loss": loss}
    many = lw.fit(runs, "chinchilla")
    assert many.n_cells == 1500
    assert many.diagnostics.left_out[0].count == 500
    assert many.diagnostics.left_out[0].farthest["alpha"].startswith("group ")
    assert any("500 random groups of designs" in w for w in many.warnings)
    independent = lw.fit(runs, "chinchilla", interval="delta", diagnostics=False)
    ratio = np.ptp(many.interval["alpha"]) / np.ptp(independent.interval["alpha"])
    assert 0.85 < ratio < 1.25


def test_every_run_with_an_r_of_its_own_is_fitted_without_a_law_for_each(grid):
    rng = np.random.default_rng(2)
    sampled = grid.with_columns(r=1 + 7 * rng.random(116))
    found = lw.fit(lw.simulate(sampled, JOINT, published.JOINT, 0.001))
    assert found.status == "ok"
    assert found.diagnostics.architectures == ()
    assert any("116 architectures: none is fitted or judged alone" in w for w in found.warnings)
