"""Published constants come back from the published measurements."""

import numpy as np
import pytest

import loopworth as lw
from loopworth.laws.isoflop import frontiers, parabolas
from loopworth.laws.published import JOINT
from loopworth.ledger import as_runs
from loopworth.shape import Shape


@pytest.mark.parametrize(
    ("width", "r", "tokens", "loss"), [(2176, 1, 47e9, 2.114), (2176, 4, 47e9, 2.162), (640, 4, 955e6, 2.811)]
)
def test_the_published_joint_law_predicts_what_its_authors_tables_say(width, r, tokens, loss):
    """To their last digit with the injection in the loop; 0.001 to 0.002 nats above in the default convention."""
    shape = Shape(width, r)
    sizes = {"n_once": shape.n_once, "n_rec": shape.n_rec + shape.n_injection}
    assert lw.LAWS["joint"].predict(JOINT, {**sizes, "r": r, "tokens": tokens})[0] == pytest.approx(loss, abs=5e-4)


def _epoch(measured, dropped):
    t = measured("chinchilla_epoch")
    keep = t["loss"] < (np.sort(t["loss"])[-dropped] if dropped else np.inf)
    assert keep.sum() == (240 if dropped else 245)
    return {"n": t["N"][keep], "tokens": t["D"][keep], "loss": t["loss"][keep]}


@pytest.mark.full
@pytest.mark.parametrize(
    ("dropped", "delta", "constants"),
    [
        (5, 1e-3, {"E": "1.8172", "A": "477.83", "B": "2143.42", "alpha": ".3473", "beta": ".3672"}),
        (5, 1e-6, {"E": "1.8168", "A": "481.93", "B": "2085.00", "alpha": ".3478", "beta": ".3658"}),
        (0, 1e-3, {"E": "1.8913", "A": "495.7", "B": "12846", "alpha": ".3493", "beta": ".4530"}),
    ],
    ids=["replication", "least absolute deviations", "with the five outliers"],
)
def test_chinchillas_replication_comes_back_to_its_digits(measured, quick, dropped, delta, constants):
    found = quick(_epoch(measured, dropped), "chinchilla", delta=delta)
    assert found.status == "ok"
    _to_their_digits(found.params, constants)


def _to_their_digits(found, printed):
    for name, digits in printed.items():
        places = len(digits.partition(".")[2])
        assert found[name] == pytest.approx(float(digits), abs=0.6 * 10**-places), name


@pytest.mark.full
def test_chinchillas_replication_has_an_objective_no_higher_than_published(measured, quick):
    found = quick(_epoch(measured, 5), "chinchilla")
    assert found.objective <= 1.0182740e-3 * (1 + 1e-7)
    assert found.objective == pytest.approx(1.0182740e-3, rel=1e-6)
    published = {"E": 1.817236, "A": 477.8417, "B": 2143.8638, "alpha": 0.3473127, "beta": 0.3671826}
    assert dict(found.params) == pytest.approx(published, rel=5e-4)


