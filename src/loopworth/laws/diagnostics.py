"""What stands beside every fit: quality, restricted and partial refits, what is left out, what is predicted blind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loopworth.laws.catalogue import LAWS
from loopworth.laws.design import (
    CONVENTIONS,
    architectures,
    budgets,
    convention_problem,
    executed_parameters,
    law_columns,
    needed_columns,
)
from loopworth.laws.engine import Optimum, Problem, solve
from loopworth.laws.identify import judge_design, judge_quickly
from loopworth.laws.intervals import leave_out
from loopworth.laws.law import Array, Law
from loopworth.ledger import Runs

# Leaving each run out costs runs^2: beyond this many it is not done.
_MANY_RUNS = 1000
# Beyond this many architectures (every run its own r, say) none is looked at alone.
MANY_KINDS = 50


@dataclass(frozen=True)
class Quality:
    """How well the predictions meet the losses, in nats. `worst_row` is the data row of the largest residual."""

    r2: float | None
    rmse: float
    worst: float
    worst_row: int


@dataclass(frozen=True)
class Residuals:
    """One architecture's residuals, predicted minus measured, in nats."""

    architecture: str
    n_runs: int
    mean: float
    rmse: float
    worst: float


@dataclass(frozen=True)
class Refit:
    """The law fitted again: on part of the runs, with something fixed, or under another convention."""

    what: str
    n_runs: int
    status: str
    params: Mapping[str, float | None]
    objective: float | None = None
    r2: float | None = None
    rmse: float | None = None


@dataclass(frozen=True)
class LeftOut:
    """The range of each parameter when one thing after another is left out, and whose absence moves it most."""

    what: str
    count: int
    low: Mapping[str, float]
    high: Mapping[str, float]
    farthest: Mapping[str, str]


@dataclass(frozen=True)
class Blind:
    """The law fitted below a budget (FLOPs) and held against the runs at and above it; errors in nats."""

    budget: float
    n_fitted: int
    n_predicted: int
    mean_error: float
    rmse: float
    rmse_fitted: float


@dataclass(frozen=True)
class Diagnostics:
    """Everything of this page, for one fit. A `str` in place of a result says why there is none."""

    residuals: tuple[Residuals, ...]
    restricted: tuple[Refit, ...]
    halves: tuple[Refit, ...] | str
    architectures: tuple[Refit, ...]
    conventions: Mapping[str, float | str | None]
    left_out: tuple[LeftOut, ...]
    blind: tuple[Blind, ...]


def problem_of(law: Law, runs: Runs, delta: float, convention: str, fixed: Mapping[str, float]) -> Problem:
    """The minimisation that fitting this law to these runs is; `fixed` has values as people write them."""
    problem = Problem(law, law_columns(law, runs, convention), np.log(runs["loss"]), delta)
    params = dict(zip(law.names, law.params, strict=True))
    return problem.fixing(**{name: params[name].fitted(value) for name, value in fixed.items()}) if fixed else problem


def quality(problem: Problem, theta: Array, runs: Runs) -> Quality:
    """R2 on plain nats (None where all losses are equal), RMSE and the worst residual."""
    loss = np.exp(problem.log_loss)
    error = np.exp(problem.log_loss + problem.residuals(theta)) - loss
    total = ((loss - loss.mean()) ** 2).sum()
    worst = int(np.abs(error).argmax())
    return Quality(
        float(1 - (error**2).sum() / total) if total > 0 else None,
        float(np.sqrt((error**2).mean())),
        float(error[worst]),
        int(runs.rows[worst]),
    )


def refit(what: str, law: Law, runs: Runs, delta: float, convention: str, fixed: Mapping[str, float]) -> Refit:
    """Fit from scratch, or say why that cannot be done."""
    problem = problem_of(law, runs, delta, convention, fixed)
    verdict = judge_design(problem, runs)
    if verdict.unknown:
        return Refit(what, len(runs), verdict.status, dict.fromkeys(law.names))
    best = solve(problem, patient=False)
    verdict += judge_quickly(problem, best)
    good = quality(problem, best.theta, runs)
    params = {n: None if n in verdict.unknown else v for n, v in natural(law, best.theta).items()}
    return Refit(what, len(runs), verdict.status, params, best.objective, good.r2, good.rmse)


def natural(law: Law, theta: Array) -> dict[str, float]:
    """Parameters as people write them."""
    return {p.name: p.value(float(t)) for p, t in zip(law.params, theta, strict=True)}


