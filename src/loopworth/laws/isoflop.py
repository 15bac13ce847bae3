"""Iso-FLOP parabolas: the best size of each (budget, architecture), and how it grows with the budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loopworth.laws.design import architectures, budgets, law_columns
from loopworth.laws.law import Array, Law
from loopworth.ledger import Runs

# A parabola drawn through the law's own noise-free losses may miss the law's own minimum by this much in size.
_BIAS = 0.05


@dataclass(frozen=True)
class Parabola:
    """Loss against ln n at one budget, one architecture; n is unique parameters.

    `bias` is ln of the size the parabola would name on noise-free losses of the fitted law over the law's true best.
    """

    budget: float
    architecture: str
    n_runs: int
    status: str
    n_opt: float | None = None
    tokens_opt: float | None = None
    loss_min: float | None = None
    bias: float | None = None


@dataclass(frozen=True)
class Frontier:
    """n_opt = n_at (C / budget)^n_exponent over an architecture's good parabolas; tokens likewise."""

    architecture: str
    n_budgets: int
    n_exponent: float
    tokens_exponent: float
    budget: float
    n_at: float
    tokens_at: float
    loss_at: float


def parabolas(
    runs: Runs, law: Law | None = None, theta: Array | None = None, convention: str = "once"
) -> list[Parabola]:
    """One per (budget, architecture). With a fitted law, each is checked for bias too."""
    budget = budgets(runs)
    sized = "n" in runs or {"n_once", "n_rec"} <= set(runs.columns)
    if budget is None or not sized or "tokens" not in runs:
        return []
    size = law_columns(_SIZE, runs, convention)["n"]
    kind = architectures(runs)
    modelled = None
    if law is not None and theta is not None:
        columns = law_columns(law, runs, convention)
        modelled = (law, theta, columns)
    found = []
    for c in np.unique(budget):
        for architecture in dict.fromkeys(kind):
            here = (budget == c) & (kind == architecture)
            if here.any():
                found.append(_parabola(runs, float(c), str(architecture), size, np.flatnonzero(here), modelled))
    return found


def frontiers(found: list[Parabola]) -> list[Frontier]:
    """Lines through ln n_opt and ln tokens_opt against ln budget; parabolas without a minimum to trust are left out."""
    lines = []
    for architecture in dict.fromkeys(p.architecture for p in found):
        good = [p for p in found if p.architecture == architecture and p.status in ("ok", "biased")]
        if len(good) < 2:
            continue
        log_c = np.log([p.budget for p in good])
        middle = log_c.mean()
        slopes = {}
        for name in ("n_opt", "tokens_opt", "loss_min"):
            slope, at = np.polyfit(log_c - middle, np.log([getattr(p, name) for p in good]), 1)
            slopes[name] = (float(slope), float(np.exp(at)))
        lines.append(
            Frontier(
                architecture,
                len(good),
                slopes["n_opt"][0],
                slopes["tokens_opt"][0],
                float(np.exp(middle)),
                slopes["n_opt"][1],
                slopes["tokens_opt"][1],
                slopes["loss_min"][1],
            )
        )
    return lines


# Only its column matters: n as the convention counts it.
_SIZE = Law("size", "", ("n",), (), lambda theta, x: (x["n"], theta))


def _parabola(runs: Runs, budget: float, architecture: str, size: Array, at: np.ndarray, modelled) -> Parabola:
    log_n, loss = np.log(size[at]), runs["loss"][at]
    if len(np.unique(log_n)) < 3:
        return Parabola(budget, architecture, len(at), "too few sizes: a parabola takes 3")
    middle = log_n.mean()
    vertex, curved, lowest = _vertex(log_n - middle, loss)
    if not curved:
        return Parabola(budget, architecture, len(at), "no minimum: the losses bend downwards")
    n_opt = float(np.exp(vertex + middle))
    degree = min(2, len(np.unique(log_n)) - 1)
    path = np.polyfit(log_n - middle, np.log(runs["tokens"][at]), degree)
    tokens = float(np.exp(np.polyval(path, vertex)))
    if not log_n.min() <= vertex + middle <= log_n.max():
        side = "smaller" if vertex + middle < log_n.min() else "larger"
        return Parabola(budget, architecture, len(at), f"minimum outside the grid: try {side} models")
    bias = None if modelled is None else _bias(log_n - middle, at, *modelled)
    status = "ok"
    if modelled is not None and bias is None:
        status = "doubtful: the fitted law's own minimum lies outside the grid"
    elif bias is not None and abs(bias) > _BIAS:
        status = "biased"
    return Parabola(budget, architecture, len(at), status, n_opt, tokens, lowest, bias)


def _vertex(x: Array, y: Array) -> tuple[float, bool, float]:
    square, slope, level = np.polyfit(x, y, 2)
    if square <= 0:
        return 0.0, False, float("nan")
    vertex = -slope / (2 * square)
    return float(vertex), True, float(level - slope**2 / (4 * square))


def _bias(x: Array, at: np.ndarray, law: Law, theta: Array, columns: dict[str, Array]) -> float | None:
    """The parabola's vertex less the law's minimum, both on the law's losses along the budget's line of designs."""
    fine = np.linspace(x.min(), x.max(), 400)

    def loss(some: dict[str, Array]) -> Array:
        return np.exp(law.log_loss([t[None, None] for t in theta], some)[0])[0]

    vertex, curved, _ = _vertex(x, loss({k: v[at] for k, v in columns.items()}))
    line = {}
    for name, column in columns.items():
        values = column[at]
        if (values > 0).all() and name != "r":
            line[name] = np.exp(np.polyval(np.polyfit(x, np.log(values), 2), fine))
        else:
            line[name] = np.full(len(fine), values.mean())
    best = int(loss(line).argmin())
    if not curved or best in (0, len(fine) - 1):
        return None
    return float(vertex - fine[best])
