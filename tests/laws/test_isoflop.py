"""Parabolas give the vertex that is there, or say why there is none."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import loopworth as lw
from loopworth.laws.isoflop import frontiers, parabolas
from loopworth.laws.published import JOINT
from loopworth.ledger import as_runs
from loopworth.shape import Shape


def _bowl(sizes, vertex, budget=1e18, curve=0.05, lowest=2.5):
    sizes = np.asarray(sizes, float)
    return {
        "n": sizes, "tokens": budget / (6 * sizes), "budget": np.full(len(sizes), budget),
        "loss": lowest + curve * np.log(sizes / vertex) ** 2,
    }  # fmt: skip


@pytest.mark.parametrize("sizes", [np.geomspace(1e7, 1e9, 5), [1e7, 3e7, 2e9], np.geomspace(4e7, 5e8, 9)])
def test_a_quadratic_gives_its_vertex(sizes):
    (found,) = parabolas(as_runs(_bowl(sizes, 1.3e8)))
    assert found.status == "ok"
    assert found.n_opt == pytest.approx(1.3e8, rel=1e-6)
    assert found.tokens_opt == pytest.approx(1e18 / (6 * 1.3e8), rel=1e-6)
    assert found.loss_min == pytest.approx(2.5, rel=1e-9)
    assert found.n_runs == len(sizes)


@pytest.mark.parametrize(("vertex", "side"), [(1e6, "smaller"), (1e10, "larger")])
def test_a_vertex_outside_the_grid_is_no_answer_but_a_direction(vertex, side):
    (found,) = parabolas(as_runs(_bowl(np.geomspace(1e7, 1e9, 5), vertex)))
    assert found.status == f"minimum outside the grid: try {side} models"
    assert found.n_opt is None
    assert found.loss_min is None


def test_losses_that_bend_downwards_have_no_minimum():
    (found,) = parabolas(as_runs(_bowl(np.geomspace(1e7, 1e9, 5), 1e8, curve=-0.05)))
    assert "no minimum" in found.status
    assert found.n_opt is None


def test_two_sizes_make_no_parabola_however_often_they_are_run():
    runs = _bowl([1e7, 1e7, 1e9, 1e9], 1e8)
    (found,) = parabolas(as_runs({**runs, "seed": np.array([0, 1, 0, 1.0])}))
    assert "too few sizes" in found.status
    assert found.n_opt is None


def test_without_budgets_there_are_no_parabolas():
    rng = np.random.default_rng(0)
    size, tokens = 10 ** rng.uniform(7, 9, 30), 10 ** rng.uniform(9, 11, 30)
    assert parabolas(as_runs({"n": size, "tokens": tokens, "loss": 2 + size**-0.1})) == []


def test_a_frontier_is_the_power_law_through_the_vertices():
    budgets = [1e17, 1e18, 1e19, 1e20]
    parts = [
        _bowl(n * np.array([0.3, 0.6, 1, 2, 3]), n, c, lowest=2e3 * c**-0.15) for c in budgets for n in [30 * c**0.4]
    ]
    runs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    (line,) = frontiers(parabolas(as_runs(runs)))
    assert line.n_budgets == 4
    assert line.n_exponent == pytest.approx(0.4, abs=1e-6)
    assert line.tokens_exponent == pytest.approx(0.6, abs=1e-6)
    assert line.n_at == pytest.approx(30 * line.budget**0.4, rel=1e-6)
    assert line.loss_at == pytest.approx(2e3 * line.budget**-0.15, rel=1e-6)


def test_a_parabola_without_a_minimum_is_left_out_of_the_frontier():
    good = [_bowl(n * np.array([0.3, 0.6, 1, 2, 3]), n, c) for c in (1e17, 1e18, 1e19) for n in [30 * c**0.4]]
    bad = _bowl(np.geomspace(1e7, 1e8, 5), 1e12, 1e20)
    runs = {name: np.concatenate([part[name] for part in (*good, bad)]) for name in bad}
    (line,) = frontiers(parabolas(as_runs(runs)))
    assert line.n_budgets == 3
    assert line.n_exponent == pytest.approx(0.4, abs=1e-6)


def test_one_budget_makes_no_frontier():
    assert frontiers(parabolas(as_runs(_bowl(np.geomspace(1e7, 1e9, 5), 1e8)))) == []


@pytest.fixture(scope="module")
def exact(draw):
    return lw.fit(draw(0.0))


def _best_shape(budget, r):
    """The law's own minimum over widths that need not be whole, with this budget's exact cost."""

    def counted(log_width):
        shape = Shape(float(np.exp(log_width)), r)
        return shape.n_once + shape.n_injection, shape.n_rec, shape.tokens(budget)

    def loss(log_width):
        once, rec, tokens = counted(log_width)
        return lw.LAWS["joint"].predict(JOINT, {"n_once": once, "n_rec": rec, "r": r, "tokens": tokens})[0]

    best = minimize_scalar(loss, bounds=(np.log(64), np.log(64 * 60)), method="bounded", options={"xatol": 1e-9})
    once, rec, tokens = counted(best.x)
    return once + rec, tokens, best.fun


@pytest.mark.parametrize("r", [1, 2, 4, 8])
def test_parabolas_on_the_laws_own_losses_come_close_to_the_laws_own_minimum(exact, r):
    good = [p for p in exact.parabolas if p.architecture == f"r={r}" and p.status == "ok"]
    assert len(good) >= 3
    for p in good:
        size, tokens, loss = _best_shape(p.budget, r)
        assert p.n_opt == pytest.approx(size, rel=0.06)
        assert p.tokens_opt == pytest.approx(tokens, rel=0.06)
        assert p.loss_min == pytest.approx(loss, abs=0.002)


@pytest.mark.parametrize("r", [1, 2, 4, 8])
def test_a_parabolas_bias_is_its_distance_from_the_laws_minimum(exact, r):
    checked = [p for p in exact.parabolas if p.architecture == f"r={r}" and p.bias is not None and p.n_opt]
    assert checked
    for p in checked:
        assert p.bias == pytest.approx(np.log(p.n_opt / _best_shape(p.budget, r)[0]), abs=0.01)


@pytest.mark.parametrize("r", [1, 2, 4, 8])
def test_frontier_exponents_come_close_to_those_of_the_laws_own_minimum(exact, r):
    line = next(x for x in exact.frontiers if x.architecture == f"r={r}")
    used = [p.budget for p in exact.parabolas if p.architecture == f"r={r}" and p.status in ("ok", "biased")]
    best = [_best_shape(c, r) for c in used]
    n_exponent = np.polyfit(np.log(used), np.log([b[0] for b in best]), 1)[0]
    tokens_exponent = np.polyfit(np.log(used), np.log([b[1] for b in best]), 1)[0]
    assert line.n_exponent == pytest.approx(n_exponent, abs=0.03)
    assert line.tokens_exponent == pytest.approx(tokens_exponent, abs=0.03)


@pytest.mark.parametrize(
    ("sizes", "status"),
    [((0.05, 0.1, 0.2, 0.5, 1.5), "biased"), ((0.5, 1, 2, 8, 40), "biased"), ((0.4, 0.7, 1, 1.5, 2.5), "ok")],
)
def test_a_lopsided_grid_is_flagged_as_biased(sizes, status):
    """Sizes in units of the best one, which this law and C = 6 n tokens give in closed form."""
    law, p = lw.LAWS["chinchilla"], {"A": 482.0, "alpha": 0.35, "B": 2085.0, "beta": 0.37, "E": 1.8}
    budgets = np.repeat([1e18, 1e19, 1e20], 5)
    power = 1 / (p["alpha"] + p["beta"])
    best = (p["alpha"] * p["A"] / p["beta"] / p["B"]) ** power * (budgets / 6) ** (p["beta"] * power)
    n = best * np.tile(sizes, 3)
    runs = {"n": n, "tokens": budgets / (6 * n), "budget": budgets}
    found = lw.fit({**runs, "loss": law.predict(p, runs)}, law, interval="none")
    assert [x.status for x in found.parabolas] == [status] * 3
    for x, there in zip(found.parabolas, best[::5], strict=True):
        assert x.bias == pytest.approx(np.log(x.n_opt / there), abs=0.005)
        assert (abs(x.bias) > 0.05) == (status == "biased")


def test_parabolas_come_even_where_the_law_is_not_identified(draw):
    runs = draw(0.0)
    found = lw.fit(runs.select(runs["budget"] == 1e18))
    assert "one budget" in found.status
    assert len(found.parabolas) == 4
    assert all(p.n_opt is not None and p.bias is None for p in found.parabolas if p.status == "ok")
