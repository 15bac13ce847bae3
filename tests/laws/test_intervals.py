"""Each interval is what its definition says, computed the slow way."""

import numpy as np
import pytest
from scipy.optimize import curve_fit
from scipy.stats import chi2
from scipy.stats import t as student

import loopworth as lw
from loopworth.laws import intervals
from loopworth.laws.design import cells
from loopworth.laws.engine import huber, minimise, solve

PHI = lw.LAWS["joint"].names.index("phi")
METHODS = ("jackknife", "bootstrap", "profile", "delta")


@pytest.fixture(scope="module")
def runs(draw):
    return draw(0.003, 0.002, seed=1)


@pytest.fixture(scope="module")
def posed(runs, problem):
    return problem(runs)


@pytest.fixture(scope="module")
def best(posed):
    return solve(posed)


@pytest.fixture(scope="module")
def member(runs):
    return cells(runs)[0]


def test_the_jackknife_is_a_loop_of_refits_from_scratch(posed, best, member):
    found = intervals.jackknife(posed, best.theta, member, 0.95)
    refits = np.array([solve(posed.rows(np.flatnonzero(member != k))).theta for k in range(24)])
    np.testing.assert_allclose(found.refits[:, PHI], refits[:, PHI], atol=1e-6)
    np.testing.assert_allclose(found.refits, refits, rtol=1e-4)
    error = np.sqrt(23 / 24 * ((refits - refits.mean(0)) ** 2).sum(0))
    reach = student.ppf(0.975, _cells_that_matter(posed.jacobian(best.theta).T, member)) * error
    np.testing.assert_allclose(found.low, best.theta - reach, rtol=1e-4)
    np.testing.assert_allclose(found.high, best.theta + reach, rtol=1e-4)
    assert found.unconverged == 0


def _cells_that_matter(design, member):
    """Each parameter's variance is a sum over cells; how many equal ones would be spread as evenly as these."""
    whole = np.linalg.solve(design.T @ design, design.T)
    parts = np.array([(whole[:, member == cell] ** 2).sum(1) for cell in range(member.max() + 1)])
    return parts.sum(0) ** 2 / (parts**2).sum(0)


def test_phi_rests_on_14_of_the_papers_24_cells(posed, best, member):
    degrees = intervals.jackknife_degrees(posed, best.theta, member)
    np.testing.assert_allclose(degrees, _cells_that_matter(posed.jacobian(best.theta).T, member), rtol=1e-5)
    assert 13 < degrees[PHI] < 15


def test_warm_started_resamples_end_where_fits_from_scratch_do(posed, best, member):
    """A refit that stops early stays near its start, and the interval comes out several times too narrow."""
    rng = np.random.default_rng(0)
    for _ in range(8):
        times = rng.multinomial(24, np.full(24, 1 / 24))[member]
        warm = minimise(posed, best.theta[None], times[None].astype(float))
        scratch = solve(posed.rows(np.repeat(np.arange(len(posed)), times)))
        assert warm.objective[0] == pytest.approx(scratch.objective, rel=1e-9)
        assert warm.theta[0, PHI] == pytest.approx(scratch.theta[PHI], abs=1e-6)


def test_the_bootstrap_spreads_as_a_loop_over_resampled_cells_does(posed, best, member):
    found = intervals.bootstrap(posed, best.theta, member, 0.95, 400)
    rng = np.random.default_rng(99)
    runs_of = [np.flatnonzero(member == k) for k in range(24)]
    loop = [
        solve(posed.rows(np.concatenate([runs_of[k] for k in rng.integers(0, 24, 24)]))).theta[PHI] for _ in range(60)
    ]
    assert found.refits[:, PHI].std() == pytest.approx(np.std(loop), rel=0.35)
    assert found.unconverged == 0
    inside = (found.refits[:, PHI] >= found.low[PHI]) & (found.refits[:, PHI] <= found.high[PHI])
    assert inside.mean() == pytest.approx(0.95, abs=0.006)


