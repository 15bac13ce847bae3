"""No fit is worse than what the published protocol, many starts of SciPy's L-BFGS-B, finds."""

import numpy as np
import pytest

import loopworth as lw
from loopworth.laws.engine import Problem, huber, minimise, solve
from loopworth.laws.published import JOINT
from loopworth.ledger import as_runs
from scipy_protocol import scipy_best

NOISES = ((0.001, 0.0, np.inf), (0.003, 0.003, np.inf), (0.01, 0.0, np.inf))
MORE_NOISES = (*NOISES, (0.003, 0.0, 3.0), (0.01, 0.01, 3.0), (0.03, 0.0, np.inf))


def _not_worse(problem, starts):
    ours, theirs = solve(problem), scipy_best(problem, starts)
    assert ours.objective <= theirs.fun * (1 + 1e-9) + 1e-15
    at = huber(problem.residuals(ours.theta), problem.delta).sum()
    assert ours.objective == pytest.approx(at, rel=1e-9)
    assert (ours.theta >= problem.law.low).all()
    assert (ours.theta <= problem.law.high).all()


@pytest.mark.parametrize(("noise", "cell_noise", "tails"), NOISES)
def test_a_simulated_grid_is_fitted_as_well_as_by_40_starts_of_scipy(draw, problem, noise, cell_noise, tails):
    _not_worse(problem(draw(noise, cell_noise, tails, seed=11)), 40)


@pytest.mark.parametrize("noise", [0.003, 0.03])
@pytest.mark.parametrize("law", ["kaplan-nd", "chinchilla", "looped"])
def test_twenty_runs_are_fitted_as_well_as_by_40_starts_of_scipy(problem, law, noise):
    rng = np.random.default_rng(2)
    columns = {"n": 10 ** rng.uniform(7, 9, 20), "tokens": 10 ** rng.uniform(9, 11, 20), "r": rng.choice([1, 2, 4], 20)}
    loss = 1.7 + 60 * (columns["r"] ** 0.4 * columns["n"]) ** -0.25 + 400 * columns["tokens"] ** -0.3
    _not_worse(problem(as_runs({**columns, "loss": loss * np.exp(noise * rng.standard_normal(20))}), law), 40)


@pytest.mark.parametrize("seed", range(12))
def test_kaplans_law_is_found_again_in_twenty_noisy_runs(quick, seed):
    rng = np.random.default_rng(seed)
    columns = {"n": 10 ** rng.uniform(7, 9, 20), "tokens": 10 ** rng.uniform(9, 11, 20)}
    law, truth = lw.LAWS["kaplan-nd"], {"N_c": 6.4e13, "alpha_N": 0.076, "D_c": 1.8e13, "alpha_D": 0.103}
    exact = law.predict(truth, columns)
    runs = {**columns, "loss": exact * np.exp(0.003 * rng.standard_normal(20))}
    found = quick(runs, law)
    assert found.objective <= huber(np.log(exact / runs["loss"]), 1e-3).sum()
    assert found.params["alpha_N"] == pytest.approx(0.076, abs=0.015)


def test_what_is_fixed_stays_and_the_rest_is_optimal(draw, problem):
    posed = problem(draw(0.003, seed=4), phi=0.7, E=1.5)
    found = solve(posed)
    assert found.theta[posed.law.names.index("phi")] == 0.7
    assert np.exp(found.theta[posed.law.names.index("E")]) == pytest.approx(1.5, rel=1e-12)
    _not_worse(posed, 20)


