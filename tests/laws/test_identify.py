"""What runs cannot determine gets no number, a reason instead, and never an exception."""

import numpy as np
import pytest

import loopworth as lw
from loopworth.laws.published import JOINT

TERMS = ("A", "alpha", "B", "beta", "E")


def _no_number(found, *names):
    for name in names:
        assert found.params[name] is None
        assert found.interval[name] is None


@pytest.mark.parametrize("r", [1, 4])
def test_one_r_leaves_phi_open_and_fits_the_rest(draw, r):
    runs = draw(0.001, seed=1)
    found = lw.fit(runs.select(runs["r"] == r))
    assert f"one r: every run has r = {r}" in found.status
    _no_number(found, "phi")
    assert found.phi is None
    for name in TERMS:
        assert found.params[name] > 0
        assert found.interval[name][0] < found.params[name] < found.interval[name][1]
    plain = lw.fit(runs.select(runs["r"] == r), "chinchilla")
    assert {n: found.params[n] for n in TERMS} == pytest.approx(dict(plain.params), rel=1e-6)


def test_one_r_is_fine_when_phi_is_fixed(draw, quick):
    runs = draw(0.0)
    found = quick(runs.select(runs["r"] == 4), fix={"phi": JOINT["phi"]})
    assert found.status == "ok"
    assert dict(found.params) == pytest.approx(dict(JOINT), rel=1e-6)


@pytest.mark.parametrize("with_column", [True, False], ids=["column budget", "no column budget"])
def test_one_budget_leaves_everything_open(draw, with_column):
    runs = draw(0.001, seed=2)
    one = runs.select(runs["budget"] == 4.64e18)
    wanted = ("n_once", "n_rec", "r", "tokens", "loss", *(["budget"] if with_column else []))
    found = lw.fit({name: one[name] for name in wanted})
    assert "one budget" in found.status
    assert "add runs at another budget" in found.status
    _no_number(found, *found.params)
    assert found.objective is None
    assert found.quality is None
    assert found.diagnostics is None


def test_what_is_not_identified_does_not_predict(draw):
    runs = draw(0.001)
    found = lw.fit(runs.select(runs["budget"] == 1e18))
    with pytest.raises(lw.BadInput, match="one budget"):
        found.predict(runs)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_too_few_runs_are_counted_against_the_parameters(draw, count):
    runs = draw(0.001, seed=3)
    found = lw.fit(runs.select(np.linspace(0, 115, count).astype(int)))
    assert f"too few runs: {count} runs for 6 parameters" in found.status
    _no_number(found, *found.params)


def test_repeats_are_no_further_designs(draw):
    runs = draw(0.001, seed=3)
    few = runs.select(np.repeat(np.linspace(0, 115, 4).astype(int), 5)).with_columns(seed=np.tile(np.arange(5.0), 4))
    found = lw.fit(few.with_columns(loss=few["loss"] * (1 + 1e-3 * few["seed"])))
    assert "20 runs of 4 designs for 6 parameters" in found.status
    _no_number(found, *found.params)


def test_fixing_parameters_asks_for_fewer_runs(draw, quick):
    runs = draw(0.0)
    few = runs.select([0, 20, 40, 60, 80, 115])
    assert "too few" in quick(few).status
    found = quick(few, fix={"E": JOINT["E"], "beta": JOINT["beta"]})
    assert found.phi == pytest.approx(JOINT["phi"], abs=1e-5)


def test_equal_tokens_everywhere_cannot_tell_b_from_e(draw, quick):
    runs = draw(0.0)
    flat = runs.with_columns(tokens=np.full(116, 1e9))
    columns = {name: flat[name] for name in ("n_once", "n_rec", "n_injection", "r", "tokens")}
    loss = lw.LAWS["joint"].predict(JOINT, {**columns, "n_once": columns["n_once"] + columns["n_injection"]})
    noise = np.exp(0.001 * np.random.default_rng(0).standard_normal(116))
    found = quick({**columns, "loss": loss * noise})
    assert "cannot tell" in found.status
    _no_number(found, "B", "beta", "E")
    assert found.phi == pytest.approx(JOINT["phi"], abs=0.03)
    assert found.params["alpha"] is not None


def test_equal_sizes_everywhere_leave_size_open(quick):
    rng = np.random.default_rng(1)
    tokens = np.geomspace(1e9, 1e11, 12)
    loss = (1.9 + 400 * tokens**-0.3) * np.exp(0.001 * rng.standard_normal(12))
    found = quick({"n": np.full(12, 1e8), "tokens": tokens, "loss": loss}, "chinchilla")
    _no_number(found, "A", "alpha", "E")
    assert found.status != "ok"
    assert found.params["beta"] == pytest.approx(0.3, abs=0.05)


