"""What stands beside a fit is what a person would compute by hand."""

import numpy as np
import pytest

import loopworth as lw
from loopworth.laws.published import JOINT


@pytest.fixture(scope="module")
def runs(draw):
    return draw(0.003, seed=12)


@pytest.fixture(scope="module")
def found(runs):
    return lw.fit(runs)


@pytest.fixture(scope="module")
def exact(draw):
    return lw.fit(draw(0.0))


def _predicted(fit, runs):
    columns = {name: runs[name] for name in ("n_rec", "r", "tokens")}
    return fit.predict({**columns, "n_once": runs["n_once"] + runs["n_injection"]})


def test_r2_rmse_and_the_worst_run_are_numpys_on_plain_nats(found, runs):
    error = _predicted(found, runs) - runs["loss"]
    total = ((runs["loss"] - runs["loss"].mean()) ** 2).sum()
    assert found.quality.r2 == pytest.approx(1 - (error**2).sum() / total, rel=1e-9)
    assert found.quality.rmse == pytest.approx(np.sqrt((error**2).mean()), rel=1e-9)
    worst = np.abs(error).argmax()
    assert found.quality.worst == pytest.approx(error[worst], rel=1e-9)
    assert found.quality.worst_row == worst + 1


def test_each_architecture_has_its_residuals(found, runs):
    error = _predicted(found, runs) - runs["loss"]
    assert [x.architecture for x in found.diagnostics.residuals] == ["r=1", "r=2", "r=4", "r=8"]
    for x, r in zip(found.diagnostics.residuals, (1, 2, 4, 8), strict=True):
        own = error[runs["r"] == r]
        assert x.n_runs == 29
        assert (x.mean, x.rmse) == pytest.approx((own.mean(), np.sqrt((own**2).mean())), rel=1e-9)
        assert abs(x.worst) == pytest.approx(np.abs(own).max(), rel=1e-9)


def test_the_halves_are_the_published_56_and_60_runs(found, runs, quick):
    low, high = found.diagnostics.halves
    assert (low.n_runs, high.n_runs) == (56, 60)
    assert (low.what, high.what) == ("up to 2.15e+18 FLOPs", "above 2.15e+18 FLOPs")
    alone = quick(runs.select(runs["budget"] <= 2.2e18))
    assert low.params["phi"] == pytest.approx(alone.phi, abs=1e-6)
    assert low.objective == pytest.approx(alone.objective, rel=1e-9)


def test_the_restricted_laws_hold_phi_at_0_and_1_and_fit_worse(found, runs, quick):
    nothing, everything = found.diagnostics.restricted
    assert (nothing.params["phi"], everything.params["phi"]) == (0, 1)
    for refit, phi in ((nothing, 0), (everything, 1)):
        alone = quick(runs, fix={"phi": phi})
        assert refit.objective == pytest.approx(alone.objective, rel=1e-9)
        assert refit.r2 == pytest.approx(alone.quality.r2, rel=1e-9)
        assert refit.objective > found.objective
        assert refit.r2 < found.quality.r2


def test_with_phi_fixed_nothing_is_restricted_or_counted_otherwise(runs):
    fixed = lw.fit(runs, fix={"phi": 0.5}).diagnostics
    assert fixed.restricted == ()
    assert dict(fixed.conventions) == {}
    assert all(half.params["phi"] == 0.5 for half in fixed.halves)


def test_left_out_ranges_hold_the_fit_and_name_whose_absence_moves_it_most(found, runs, quick):
    cells, each = found.diagnostics.left_out
    assert (cells.what, cells.count) == ("cells", 24)
    assert (each.what, each.count) == ("runs", 116)
    for left in (cells, each):
        assert left.low["phi"] < found.phi < left.high["phi"]
    assert cells.high["phi"] - cells.low["phi"] > each.high["phi"] - each.low["phi"]
    row = int(each.farthest["phi"].removeprefix("row "))
    without = quick(runs.select(np.arange(116) != row - 1)).phi
    far = max(found.phi - each.low["phi"], each.high["phi"] - found.phi)
    assert abs(without - found.phi) == pytest.approx(far, abs=1e-6)


def test_a_cell_is_named_by_architecture_and_budget(found, runs, quick):
    kind, _, budget = found.diagnostics.left_out[0].farthest["phi"].partition(" at ")
    here = (runs["r"] == float(kind.removeprefix("r="))) & np.isclose(
        runs["budget"], float(budget.removesuffix(" FLOPs")), rtol=0.01
    )
    without = quick(runs.select(~here)).phi
    left = found.diagnostics.left_out[0]
    assert min(abs(without - left.low["phi"]), abs(without - left.high["phi"])) < 1e-6


def test_blind_prediction_fits_below_a_budget_and_is_held_against_the_rest(found, runs, quick):
    blind = found.diagnostics.blind
    assert [b.budget for b in blind] == pytest.approx([2.15e18, 4.64e18, 1e19, 2.15e19], rel=1e-6)
    assert [(b.n_fitted, b.n_predicted) for b in blind] == [(36, 80), (56, 60), (80, 36), (100, 16)]
    last = blind[-1]
    below, above = runs.select(runs["budget"] < 2e19), runs.select(runs["budget"] > 2e19)
    alone = quick(below)
    with pytest.warns(lw.ExtrapolationWarning):
        error = _predicted(alone, above) - above["loss"]
    assert last.mean_error == pytest.approx(error.mean(), abs=1e-6)
    assert last.rmse == pytest.approx(np.sqrt((error**2).mean()), abs=1e-6)
    assert last.rmse_fitted == pytest.approx(alone.quality.rmse, abs=1e-6)