def test_least_squares_is_the_limit_of_a_wide_delta(draw, problem):
    runs = draw(0.003, seed=6)
    wide, infinite = solve(problem(runs, delta=1e3)), solve(problem(runs, delta=np.inf))
    assert wide.objective == pytest.approx(infinite.objective, rel=1e-9)
    np.testing.assert_allclose(wide.theta, infinite.theta, rtol=1e-6)
    assert infinite.objective == pytest.approx((problem(runs).residuals(infinite.theta) ** 2).sum() / 2, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_papers_protocol_reaches_the_same_optimum(draw, quick, seed):
    runs = draw(0.003, seed=seed)
    default, paper = quick(runs), quick(runs, protocol="paper")
    assert paper.starts == 500
    assert paper.objective == pytest.approx(default.objective, rel=1e-9)
    assert paper.phi == pytest.approx(default.phi, abs=1e-6)


def test_a_whole_number_weight_counts_a_run_that_often(draw, problem):
    posed = problem(draw(0.003, seed=7))
    best = solve(posed)
    weights = np.random.default_rng(7).integers(0, 4, len(posed))
    ends = minimise(posed, best.theta[None], weights[None].astype(float))
    again = solve(posed.rows(np.repeat(np.arange(len(posed)), weights)))
    assert ends.converged.all()
    assert ends.objective[0] == pytest.approx(again.objective, rel=1e-9)
    np.testing.assert_allclose(ends.theta[0], again.theta, rtol=1e-5)


def test_at_the_optimum_no_small_step_in_any_direction_is_downhill(draw, problem):
    posed = problem(draw(0.003, seed=8))
    best = solve(posed)
    rng = np.random.default_rng(8)
    for _ in range(200):
        step = rng.standard_normal(6)
        moved = best.theta + 10 ** rng.uniform(-6, -2) * step / np.linalg.norm(step)
        assert huber(posed.residuals(moved), posed.delta).sum() >= best.objective * (1 - 1e-10)


def test_a_long_table_is_fitted_on_all_its_runs(grid, problem):
    many = grid.select(np.tile(np.arange(len(grid)), 200)).with_columns(seed=np.repeat(np.arange(200.0), len(grid)))
    posed = problem(lw.simulate(many, lw.LAWS["joint"], JOINT, 0.003, seed=9))
    assert len(posed) > 20_000
    best = solve(posed)
    polished = minimise(posed, best.theta[None])
    assert best.objective == pytest.approx(polished.objective[0], rel=1e-10)
    assert best.theta[-1] == pytest.approx(JOINT["phi"], abs=0.003)


def _published(measured, name):
    """Problems as (law, columns, loss), one per way of reading a shared table."""
    if name.startswith("chinchilla_epoch"):
        t = measured("chinchilla_epoch")
        keep = t["loss"] < (np.sort(t["loss"])[-5] if name.endswith("240") else np.inf)
    elif name.startswith("llama3"):
        t = measured("llama3_isoflop")
        keep = t["condition"] == name.split()[1]
    elif name == "gadre":
        t = measured("gadre_redpajama")
        return "chinchilla", {"n": t["N"], "tokens": t["D"]}, t["loss_c4_val"]
    elif name.startswith("data_constrained"):
        t = measured("data_constrained")
        keep = t["D"] <= t["U"] if name.endswith("single") else np.ones(len(t["D"]), bool)
    elif name == "minima":
        t = measured("looped_isodepth_minima")
        columns = {"n_once": t["N_once"], "n_rec": t["N_rec"], "r": t["r"], "tokens": t["D_opt"]}
        return "joint", columns, t["loss_opt"]
    else:
        t = measured(name)
        keep = np.ones(len(t["N"]), bool)
    return "chinchilla", {"n": t["N"][keep], "tokens": t["D"][keep]}, t["loss"][keep]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "delta"),
    [
        ("chinchilla_epoch", 1e-3),
        ("chinchilla_epoch 240", 1e-3),
        ("chinchilla_epoch 240", 1e-6),
        ("gemstones_hot", 1e-3),
        ("gemstones_hot", 1e-4),
        ("gemstones_lr_ablation_hot", 1e-3),
        ("gemstones_lr_ablation_hot", 1e-4),
        ("llama3 exp_loss", 1e-3),
        ("llama3 raw_loss", 1e-3),
        ("gadre", 1e-3),
        ("data_constrained", 1e-3),
        ("data_constrained single", 1e-3),
        ("minima", 1e-3),
    ],
)
def test_published_runs_are_fitted_as_well_as_by_500_starts_of_scipy(measured, name, delta):
    law, columns, loss = _published(measured, name)
    _not_worse(Problem(lw.LAWS[law], columns, np.log(loss), delta), 500)


@pytest.mark.full
@pytest.mark.parametrize(("noise", "cell_noise", "tails"), MORE_NOISES)
def test_a_simulated_grid_is_fitted_as_well_as_by_500_starts_of_scipy(draw, problem, noise, cell_noise, tails):
    _not_worse(problem(draw(noise, cell_noise, tails, seed=21)), 500)


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_few_runs_at_the_edge_of_the_box_are_solved_as_well_as_by_scipy(draw, problem, delta, seed):
    """Six runs of one architecture send E, and then others, to the edge; descents must slide along it."""
    runs = draw(0.01, seed=seed)
    some = np.flatnonzero((runs["r"] == 2) & np.isin(runs["width"], [640, 768]))[:6]
    posed = problem(runs.select(some), "chinchilla", delta)
    assert solve(posed).objective <= scipy_best(posed, 60).fun * (1 + 1e-9) + 1e-15
