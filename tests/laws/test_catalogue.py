"""Every law says what its formula says, and its gradient is the derivative of that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import loopworth as lw

# Natural parameters and columns, as people meet them; * is drawn evenly in the logarithm.
SANE = {
    "A": (1, 1e5), "alpha": (0.05, 1.0), "B": (1, 1e6), "beta": (0.05, 1.0), "E": (0.1, 4), "phi": (-1.0, 1.5),
    "N_c": (1e6, 1e20), "alpha_N": (0.02, 0.5), "D_c": (1e6, 1e20), "alpha_D": (0.02, 0.5), "C_c": (1e10, 1e30),
    "alpha_C": (0.02, 0.5), "c": (0.5, 6), "k": (0.5, 20), "p": (0.1, 2), "L_inf": (0.5, 6), "Z": (0.01, 20),
    "z": (0.1, 10),
}  # fmt: skip
COLUMNS = {
    "n": (1e5, 1e12), "n_once": (1e5, 1e11), "n_rec": (1e5, 1e11), "r": (1, 64), "tokens": (1e6, 1e13),
    "budget": (1e15, 1e26), "position": (1, 4096), "passes": (1, 64),
}  # fmt: skip

PLAIN = {
    "joint": lambda A, alpha, B, beta, E, phi, n_once, n_rec, r, tokens: (
        E + A * (n_once + r**phi * n_rec) ** -alpha + B * tokens**-beta
    ),
    "looped": lambda A, alpha, B, beta, E, phi, n, r, tokens: E + A * (r**phi * n) ** -alpha + B * tokens**-beta,
    "chinchilla": lambda A, alpha, B, beta, E, n, tokens: E + A * n**-alpha + B * tokens**-beta,
    "parcae": lambda A, alpha, B, beta, E, n, r, tokens: E + A * (r * n) ** -alpha + B * tokens**-beta,
    "kaplan-n": lambda N_c, alpha_N, n: (N_c / n) ** alpha_N,
    "kaplan-d": lambda D_c, alpha_D, tokens: (D_c / tokens) ** alpha_D,
    "kaplan-c": lambda C_c, alpha_C, budget: (C_c / budget) ** alpha_C,
    "kaplan-nd": lambda N_c, alpha_N, D_c, alpha_D, n, tokens: (
        ((N_c / n) ** (alpha_N / alpha_D) + D_c / tokens) ** alpha_D
    ),
    "position": lambda c, k, p, position: c + k * position**-p,
    "depth": lambda L_inf, Z, z, passes, r: L_inf + Z * np.exp(-z * passes / r),
}

every_law = pytest.mark.parametrize("law", lw.LAWS.values(), ids=lw.LAWS)


def _between(fraction, low, high, even_in_log):
    return low * (high / low) ** fraction if even_in_log else low + fraction * (high - low)


def _drawn(law, data):
    unit = st.floats(0, 1)
    fractions = data.draw(arrays(float, len(law.params), elements=unit))
    params = {
        p.name: float(_between(f, *SANE[p.name], even_in_log=p.log)) for p, f in zip(law.params, fractions, strict=True)
    }
    runs = data.draw(st.integers(1, 5))
    columns = {
        c: _between(data.draw(arrays(float, runs, elements=unit)), *COLUMNS[c], even_in_log=True) for c in law.columns
    }
    if "n_once" in columns and data.draw(st.booleans()):
        columns["n_once"][0] = 0.0
    return params, columns


def test_every_law_of_the_catalogue_is_restated_here():
    assert set(PLAIN) == set(lw.LAWS)


@every_law
@given(data=st.data())
def test_a_law_predicts_its_formula(law, data):
    params, columns = _drawn(law, data)
    np.testing.assert_allclose(law.predict(params, columns), PLAIN[law.name](**params, **columns), rtol=1e-10)


@every_law
@given(data=st.data())
def test_the_gradient_is_the_derivative_of_ln_loss(law, data):
    params, columns = _drawn(law, data)
    theta = [np.array([[p.fitted(params[p.name])]]) for p in law.params]
    shape = (1, len(next(iter(columns.values()))))
    slopes = law.log_loss(theta, columns)[1]
    assert len(slopes) == len(theta)
    for k, slope in enumerate(slopes):
        step = 1e-3 * min(1.0, abs(theta[k].item()) + 0.01)

        def moved(times, k=k, step=step):
            return law.log_loss([t + times * step * (j == k) for j, t in enumerate(theta)], columns)[0]

        measured = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * step)
        np.testing.assert_allclose(np.broadcast_to(slope, shape), measured, rtol=1e-5, atol=1e-8)


@every_law
def test_a_batch_of_parameters_predicts_what_each_does_alone(law):
    rng = np.random.default_rng(0)
    columns = {c: _between(rng.random(6), *COLUMNS[c], even_in_log=True) for c in law.columns}
    theta = rng.uniform(law.low, law.high, (4, len(law.params)))
    if law.name == "kaplan-nd":
        theta[:, 3] = 0.1 + rng.random(4)
    together = law.log_loss([t[:, None] for t in theta.T], columns)[0]
    alone = [law.log_loss([t[None, None] for t in row], columns)[0][0] for row in theta]
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("law", ["joint", "looped", "parcae"])
def test_at_r_1_neither_phi_nor_the_law_matters(law):
    rng = np.random.default_rng(1)
    columns = {c: _between(rng.random(6), *COLUMNS[c], even_in_log=True) for c in ("n_once", "n_rec", "tokens")}
    columns |= {"n": columns["n_once"] + columns["n_rec"], "r": np.ones(6)}
    params = {"A": 28.0, "alpha": 0.2, "B": 900.0, "beta": 0.37, "E": 1.6}
    plain = lw.LAWS["chinchilla"].predict(params, columns)
    for phi in (-2.0, 0.0, 0.46, 3.0):
        np.testing.assert_allclose(lw.LAWS[law].predict({**params, "phi": phi}, columns), plain, rtol=1e-12)


def test_kaplans_published_law_gives_his_loss_for_gpt_2_size():
    loss = lw.LAWS["kaplan-n"].predict({"N_c": 8.8e13, "alpha_N": 0.076}, {"n": [1.5e9]})
    assert loss == pytest.approx(2.304, abs=0.001)


def test_log_sum_exp_of_far_apart_terms_neither_overflows_nor_loses_the_larger():
    total, shares = lw.log_sum_exp(np.array([1000.0, -1000.0]), np.array([-1000.0, -1000.0]))
    np.testing.assert_allclose(total, [1000.0, -1000.0 + np.log(2)])
    np.testing.assert_allclose(shares, [[1.0, 0.5], [0.0, 0.5]], atol=1e-300)


STEPS = lw.Law(
    "steps",
    "L = E + S steps^-s",
    ("steps",),
    (
        lw.Param("E", -3, 2, log=True, amplitude=True),
        lw.Param("S", -10, 30, log=True, amplitude=True),
        lw.Param("s", 0, 3),
    ),
    lambda theta, x: _floor_and_decay(*theta, np.log(x["steps"])),
)


def _floor_and_decay(floor, scale, exponent, log_steps):
    log_loss, (rest, decay) = lw.log_sum_exp(floor, scale - exponent * log_steps)
    return log_loss, [rest, decay, -decay * log_steps]


def test_a_law_of_ones_own_in_a_dozen_lines_gives_its_truth_back(quick):
    truth = {"E": 1.9, "S": 40.0, "s": 0.45}
    steps = np.geomspace(100, 1e6, 15)
    found = quick({"steps": steps, "loss": STEPS.predict(truth, {"steps": steps})}, STEPS)
    assert found.status == "ok"
    assert dict(found.params) == pytest.approx(truth, rel=1e-6)


def test_a_law_of_ones_own_gets_an_interval_too():
    truth = {"E": 1.9, "S": 40.0, "s": 0.45}
    steps = np.geomspace(100, 1e6, 15)
    noise = 1 + 0.002 * np.random.default_rng(0).standard_normal(15)
    found = lw.fit({"steps": steps, "loss": STEPS.predict(truth, {"steps": steps}) * noise}, STEPS)
    assert found.n_cells == 15
    low, high = found.interval["s"]
    assert low < 0.45 < high
