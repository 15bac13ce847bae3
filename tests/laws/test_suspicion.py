"""Tables that are well formed and wrong are spoken of; sound ones are not."""

import numpy as np
import pytest

import loopworth as lw
from loopworth.laws.suspicion import suspicions

BITS = 1 / np.log(2)


def _said(runs):
    return " | ".join(suspicions(runs))


@pytest.mark.parametrize(
    ("noise", "cell_noise", "tails"),
    [
        (0, 0, np.inf), (0.001, 0, np.inf), (0.003, 0.003, np.inf), (0.01, 0, np.inf), (0.01, 0.01, np.inf),
        (0.01, 0, 3.0), (0.01, 0.01, 3.0), (0.03, 0, np.inf),
    ],
)  # fmt: skip
def test_sound_tables_are_not_suspected(draw, noise, cell_noise, tails):
    for seed in range(6):
        assert suspicions(draw(noise, cell_noise, tails, seed=seed)) == []


@pytest.mark.parametrize("phi", [0.0, 1.0, 2.0])
def test_sound_tables_of_any_phi_are_not_suspected(draw, phi):
    assert suspicions(draw(0.003, phi=phi)) == []


HALVES = {
    "a random half": lambda runs: np.random.default_rng(1).random(len(runs)) < 0.5,
    "those with r >= 4": lambda runs: runs["r"] >= 4,
    "the low budgets": lambda runs: runs["budget"] < 3e18,
    "the r = 1 runs": lambda runs: runs["r"] == 1,
    "a random fifth": lambda runs: np.random.default_rng(2).random(len(runs)) < 0.2,
}


@pytest.mark.parametrize("noise", [0.001, 0.01])
@pytest.mark.parametrize("half", HALVES)
def test_losses_partly_in_bits_are_noticed(draw, half, noise):
    runs = draw(noise, seed=3)
    mixed = runs.with_columns(loss=runs["loss"] * np.where(HALVES[half](runs), BITS, 1.0))
    assert "bits among nats" in _said(mixed)


@pytest.mark.parametrize("half", HALVES)
def test_the_rows_named_as_bits_are_in_bits(draw, half):
    runs = draw(0.003, seed=4)
    chosen = HALVES[half](runs)
    said = _said(runs.with_columns(loss=runs["loss"] * np.where(chosen, BITS, 1.0)))
    rows = said[said.index("(rows ") + 6 : said.index(", ...)")].split(", ")
    assert [int(row) for row in rows] == (np.flatnonzero(chosen)[:3] + 1).tolist()


def test_a_suspicion_is_among_the_fits_warnings(draw, quick):
    runs = draw(0.003, seed=3)
    mixed = runs.with_columns(loss=runs["loss"] * np.where(runs["r"] >= 4, BITS, 1.0))
    held = {"B": 900.0, "beta": 0.37, "E": 1.6}  # so that the fit of nonsense is quick
    assert any("bits among nats" in w for w in quick(mixed, fix=held).warnings)
    assert quick(runs, fix=held).warnings == ()


@pytest.mark.parametrize(("unit", "factor"), [("M", 1e6), ("B", 1e9)])
def test_tokens_in_another_unit_are_noticed_and_the_unit_is_named(draw, unit, factor):
    runs = draw(0.003)
    bare = {n: runs[n] for n in ("n_once", "n_rec", "r", "tokens", "loss")}
    assert f"--token-unit {unit}" in _said(lw.Runs({**bare, "tokens": runs["tokens"] / factor}))


def test_tokens_in_another_unit_in_some_rows_are_noticed(draw):
    runs = draw(0.003)
    assert "tokens fall into two groups" in _said(
        runs.with_columns(tokens=runs["tokens"] / np.where(runs["r"] == 2, 1e9, 1))
    )


def test_parameters_in_millions_are_noticed(draw):
    runs = draw(0.003)
    sizes = {n: runs[n] / 1e6 for n in ("n_once", "n_rec", "n_injection")}
    assert "parameters in millions" in _said(runs.with_columns(**sizes))


def test_an_injection_that_is_already_in_n_once_is_noticed(draw):
    runs = draw(0.003)
    assert "already held n_injection" in _said(runs.with_columns(n_once=runs["n_once"] + runs["n_injection"]))


def test_a_budget_that_its_flops_do_not_make_is_noticed_with_its_row(draw):
    runs = draw(0.003)
    tokens = runs["tokens"].copy()
    tokens[40] *= 1.5
    assert "1.50 times the budget in row 41" in _said(runs.with_columns(tokens=tokens))


def test_recipes_in_one_fit_are_pointed_to_compare(draw):
    recipe = np.where(np.arange(116) % 2, "linear", "lanes")
    assert "loopworth compare" in _said(draw(0.003).with_columns(recipe=recipe))


def test_runs_marked_as_diverged_are_pointed_out(draw):
    status = np.where(np.arange(116) < 2, "diverged", "done")
    found = lw.fit(draw(0.003).with_columns(status=status), diagnostics=False)
    assert any("2 of 116 runs are marked diverged" in w for w in found.warnings)


@pytest.mark.full
def test_published_measurements_are_not_suspected(measured):
    for name in ("chinchilla_epoch", "gemstones_hot", "gemstones_lr_ablation_hot", "data_constrained"):
        t = measured(name)
        assert suspicions(lw.Runs({"n": t["N"], "tokens": t["D"], "loss": t["loss"]})) == [], name
    t = measured("gadre_redpajama")
    assert suspicions(lw.Runs({"n": t["N"], "tokens": t["D"], "loss": t["loss_c4_val"]})) == []
    t = measured("looped_isodepth_minima")
    columns = {"n_once": t["N_once"], "n_rec": t["N_rec"], "r": t["r"], "tokens": t["D_opt"], "loss": t["loss_opt"]}
    assert suspicions(lw.Runs(columns)) == []