def test_a_law_that_does_not_hold_at_the_top_budget_warns_against_extrapolation(draw):
    runs = draw(0.001, seed=1)
    lifted = np.where(runs["budget"] > 2e19, 1.05, 1.0)
    bent = lw.fit(runs.with_columns(loss=runs["loss"] * lifted))
    assert any("do not extrapolate" in w for w in bent.warnings)
    assert not any("do not extrapolate" in w for w in lw.fit(runs).warnings)


def test_without_noise_every_diagnostic_is_perfect(exact):
    checks = exact.diagnostics
    assert exact.quality.r2 == pytest.approx(1, abs=1e-12)
    assert all(x.rmse < 1e-9 for x in checks.residuals)
    assert all(half.params["phi"] == pytest.approx(JOINT["phi"], abs=1e-5) for half in checks.halves)
    assert all(b.rmse < 1e-6 for b in checks.blind)
    for left in checks.left_out:
        assert (left.low["phi"], left.high["phi"]) == pytest.approx((JOINT["phi"],) * 2, abs=1e-5)


def test_chinchillas_law_on_the_r_1_runs_alone_is_the_joint_laws_own(exact):
    plain = next(x for x in exact.diagnostics.architectures if x.what == "r=1")
    assert {n: plain.params[n] for n in ("A", "alpha", "B", "beta", "E")} == pytest.approx(
        {n: JOINT[n] for n in ("A", "alpha", "B", "beta", "E")}, rel=1e-5
    )


def test_chinchillas_law_on_each_architecture_has_its_own_size_term(exact, draw, quick):
    runs = draw(0.0)
    names = [x.what for x in exact.diagnostics.architectures]
    assert names == ["r=1", "r=2", "r=4", "r=8"]
    for refit, r in zip(exact.diagnostics.architectures, (1, 2, 4, 8), strict=True):
        assert refit.n_runs == 29
        assert refit.r2 > 0.999
        alone = quick(runs.select(runs["r"] == r), "chinchilla")
        assert refit.params["alpha"] == pytest.approx(alone.params["alpha"], rel=1e-4)


def test_phi_under_every_convention_is_that_of_a_fit_with_it(found, runs, quick):
    assert found.diagnostics.conventions["once"] == pytest.approx(found.phi, rel=1e-12)
    for convention in ("loop", "dropped", "once+head"):
        other = quick(runs, convention=convention).phi
        assert found.diagnostics.conventions[convention] == pytest.approx(other, abs=1e-6)


def test_a_convention_that_cannot_be_counted_has_words_in_place_of_a_number(runs):
    columns = {n: c for n, c in runs.columns.items() if n not in ("n_injection", "n_head")}
    conventions = lw.fit(columns).diagnostics.conventions
    assert isinstance(conventions["once"], float)
    for convention in ("loop", "dropped", "once+head"):
        assert "not computable from these columns" in conventions[convention]


def test_a_law_without_phi_has_nothing_to_restrict(runs):
    checks = lw.fit(runs.select(runs["r"] == 1), "chinchilla").diagnostics
    assert checks.restricted == ()
    assert checks.architectures == ()
    assert dict(checks.conventions) == {}


def test_without_budgets_the_halves_are_cut_by_compute_and_nothing_is_blind():
    rng = np.random.default_rng(5)
    size, tokens = 10 ** rng.uniform(7, 9, 40), 10 ** rng.uniform(9, 11, 40)
    loss = (1.7 + 60 * size**-0.25 + 400 * tokens**-0.3) * np.exp(0.001 * rng.standard_normal(40))
    checks = lw.fit({"n": size, "tokens": tokens, "loss": loss}, "chinchilla").diagnostics
    assert [half.n_runs for half in checks.halves] == [20, 20]
    assert checks.blind == ()


def test_without_compute_the_halves_say_why_there_are_none():
    place = np.arange(1.0, 65.0)
    loss = lw.LAWS["position"].predict({"c": 2.3, "k": 5.4, "p": 0.62}, {"position": place})
    checks = lw.fit({"position": place, "loss": loss}, "position").diagnostics
    assert checks.halves == "no budgets in these columns"


def test_a_half_that_identifies_nothing_says_so_and_the_rest_stands(draw):
    runs = draw(0.003, seed=2)
    three = lw.fit(runs.select(np.isin(runs["budget"], [4.64e17, 4.64e18, 2.15e19])))
    low, high = three.diagnostics.halves
    assert low.n_runs + high.n_runs == three.n_runs
    assert "one budget" in high.status
    assert high.params["phi"] is None
    assert three.status == "ok"


def test_the_worst_row_is_that_of_the_source_not_of_the_selection(draw):
    runs = draw(0.001, seed=4)
    loss = runs["loss"].copy()
    loss[99] *= 1.3
    kept = runs.with_columns(loss=loss).select(np.arange(116) >= 10)
    found = lw.fit(kept)
    assert found.quality.worst_row == 100
    assert any("row 100" in w and "lie far off the law" in w for w in found.warnings)
