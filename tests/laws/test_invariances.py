"""What must not change a fit does not: units, order, repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopworth as lw

SHAPES = ("alpha", "beta", "E", "phi")
factors = st.floats(-3, 3).map(lambda power: 10.0**power)


@pytest.fixture(scope="module")
def runs(draw):
    return draw(0.003, seed=3)


@pytest.fixture(scope="module")
def plain(runs, quick):
    return quick(runs)


def _same(found, plain, but=()):
    assert found.status == plain.status == "ok"
    for name, value in plain.params.items():
        if name not in but:
            assert found.params[name] == pytest.approx(value, rel=1e-6), name


@settings(max_examples=12)
@given(factor=factors)
def test_the_unit_of_tokens_moves_only_b(runs, plain, quick, factor):
    found = quick(runs.with_columns(tokens=runs["tokens"] * factor))
    _same(found, plain, but=("B",))
    assert found.objective == pytest.approx(plain.objective, rel=1e-9)
    assert found.params["B"] == pytest.approx(plain.params["B"] * factor ** plain.params["beta"], rel=1e-5)


@settings(max_examples=12)
@given(factor=factors)
def test_the_unit_of_parameters_moves_only_a(runs, plain, quick, factor):
    sizes = {name: runs[name] * factor for name in ("n_once", "n_rec", "n_injection")}
    found = quick(runs.with_columns(**sizes))
    _same(found, plain, but=("A",))
    assert found.objective == pytest.approx(plain.objective, rel=1e-9)
    assert found.params["A"] == pytest.approx(plain.params["A"] * factor ** plain.params["alpha"], rel=1e-5)


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_the_order_of_runs_does_not_matter(runs, plain, quick, seed):
    found = quick(runs.select(np.random.default_rng(seed).permutation(len(runs))))
    _same(found, plain)
    assert found.objective == pytest.approx(plain.objective, rel=1e-9)


@pytest.mark.parametrize("times", [2, 3])
def test_runs_done_again_with_the_same_outcome_leave_the_optimum(runs, plain, quick, times):
    again = runs.select(np.tile(np.arange(len(runs)), times))
    found = quick(again.with_columns(seed=np.repeat(np.arange(times), len(runs))))
    _same(found, plain)
    assert found.objective == pytest.approx(times * plain.objective, rel=1e-9)


def test_cells_do_not_depend_on_the_order_of_runs_so_neither_does_the_interval(runs):
    one = lw.fit(runs, diagnostics=False)
    other = lw.fit(runs.select(np.arange(len(runs))[::-1]), diagnostics=False)
    assert one.n_cells == other.n_cells == 24
    assert other.interval["phi"] == pytest.approx(one.interval["phi"], rel=1e-5)


def test_a_rerun_of_the_same_fit_is_equal_to_the_bit(runs, quick):
    one, other = quick(runs), quick(runs)
    assert dict(one.params) == dict(other.params)
    assert one.objective == other.objective


def test_the_joint_law_at_phi_fixed_to_0_is_chinchilla_on_unique_parameters(runs, quick):
    fixed, unique = quick(runs, fix={"phi": 0}), quick(runs, "chinchilla")
    assert fixed.params["phi"] == 0
    assert fixed.objective == pytest.approx(unique.objective, rel=1e-9)
    for name in ("A", "alpha", "B", "beta", "E"):
        assert fixed.params[name] == pytest.approx(unique.params[name], rel=1e-5)


def test_the_joint_law_at_phi_fixed_to_1_is_chinchilla_on_executed_parameters(runs, quick):
    executed = runs["n_once"] + runs["n_injection"] + runs["r"] * runs["n_rec"]
    one = quick(runs, fix={"phi": 1})
    other = quick({"n": executed, "tokens": runs["tokens"], "loss": runs["loss"]}, "chinchilla")
    assert one.objective == pytest.approx(other.objective, rel=1e-9)
    assert one.params["alpha"] == pytest.approx(other.params["alpha"], rel=1e-5)