def diagnose(
    problem: Problem,
    best: Optimum,
    runs: Runs,
    without_cell: Array,
    cell_names: list[str],
    convention: str,
    fixed: Mapping[str, float],
) -> Diagnostics:
    """All of them. `without_cell` are the refits with each named cell left out, which the interval has made already."""
    law, delta = problem.law, problem.delta
    restricted = tuple(
        refit(f"phi = {value:g}", law, runs, delta, convention, {**fixed, "phi": value})
        for value in (0.0, 1.0)
        if "phi" in law.names and "phi" not in fixed
    )
    left_out = [_left_out("cells", law, best.theta, without_cell, cell_names)]
    if len(runs) <= _MANY_RUNS:
        each, _ = leave_out(problem, best.theta, np.arange(len(runs)))
        left_out.append(_left_out("runs", law, best.theta, each, [f"row {row}" for row in runs.rows]))
    return Diagnostics(
        residuals=_residuals(problem, best.theta, runs),
        restricted=restricted,
        halves=_halves(problem, runs, convention, fixed),
        architectures=_per_architecture(law, runs, delta, convention),
        conventions=_by_convention(problem, best, runs, convention, fixed),
        left_out=tuple(left_out),
        blind=_blind(problem, runs),
    )


def cell_names(runs: Runs, member: NDArray[np.int_]) -> list[str]:
    """Words for each cell, from its first run."""
    budget, kind = budgets(runs), architectures(runs)
    first = np.unique(member, return_index=True)[1]
    if budget is None:
        return [f"{kind[k]}, row {runs.rows[k]}" for k in first]
    return [f"{kind[k]} at {budget[k]:.3g} FLOPs" for k in first]


def _residuals(problem: Problem, theta: Array, runs: Runs) -> tuple[Residuals, ...]:
    loss = np.exp(problem.log_loss)
    error = loss * np.expm1(problem.residuals(theta))
    kind = architectures(runs)
    if len(set(kind)) > MANY_KINDS:
        return ()
    return tuple(
        Residuals(
            str(k),
            int((kind == k).sum()),
            float(error[kind == k].mean()),
            float(np.sqrt((error[kind == k] ** 2).mean())),
            float(error[kind == k][np.abs(error[kind == k]).argmax()]),
        )
        for k in dict.fromkeys(kind)
    )


def _halves(problem: Problem, runs: Runs, convention: str, fixed: Mapping[str, float]) -> tuple[Refit, ...] | str:
    """The law on the lower and on the upper half of the budgets; of compute where there are no budgets."""
    compute = budgets(runs)
    if compute is None:
        size = executed_parameters(runs)
        if size is None or "tokens" not in runs:
            return "no budgets in these columns"
        compute = 6 * size * runs["tokens"]
        cut = float(np.median(compute))
    else:
        known = np.unique(compute)
        cut = float(known[(len(known) - 1) // 2])
    parts = ((f"up to {cut:.3g} FLOPs", compute <= cut), (f"above {cut:.3g} FLOPs", compute > cut))
    return tuple(
        refit(what, problem.law, runs.select(part), problem.delta, convention, fixed)
        for what, part in parts
        if part.any()
    )


def _per_architecture(law: Law, runs: Runs, delta: float, convention: str) -> tuple[Refit, ...]:
    if "phi" not in law.names:
        return ()
    single, kind = LAWS["chinchilla"], architectures(runs)
    if any(name not in runs for name in needed_columns(single, runs)) or len(set(kind)) > MANY_KINDS:
        return ()
    return tuple(refit(str(k), single, runs.select(kind == k), delta, convention, {}) for k in dict.fromkeys(kind))


def _by_convention(
    problem: Problem, best: Optimum, runs: Runs, convention: str, fixed: Mapping[str, float]
) -> dict[str, float | str | None]:
    """Phi under each way of counting the injection and the head."""
    law = problem.law
    if "phi" not in law.names or "phi" in fixed:
        return {}
    found: dict[str, float | str | None] = {}
    for name in CONVENTIONS:
        if name == convention:
            found[name] = float(best.theta[law.names.index("phi")])
        elif reason := convention_problem(law, runs, name):
            found[name] = reason
        else:
            found[name] = refit(name, law, runs, problem.delta, name, fixed).params["phi"]
    return found


def _left_out(what: str, law: Law, theta: Array, refits: Array, names: list[str]) -> LeftOut:
    far = np.abs(refits - theta).argmax(0)
    ends = [natural(law, t) for t in (refits.min(0), refits.max(0))]
    return LeftOut(what, len(refits), ends[0], ends[1], {n: names[k] for n, k in zip(law.names, far, strict=True)})


def _blind(problem: Problem, runs: Runs) -> tuple[Blind, ...]:
    """Every budget but the lowest two as the cut: what the smaller runs foretell of the larger."""
    budget = budgets(runs)
    if budget is None:
        return ()
    enough = int(problem.free.sum()) + 1
    cuts = [c for c in np.unique(budget)[2:] if (budget < c).sum() > enough]
    if not cuts:
        return ()
    loss = np.exp(problem.log_loss)
    found = []
    for cut in cuts:
        seen = budget < cut
        theta = solve(problem.rows(np.flatnonzero(seen)), patient=False).theta
        error = loss * np.expm1(problem.residuals(theta))
        found.append(
            Blind(
                float(cut),
                int(seen.sum()),
                int((~seen).sum()),
                float(error[~seen].mean()),
                float(np.sqrt((error[~seen] ** 2).mean())),
                float(np.sqrt((error[seen] ** 2).mean())),
            )
        )
    return tuple(found)