def test_a_bootstrap_is_a_matter_of_its_seed(runs):
    one, same, other = (
        lw.fit(runs, interval="bootstrap", resamples=50, diagnostics=False, seed=s).interval["phi"] for s in (1, 1, 2)
    )
    assert one == same != other


def test_the_delta_method_is_that_of_curve_fit_on_ln_loss():
    rng = np.random.default_rng(4)
    size = np.geomspace(1e6, 1e10, 30)
    log_loss = 0.076 * np.log(8.8e13 / size) + 0.01 * rng.standard_normal(30)
    found = lw.fit({"n": size, "loss": np.exp(log_loss)}, "kaplan-n", delta=np.inf, interval="delta")
    best, covariance = curve_fit(lambda n, log_c, a: a * (log_c - np.log(n)), size, log_loss, p0=(32.0, 0.08))
    reach = student.ppf(0.975, 28) * np.sqrt(np.diag(covariance))
    assert np.log(found.params["N_c"]) == pytest.approx(best[0], rel=1e-6)
    assert np.log(found.interval["N_c"]) == pytest.approx((best[0] - reach[0], best[0] + reach[0]), rel=1e-3)
    assert found.interval["alpha_N"] == pytest.approx((best[1] - reach[1], best[1] + reach[1]), rel=1e-3)


def test_huber_standard_errors_are_near_those_of_least_squares_on_normal_noise(draw, problem):
    runs = draw(0.003, seed=2)
    robust, squares = problem(runs), problem(runs, delta=np.inf)
    one = intervals.standard_errors(robust, solve(robust).theta)
    other = intervals.standard_errors(squares, solve(squares).theta)
    # Least absolute deviations, the limit of a small delta, is pi / 2 less efficient.
    assert (one > 0.8 * other).all()
    assert (one < 1.7 * other).all()


@pytest.mark.parametrize("delta", [1e-3, np.inf])
def test_at_a_profile_bound_the_best_of_the_rest_has_risen_as_allowed(draw, problem, delta):
    posed = problem(draw(0.003, seed=1), delta=delta)
    best = solve(posed)
    found = intervals.profile(posed, best.theta, best.objective, 0.95)
    allowed = best.objective + intervals.rise(posed, best.theta, 0.95)
    for name in ("phi", "alpha", "beta"):
        k = posed.law.names.index(name)
        assert found.low[k] < best.theta[k] < found.high[k]
        for bound in (found.low[k], found.high[k]):
            assert solve(posed.fixing(**{name: bound})).objective == pytest.approx(allowed, rel=1e-4)


def test_least_squares_may_rise_by_chi_square_times_the_residual_variance(draw, problem):
    posed = problem(draw(0.003, seed=1), delta=np.inf)
    best = solve(posed)
    variance = 2 * best.objective / (116 - 6)
    assert intervals.rise(posed, best.theta, 0.95) == pytest.approx(chi2.ppf(0.95, 1) * variance / 2, rel=1e-9)


def test_a_side_that_never_rises_enough_is_open(problem):
    rng = np.random.default_rng(3)
    size, tokens = 10 ** rng.uniform(7, 8, 25), 10 ** rng.uniform(9, 10, 25)
    loss = (0.8 + 60 * size**-0.25 + 400 * tokens**-0.3) * np.exp(0.02 * rng.standard_normal(25))
    posed = problem(lw.Runs({"n": size, "tokens": tokens, "loss": loss}), "chinchilla")
    best = solve(posed)
    floor = posed.law.names.index("E")
    at_edge = solve(posed.fixing(E=posed.law.params[floor].low)).objective
    assert at_edge < best.objective + intervals.rise(posed, best.theta, 0.95)
    found = intervals.profile(posed, best.theta, best.objective, 0.95, only=("E",))
    assert np.isnan(found.low[floor])
    assert best.theta[floor] < found.high[floor] < posed.law.params[floor].high
    assert np.isnan(np.delete(found.high, floor)).all()


