"""Options are checked before anything is computed, and a fit predicts what it was fitted to."""

import copy
import pickle

import numpy as np
import pytest

import loopworth as lw
from loopworth.laws.published import JOINT


@pytest.fixture(scope="module")
def runs(draw):
    return draw(0.003, seed=14)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delta": 0}, "delta is 0; it must be above 0"),
        ({"delta": -1e-3}, "delta"),
        ({"delta": np.nan}, "delta"),
        ({"level": 0}, "level is 0; it must lie between 0 and 1"),
        ({"level": 1}, "level"),
        ({"level": 95}, "level is 95; .* such as 0.95"),
        ({"level": np.nan}, "level"),
        ({"interval": "bayes"}, "no interval method 'bayes'. There are: jackknife, bootstrap, profile, delta, none"),
        ({"protocol": "mine"}, "no protocol 'mine'. There are: default, paper"),
        ({"fix": {"gamma": 1}}, "no parameter 'gamma' to fix. It has: A, alpha, B, beta, E, phi"),
        ({"fix": {"phi": 4}}, "phi = 4 lies outside its box, -3 to 3"),
        ({"fix": {"phi": np.nan}}, "phi = nan lies outside its box"),
        ({"fix": {"E": -1}}, "E = -1 lies outside its box, 0.04979 to 7.389"),
        ({"fix": {"E": 0}}, "E = 0 lies outside its box"),
        ({"fix": dict(JOINT)}, "Every parameter is fixed"),
        ({"interval": "bootstrap", "resamples": 1}, "resamples is 1; it must be at least 2"),
        ({"interval": "bootstrap", "resamples": 0}, "resamples is 0"),
        ({"interval": "bootstrap", "resamples": -5}, "resamples is -5"),
        ({"law": "chinchila"}, "no law 'chinchila'. There are: joint, looped, chinchilla"),
        ({"convention": "none"}, "no counting convention 'none'"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_in_words(runs, options, words):
    with pytest.raises(lw.BadInput, match=words):
        lw.fit(runs, **options)


def test_a_missing_column_is_named_for_its_law(runs):
    with pytest.raises(lw.BadInput, match="no column position"):
        lw.fit(runs, "position")


def test_inside_the_range_a_fit_predicts_silently_and_as_its_law(runs, quick):
    found = quick(runs)
    columns = {"n_once": [2e7, 3e7], "n_rec": [4e7, 5e7], "r": [2, 4], "tokens": [1e9, 2e9]}
    p = found.params
    arrays = {name: np.array(column, float) for name, column in columns.items()}
    effective = arrays["n_once"] + arrays["r"] ** p["phi"] * arrays["n_rec"]
    by_hand = p["E"] + p["A"] * effective ** -p["alpha"] + p["B"] * arrays["tokens"] ** -p["beta"]
    np.testing.assert_allclose(found.predict(columns), by_hand, rtol=1e-9)
    np.testing.assert_allclose(found.law.predict(p, columns), by_hand, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [("tokens", 47e9), ("tokens", 1e8), ("r", 16), ("n_once", 1e9)],
)
def test_outside_the_range_a_prediction_warns_of_the_column(runs, quick, name, value):
    found = quick(runs)
    columns = {"n_once": 2e7, "n_rec": 4e7, "r": 2, "tokens": 1e9, name: value}
    with pytest.warns(lw.ExtrapolationWarning, match=f"{name} leaves the fitted range") as caught:
        predicted = found.predict(columns)
    assert len(caught) == 1
    assert predicted == pytest.approx(found.law.predict(found.params, columns), rel=1e-9)
    low, high = found.reach[name]
    beyond = value / high if value > high else low / value
    assert f"by a factor {beyond:.3g}" in str(caught[0].message)


def test_the_range_is_that_of_the_fitted_runs_in_the_fits_convention(runs, quick):
    found = quick(runs, convention="loop")
    assert found.reach["n_rec"] == (
        (runs["n_rec"] + runs["n_injection"]).min(),
        (runs["n_rec"] + runs["n_injection"]).max(),
    )


def test_an_interval_of_none_is_none_and_leaves_the_rest(runs):
    found = lw.fit(runs, interval="none")
    assert dict(found.interval) == dict.fromkeys(JOINT)
    assert found.interval_method == "none"
    assert found.phi is not None
    assert found.diagnostics is not None
    assert not any("interval" in w for w in found.warnings)


def test_without_diagnostics_the_fit_and_its_interval_are_the_same(runs):
    full, bare = lw.fit(runs), lw.fit(runs, diagnostics=False)
    assert bare.diagnostics is None
    assert bare.parabolas == ()
    assert dict(bare.params) == dict(full.params)
    assert dict(bare.interval) == dict(full.interval)


def test_a_fit_records_how_it_was_made(runs):
    found = lw.fit(runs, fix={"E": 1.6}, delta=1e-2, level=0.9, interval="delta", convention="loop")
    assert found.law is lw.LAWS["joint"]
    assert (found.delta, found.level, found.interval_method, found.convention) == (1e-2, 0.9, "delta", "loop")
    assert dict(found.fixed) == {"E": 1.6}
    assert (found.n_runs, found.n_cells, found.protocol) == (116, 24, "default")
    assert found.params["E"] == 1.6


def test_the_papers_protocol_is_500_starts_and_a_bootstrap(runs):
    found = lw.fit(runs, protocol="paper", diagnostics=False)
    assert found.starts == 500
    assert found.interval_method == "bootstrap"
    same = lw.fit(runs, interval="bootstrap", resamples=200, diagnostics=False)
    assert found.interval["phi"] == pytest.approx(same.interval["phi"], abs=1e-5)


def test_a_fit_cannot_be_changed(runs, quick):
    found = quick(runs)
    with pytest.raises(AttributeError):
        found.status = "better"
    with pytest.raises(TypeError):
        found.params["phi"] = 1.0


def test_records_a_mapping_and_runs_give_the_same_fit(runs, quick):
    columns = {name: runs[name] for name in ("n_once", "n_rec", "n_injection", "r", "tokens", "loss")}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert dict(quick(columns).params) == dict(quick(records).params)


def test_chinchilla_without_a_column_n_counts_once_and_loop(runs, quick):
    plain = runs.select(runs["r"] == 1)
    one = quick(plain, "chinchilla")
    sizes = plain["n_once"] + plain["n_rec"]
    other = quick({"n": sizes, "tokens": plain["tokens"], "loss": plain["loss"]}, "chinchilla")
    assert dict(one.params) == pytest.approx(dict(other.params), rel=1e-9)


def test_a_law_for_one_architecture_warns_of_several(runs, quick):
    assert any("4 architectures" in w for w in quick(runs, "chinchilla").warnings)
    assert not any("architectures" in w for w in quick(runs.select(runs["r"] == 1), "chinchilla").warnings)


def test_the_fully_looped_law_warns_of_a_prelude(runs, quick):
    assert any("n_once is not 0" in w for w in quick(runs, "looped").warnings)


def test_a_sound_grid_warns_of_nothing_but_its_parabolas(runs):
    """On the published law's own losses some minima of the published grid lie outside its widths."""
    found = lw.fit(runs)
    assert found.status == "ok"
    assert all("iso-FLOP parabolas" in w for w in found.warnings)


def test_predictions_count_sizes_as_the_fit_did(draw):
    runs = draw(0.003)
    for convention in ("once", "loop", "dropped", "once+head"):
        found = lw.fit(runs, convention=convention, interval="none", diagnostics=False)
        error = found.predict(runs) - runs["loss"]
        assert np.sqrt((error**2).mean()) == pytest.approx(found.quality.rmse, rel=1e-9)
    single = lw.fit(runs.select(runs["r"] == 4), "chinchilla", interval="none", diagnostics=False)
    assert len(single.predict(runs.select(runs["r"] == 4))) == 29


def test_a_fit_without_phi_predicts_at_its_own_r_only(draw):
    runs = draw(0.003)
    found = lw.fit(runs.select(runs["r"] == 2))
    assert found.phi is None
    size = {"n_once": 3e7, "n_rec": 3e7, "tokens": 2e9}
    assert 2 < found.predict({**size, "r": 2})[0] < 4
    with pytest.raises(lw.BadInput, match="without phi"):
        found.predict({**size, "r": 4})
    with pytest.raises(lw.BadInput, match="takes tokens too"):
        found.predict({"n_once": 3e7, "n_rec": 3e7, "r": 2})


@pytest.mark.parametrize("law", ["joint", "kaplan-n"])
def test_a_fit_travels_between_processes(draw, law):
    runs = draw(0.003)
    found = lw.fit(runs.with_columns(n=runs["n_once"] + runs["n_rec"]), law, interval="none", diagnostics=False)
    again = pickle.loads(pickle.dumps(found))
    assert again.params == found.params
    assert copy.deepcopy(found).params == found.params
    with pytest.raises(TypeError, match="do not change"):
        found.params["phi"] = 1.0


def test_refits_that_did_not_converge_make_no_interval(draw):
    """r of 1 and 1.001 hardly tells phi: an interval of refits that stand still would be far too narrow."""
    runs = draw(0.003)
    near = runs.with_columns(r=np.where(runs["r"] > 1, 1.001, 1.0))
    found = lw.fit(near, diagnostics=False)
    widths = found.interval["alpha"]
    assert found.phi is None
    assert widths is None or widths[1] - widths[0] > 0.02


def test_tables_of_tokens_and_budgets_alone_fit_laws_of_one_column():
    tokens = np.geomspace(1e9, 2e10, 20)
    runs = {"tokens": tokens, "budget": tokens * 1e9, "loss": 3.0 * tokens**-0.02}
    assert lw.fit(runs, "kaplan-d").status == "ok"
    assert lw.fit(runs, "kaplan-c").status == "ok"


@pytest.mark.parametrize("delta", [1e-6, 1e-12, 1e-300])
def test_any_threshold_finds_the_least_absolute_deviations(draw, quick, delta):
    runs = draw(0.003)
    wanted = quick(runs, delta=1e-8)
    assert quick(runs, delta=delta).phi == pytest.approx(wanted.phi, abs=2e-3)


def test_a_negative_seed_is_refused(draw):
    with pytest.raises(lw.BadInput, match="seed"):
        lw.fit(draw(0.003), interval="bootstrap", seed=-1)


def test_sides_of_an_interval_beyond_the_box_are_open(draw):
    runs = draw(0.01)
    for bounds, param in zip(lw.fit(runs, fix={"phi": 1.0}).interval.values(), lw.LAWS["joint"].params, strict=True):
        if bounds is not None:
            low, high = bounds
            assert low is None or low > param.value(param.low)
            assert high is None or high < param.value(param.high)


def test_computed_budgets_must_be_shared_by_several_sizes_of_an_architecture(grid):
    """Without budget and FLOPs per token, 6 x size x tokens of the paper's grid is equal across r by chance only."""
    bare = grid.select(np.arange(116))
    columns = {n: c for n, c in bare.columns.items() if n not in ("budget", "flops_per_token")}
    runs = lw.simulate(lw.Runs(columns), lw.LAWS["joint"], JOINT, 0.003)
    found = lw.fit(runs)
    assert found.frontiers == ()
    assert any("no budgets to group them by" in w for w in found.warnings)
    whole = lw.simulate(
        lw.Runs({n: c for n, c in grid.columns.items() if n != "budget"}), lw.LAWS["joint"], JOINT, 0.003
    )
    assert any("no column budget" in note for note in lw.fit(whole).notes)
