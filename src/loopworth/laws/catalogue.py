"""The laws that come with loopworth. SCIENCE numbers: sections 1, 5, 7 and 8 of the project's reference."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

import numpy as np

from loopworth.errors import BadInput
from loopworth.laws.law import Array, Columns, Law, Param, Prediction, Theta, log_sum_exp

# The published box for the sum-of-powers laws: a, b in [-5, 35], exponents in [0, 2.5], e in [-3, 2], phi in [-3, 3].
A = Param("A", -5, 35, log=True, amplitude=True)
ALPHA = Param("alpha", 0, 2.5)
B = Param("B", -5, 35, log=True, amplitude=True)
BETA = Param("beta", 0, 2.5)
E = Param("E", -3, 2, log=True, amplitude=True)
PHI = Param("phi", -3, 3)


def _size_and_tokens(theta: Theta, log_size: Array, log_tokens: Array) -> tuple[Array, list[Array]]:
    """E + A size^-alpha + B tokens^-beta: every law of that form differs only in what it calls size."""
    a, alpha, b, beta, e = theta
    log_loss, (size, tokens, floor) = log_sum_exp(a - alpha * log_size, b - beta * log_tokens, e)
    return log_loss, [size, -size * log_size, tokens, -tokens * log_tokens, floor]


def _joint(theta: Theta, x: Columns) -> Prediction:
    *rest, phi = theta
    log_r = np.log(x["r"])
    looped = np.exp(phi * log_r) * x["n_rec"]
    effective = x["n_once"] + looped
    log_loss, gradient = _size_and_tokens(rest, np.log(effective), np.log(x["tokens"]))
    # d ln N_eff / d phi is the loop's share of N_eff times ln r.
    return log_loss, [*gradient, -gradient[0] * rest[1] * (looped / effective * log_r)]


def _looped(theta: Theta, x: Columns) -> Prediction:
    *rest, phi = theta
    log_r = np.log(x["r"])
    log_loss, gradient = _size_and_tokens(rest, phi * log_r + np.log(x["n"]), np.log(x["tokens"]))
    return log_loss, [*gradient, -gradient[0] * rest[1] * log_r]


def _chinchilla(theta: Theta, x: Columns) -> Prediction:
    return _size_and_tokens(theta, np.log(x["n"]), np.log(x["tokens"]))


def _parcae(theta: Theta, x: Columns) -> Prediction:
    return _size_and_tokens(theta, np.log(x["r"] * x["n"]), np.log(x["tokens"]))


def _power_law(theta: Theta, x: Columns, column: str) -> Prediction:
    scale, exponent = theta
    distance = scale - np.log(x[column])
    return exponent * distance, [exponent, distance]


def _kaplan_nd(theta: Theta, x: Columns) -> Prediction:
    n_c, alpha_n, d_c, alpha_d = theta
    log_n, log_d = n_c - np.log(x["n"]), d_c - np.log(x["tokens"])
    total, (size, tokens) = log_sum_exp(alpha_n / alpha_d * log_n, log_d)
    return alpha_d * total, [
        size * alpha_n,
        size * log_n,
        tokens * alpha_d,
        total - size * (alpha_n / alpha_d) * log_n,
    ]


def _position(theta: Theta, x: Columns) -> Prediction:
    c, k, p = theta
    log_t = np.log(x["position"])
    log_loss, (floor, decay) = log_sum_exp(c, k - p * log_t)
    return log_loss, [floor, decay, -decay * log_t]


def _depth(theta: Theta, x: Columns) -> Prediction:
    floor, scale, z = theta
    depth = x["passes"] / x["r"]
    log_loss, (at_rest, decay) = log_sum_exp(floor, scale - z * depth)
    return log_loss, [at_rest, decay, -decay * depth]


_ALL = (
    Law(
        "joint",
        "L = E + A (n_once + r^phi n_rec)^-alpha + B tokens^-beta",
        ("n_once", "n_rec", "r", "tokens"),
        (A, ALPHA, B, BETA, E, PHI),
        _joint,
        "what a recurrence is worth; --fix phi=0 counts unique parameters, --fix phi=1 executed ones",
    ),
    Law(
        "looped",
        "L = E + A (r^phi n)^-alpha + B tokens^-beta",
        ("n", "r", "tokens"),
        (A, ALPHA, B, BETA, E, PHI),
        _looped,
        "the joint law of a fully looped model: no prelude, no coda",
    ),
    Law(
        "chinchilla",
        "L = E + A n^-alpha + B tokens^-beta",
        ("n", "tokens"),
        (A, ALPHA, B, BETA, E),
        _chinchilla,
        "one architecture; without a column n it is n_once + n_rec",
    ),
    Law(
        "parcae",
        "L = E + A (r n)^-alpha + B tokens^-beta",
        ("n", "r", "tokens"),
        (A, ALPHA, B, BETA, E),
        _parcae,
        "every pass as good as fresh parameters, prelude and coda included",
    ),
    Law(
        "kaplan-n",
        "L = (N_c / n)^alpha_N",
        ("n",),
        (Param("N_c", -5, 150, log=True), Param("alpha_N", 0, 2.5)),
        partial(_power_law, column="n"),
        "size alone, everything else in abundance",
    ),
    Law(
        "kaplan-d",
        "L = (D_c / tokens)^alpha_D",
        ("tokens",),
        (Param("D_c", -5, 150, log=True), Param("alpha_D", 0, 2.5)),
        partial(_power_law, column="tokens"),
        "data alone",
    ),
    Law(
        "kaplan-c",
        "L = (C_c / budget)^alpha_C",
        ("budget",),
        (Param("C_c", -5, 200, log=True), Param("alpha_C", 0, 2.5)),
        partial(_power_law, column="budget"),
        "compute alone; C_c in FLOPs like the column (1 PF-day is 8.64e19)",
    ),
    Law(
        "kaplan-nd",
        "L = [(N_c / n)^(alpha_N / alpha_D) + D_c / tokens]^alpha_D",
        ("n", "tokens"),
        (
            Param("N_c", -5, 150, log=True),
            Param("alpha_N", 0, 2.5),
            Param("D_c", -5, 150, log=True),
            Param("alpha_D", 1e-3, 2.5),
        ),
        _kaplan_nd,
        "size and data without a floor",
    ),
    Law(
        "position",
        "L = c + k position^-p",
        ("position",),
        (Param("c", -7, 5, log=True, amplitude=True), Param("k", -10, 10, log=True, amplitude=True), Param("p", 0, 5)),
        _position,
        "loss by place in the context, counted from 1",
    ),
    Law(
        "depth",
        "L = L_inf + Z exp(-z passes / r)",
        ("passes", "r"),
        (
            Param("L_inf", -7, 5, log=True, amplitude=True),
            Param("Z", -15, 15, log=True, amplitude=True),
            Param("z", 0, 20),
        ),
        _depth,
        "a trained looped model (r passes) run at another number of passes",
    ),
)

LAWS = MappingProxyType({law.name: law for law in _ALL})


def get_law(law: str | Law) -> Law:
    """The law of that name, or the law itself."""
    if isinstance(law, Law):
        return law
    if law not in LAWS:
        raise BadInput(f"There is no law {law!r}. There are: {', '.join(LAWS)}.")
    return LAWS[law]