GEMSTONES = {
    "gemstones_hot": (
        {"A": 5.3613398, "B": 15.415995, "E": 0.76226369}, 0.29286869, 0.71287221, 1.9816129e-3, 2.075052e-4,
    ),
    "gemstones_lr_ablation_hot": (
        {"A": 5.8381510, "B": 14.307317, "E": 0.79112466}, 0.32546672, 0.65126437, 1.9728624e-3, 2.058421e-4,
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", GEMSTONES)
def test_gemstones_come_back_and_their_unfinished_fit_is_finished(measured, quick, name):
    logs, alpha, beta, objective, finished = GEMSTONES[name]
    t = measured(name)
    runs = {"n": t["N"], "tokens": t["D"], "loss": t["loss"], "seed": np.arange(len(t["N"]))}
    found = quick(runs, "chinchilla")
    assert found.objective == pytest.approx(objective, rel=1e-6)
    assert found.params["alpha"] == pytest.approx(alpha, rel=2e-4)
    assert found.params["beta"] == pytest.approx(beta, rel=2e-4)
    for term, published in logs.items():
        assert np.log(found.params[term]) == pytest.approx(published, rel=2e-4)
    assert quick(runs, "chinchilla", delta=1e-4).objective == pytest.approx(finished, rel=1e-6)


@pytest.mark.full
def test_llama_3s_losses_in_the_chinchilla_form(measured, quick):
    t = measured("llama3_isoflop")
    keep = t["condition"] == "exp_loss"
    runs = {"n": t["N"][keep], "tokens": t["D"][keep], "loss": t["loss"][keep]}
    _to_their_digits(quick(runs, "chinchilla").params, {"E": "1.8275", "alpha": ".3267", "beta": ".3654"})


@pytest.mark.full
@pytest.mark.parametrize(("condition", "exponent"), [("raw_loss", 0.5368), ("exp_loss", 0.5369)])
def test_llama_3s_parabolas_give_its_tokens_at_3_8e25(measured, condition, exponent):
    t = measured("llama3_isoflop")
    keep = t["condition"] == condition
    runs = as_runs({"n": t["N"][keep], "tokens": t["D"][keep], "budget": t["C"][keep], "loss": t["loss"][keep]})
    found = parabolas(runs)
    assert {p.status for p in found} == {"ok"}
    (line,) = frontiers(found)
    assert line.tokens_exponent == pytest.approx(exponent, abs=1e-4)
    assert line.tokens_exponent + line.n_exponent == pytest.approx(1, abs=0.002)
    if condition == "raw_loss":
        tokens = line.tokens_at * (3.8e25 / line.budget) ** line.tokens_exponent
        assert tokens == pytest.approx(16.10e12, rel=1e-3)


@pytest.mark.full
def test_single_epoch_runs_of_the_data_constrained_study(measured, quick):
    t = measured("data_constrained")
    once = (t["D"] <= t["U"]) & (t["split"] == "fit")
    assert once.sum() == 27
    runs = {"n": t["N"][once], "tokens": t["D"][once], "loss": t["loss"][once], "seed": np.arange(27)}
    found = quick(runs, "chinchilla").params
    _to_their_digits(found, {"E": "2.0391", "A": "658", "B": "15738", "alpha": ".3560", "beta": ".4471"})


@pytest.fixture
def minima(measured):
    t = measured("looped_isodepth_minima")
    return {"n_once": t["N_once"], "n_rec": t["N_rec"], "r": t["r"], "tokens": t["D_opt"], "loss": t["loss_opt"]}


@pytest.mark.full
def test_the_published_law_predicts_the_published_minima(minima):
    residual = np.log(lw.LAWS["joint"].predict(JOINT, minima)) - np.log(minima["loss"])
    assert residual.mean() == pytest.approx(0.0023, abs=1e-4)
    assert residual.std() == pytest.approx(0.0030, abs=1e-4)
    assert np.abs(residual).max() == pytest.approx(0.0085, abs=1e-4)


@pytest.mark.full
def test_phi_of_the_published_minima(minima):
    found = lw.fit(minima, interval="bootstrap", diagnostics=False)
    assert found.phi == pytest.approx(0.469, abs=6e-4)
    assert found.interval["phi"] == pytest.approx((0.35, 0.51), abs=0.05)


@pytest.mark.full
def test_the_published_minima_deny_that_passes_are_worth_nothing_or_everything(minima, quick):
    free = quick(minima)
    for phi in (0.0, 1.0):
        assert quick(minima, fix={"phi": phi}).quality.rmse > 1.5 * free.quality.rmse


def _one_exponent(theta, x):
    a, b, eta, e = theta
    log_n, log_d = np.log(x["n"]), np.log(x["tokens"])
    total, (size, tokens, floor) = lw.log_sum_exp(a - eta * log_n, b - eta * log_d, e)
    return total, [size, tokens, -size * log_n - tokens * log_d, floor]


GADRE = lw.Law(
    "gadre",
    "L = E + a n^-eta + b tokens^-eta",
    ("n", "tokens"),
    (
        lw.Param("a", -5, 35, log=True, amplitude=True),
        lw.Param("b", -5, 35, log=True, amplitude=True),
        lw.Param("eta", 0, 2.5),
        lw.Param("E", -3, 2, log=True, amplitude=True),
    ),
    _one_exponent,
)


@pytest.mark.full
def test_a_law_of_ones_own_foretells_gadres_large_runs_from_five_small_ones(measured, quick):
    t = measured("gadre_redpajama")
    small = np.char.startswith(t["model"], "d")
    chosen = (small & (t["M"] == 20)) | (np.char.startswith(t["model"], "d96") & (t["M"] == 320))
    assert chosen.sum() == 5
    runs = {"n": t["N"][chosen], "tokens": t["D"][chosen], "loss": t["loss_c4_val"][chosen]}
    found = quick(runs, GADRE, delta=np.inf)
    # Published by least squares on nats: .1364 and 1.837; here on ln loss.
    assert found.params["eta"] / 2 == pytest.approx(0.1364, abs=0.003)
    assert found.params["E"] == pytest.approx(1.837, abs=0.03)
    with pytest.warns(lw.ExtrapolationWarning):
        predicted = found.predict({"n": t["N"][~small], "tokens": t["D"][~small]})
    assert (np.abs(predicted / t["loss_c4_val"][~small] - 1) < 0.012).all()