def test_losses_that_do_not_depend_on_anything_leave_the_exponents_open(grid):
    found = lw.fit(grid.with_columns(loss=np.full(116, 2.5)))
    assert found.status != "ok"
    _no_number(found, "phi", "alpha", "beta")


def test_a_loop_of_a_thousandth_of_the_parameters_has_a_flat_profile_in_phi(grid):
    small = grid.with_columns(n_once=grid["n_once"] + grid["n_rec"], n_rec=grid["n_rec"] * 1e-3)
    found = lw.fit(lw.simulate(small.select(small["r"] <= 2), lw.LAWS["joint"], JOINT, 0.01, seed=4))
    assert "phi is not identified: its profile is flat" in found.status
    _no_number(found, "phi")
    assert found.params["alpha"] is not None


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_with_noise_of_30_percent_phi_is_open_or_its_interval_is_wide(grid, seed):
    few = grid.select(np.flatnonzero(np.isin(grid["r"], [1, 2]))[::3])
    found = lw.fit(lw.simulate(few, lw.LAWS["joint"], JOINT, 0.3, seed=seed), diagnostics=False)
    if found.phi is None:
        assert "phi" in found.status
    elif found.interval["phi"] is None:
        assert any("did not converge" in warning for warning in found.warnings)
    else:
        low, high = found.interval["phi"]
        assert low is None or high is None or high - low > 1


def _numbers_or_reasons(found):
    assert set(found.params) == set(JOINT)
    for name, value in found.params.items():
        if value is None:
            assert found.interval[name] is None
            assert found.status != "ok"
        else:
            assert np.isfinite(value)


@pytest.mark.parametrize("keep", [1, 3, 30])
def test_a_handful_of_runs_gives_numbers_or_reasons_never_an_exception(draw, keep):
    runs = draw(0.003, seed=keep)
    _numbers_or_reasons(lw.fit(runs.select(np.random.default_rng(keep).choice(116, keep, replace=False))))


@pytest.mark.full
@pytest.mark.parametrize("keep", [7, 8, 10, 12, 16, 20])
@pytest.mark.parametrize("seed", range(4))
def test_any_handful_of_runs_gives_numbers_or_reasons_never_an_exception(draw, keep, seed):
    runs = draw(0.003, seed=seed)
    _numbers_or_reasons(lw.fit(runs.select(np.random.default_rng(seed).choice(116, keep, replace=False))))


def test_a_parameter_at_the_edge_of_its_box_is_named(quick):
    size = np.geomspace(1e6, 1e10, 20)
    found = quick({"n": size, "loss": (1e12 / size) ** 1e-4 * 1.1}, "kaplan-n")
    assert "N_c ran to the edge of its box" in found.status
    _no_number(found, "N_c")


@pytest.mark.parametrize("kept", [(2, 4), (2, 8), (4, 8)])
def test_two_r_above_1_leave_two_values_of_phi_and_none_is_printed(draw, kept):
    """Of equal executed depth, two looped families have the same ratio of sizes at two values of phi."""
    for seed in (0, 1):
        runs = draw(0.003, seed=seed)
        found = lw.fit(runs.select(np.isin(runs["r"], kept)), diagnostics=False)
        assert found.status.startswith("two optima: phi = ")
        assert found.phi is None
        assert found.interval["phi"] is None
        assert found.params["alpha"] is not None


@pytest.mark.parametrize("kept", [(1, 4), (1, 2, 4, 8)])
def test_with_r_1_phi_has_one_optimum(draw, kept):
    runs = draw(0.003)
    assert lw.fit(runs.select(np.isin(runs["r"], kept)), diagnostics=False).status == "ok"


def test_a_parameter_that_changes_nothing_is_named(draw):
    runs = draw(0.003)
    found = lw.fit(runs.with_columns(n_once=runs["n_once"] + runs["n_rec"], n_rec=np.zeros(116)), diagnostics=False)
    assert "phi changes nothing in these runs" in found.status


def test_refits_that_ran_to_their_box_are_no_numbers(draw):
    """E of a few runs of one architecture often ends at its edge."""
    runs = draw(0.01, seed=3)
    halves = lw.fit(runs.select(runs["budget"] < 2e18)).diagnostics
    at_edge = [r for r in (*halves.architectures, *halves.halves) if "edge of its box" in r.status]
    assert at_edge
    for refit in at_edge:
        assert None in refit.params.values()