def test_an_open_side_is_none_in_a_fit():
    rng = np.random.default_rng(1)
    place = np.geomspace(1, 64, 12)
    loss = (0.05 + 5 * place**-0.2) * np.exp(0.01 * rng.standard_normal(12))
    found = lw.fit({"position": place, "loss": loss}, "position", interval="profile", diagnostics=False)
    assert found.interval["p"][0] < found.params["p"] < found.interval["p"][1]
    assert found.params["c"] is None or found.interval["c"][0] is None


@pytest.mark.parametrize("method", METHODS)
def test_an_interval_of_50_percent_lies_inside_that_of_95(runs, method):
    narrow, wide = (
        lw.fit(runs, interval=method, level=level, resamples=100, diagnostics=False).interval for level in (0.5, 0.95)
    )
    for name in lw.LAWS["joint"].names:
        assert wide[name][0] < narrow[name][0] < narrow[name][1] < wide[name][1]


@pytest.mark.parametrize("method", METHODS)
def test_what_is_fixed_gets_no_interval(runs, method):
    found = lw.fit(runs, fix={"phi": 0.5}, interval=method, resamples=50, diagnostics=False)
    assert found.interval["phi"] is None
    assert found.interval["alpha"][0] < found.params["alpha"] < found.interval["alpha"][1]


@pytest.mark.parametrize("method", METHODS)
def test_amplitudes_have_intervals_of_amplitudes_not_of_logarithms(runs, method):
    found = lw.fit(runs, interval=method, resamples=100, diagnostics=False)
    assert 0 < found.interval["A"][0] < found.params["A"] < found.interval["A"][1]
    assert found.interval["E"][0] > 0.5


def test_noise_that_a_cell_shares_widens_the_jackknife_but_not_the_delta_method(draw):
    def half_width(runs, method):
        low, high = lw.fit(runs, interval=method, diagnostics=False).interval["phi"]
        return (high - low) / 2

    ratio = {}
    for method in ("jackknife", "delta"):
        own = np.median([half_width(draw(0.004, seed=s), method) for s in range(5)])
        shared = np.median([half_width(draw(0.001, 0.004, seed=s), method) for s in range(5)])
        ratio[method] = shared / own
    assert ratio["jackknife"] > 1.3
    assert ratio["delta"] < 1.3


@pytest.mark.parametrize("method", ["jackknife", "bootstrap"])
def test_two_cells_are_too_few_for_an_interval_and_it_says_so(draw, method):
    runs = draw(0.001)
    few = runs.select(np.isin(runs["budget"], [1e18, 4.64e18]) & (runs["r"] == 4))
    found = lw.fit(few, "chinchilla", interval=method)
    assert dict(found.interval) == dict.fromkeys(found.law.names)
    assert any("needs at least 3 cells, here are 2" in w for w in found.warnings)


def test_a_handful_of_cells_is_flagged(draw):
    runs = draw(0.001).select(np.arange(29))
    found = lw.fit(runs, "chinchilla")
    assert found.n_cells == 6
    assert any("6 cells only" in w for w in found.warnings)


@pytest.mark.full
@pytest.mark.parametrize("cell_noise", [0.0, 0.003])
def test_95_percent_jackknife_intervals_cover_phi_about_that_often(draw, problem, member, cell_noise):
    covered = 0
    for seed in range(200):
        posed = problem(draw(0.003, cell_noise, seed=seed))
        found = intervals.jackknife(posed, solve(posed).theta, member, 0.95)
        covered += found.low[PHI] <= 0.459 <= found.high[PHI]
    assert 182 <= covered <= 199


def test_huber_is_quadratic_inside_delta_and_straight_outside():
    residual = np.array([-3e-3, -5e-4, 0.0, 1e-3, 2e-3])
    expected = [1e-3 * (3e-3 - 5e-4), 5e-4**2 / 2, 0.0, 1e-3**2 / 2, 1e-3 * (2e-3 - 5e-4)]
    np.testing.assert_allclose(huber(residual, 1e-3), expected, rtol=1e-12)
    np.testing.assert_allclose(huber(residual, np.inf), residual**2 / 2, rtol=1e-12)
