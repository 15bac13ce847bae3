"""From a table of runs to a law's parameters, with intervals and everything that should be known before using them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loopworth.errors import BadInput
from loopworth.laws import intervals
from loopworth.laws.catalogue import get_law
from loopworth.laws.design import (
    architectures,
    budgets,
    cells,
    convention_problem,
    derived_budget,
    gathered,
    law_columns,
    needed_columns,
)
from loopworth.laws.diagnostics import (
    MANY_KINDS,
    Diagnostics,
    Quality,
    cell_names,
    diagnose,
    natural,
    problem_of,
    quality,
)
from loopworth.laws.engine import Optimum, Problem, solve
from loopworth.laws.identify import Verdict, judge_design, judge_optimum
from loopworth.laws.isoflop import Frontier, Parabola, frontiers, parabolas
from loopworth.laws.law import Array, Frozen, Law
from loopworth.laws.suspicion import suspicions
from loopworth.ledger import Runs, as_runs, check_runs

OPTIONAL = (
    "budget", "architecture", "recipe", "n_once", "n_rec", "r", "tokens", "n_injection", "n_head", "flops_per_token",
    "seed", "group",
)  # fmt: skip
PROTOCOLS = ("default", "paper")
_COUNTED = ("n_once", "n_rec", "n_injection", "n_head", "n")

# Beyond this many runs everything but the optimum and its residuals is computed on a sample of them.
_SAMPLE = 20_000
# Cells beyond this many are left out, and resampled, by random groups of them.
_CELLS = 500
_FEW_CELLS = 8
# More refits than this share without convergence, and an interval made of them says too little.
_LOST = 0.05


class ExtrapolationWarning(UserWarning):
    """A prediction lies outside the runs that the law was fitted to."""


@dataclass(frozen=True)
class Fit:
    """A fitted law. What the runs do not identify is None and `status` says why; nothing else is ever None for that.

    `params` and `interval` are as people write them (A, not ln A). `objective` is the sum of Huber terms.
    `starts_agreeing` of `starts` descents ended on it.
    """

    law: Law
    status: str
    params: Mapping[str, float | None]
    interval: Mapping[str, tuple[float | None, float | None] | None]
    interval_method: str
    level: float
    objective: float | None
    starts: int
    starts_agreeing: int
    quality: Quality | None
    n_runs: int
    n_cells: int
    convention: str
    delta: float
    protocol: str
    fixed: Mapping[str, float]
    diagnostics: Diagnostics | None
    parabolas: tuple[Parabola, ...]
    frontiers: tuple[Frontier, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    theta: Array | None = field(repr=False, default=None)
    reach: Mapping[str, tuple[float, float]] = field(repr=False, default_factory=dict)

    @property
    def phi(self) -> float | None:
        """What one recurrence is worth; None where the law has none or the runs do not identify it."""
        return self.params.get("phi")

    def predict(self, columns: Mapping[str, object] | Runs) -> Array:
        """Loss in nats per token of runs, their sizes counted by the fit's convention; single numbers are repeated.

        Warns (ExtrapolationWarning) where a column leaves the range of the fitted runs.
        """
        if self.theta is None:
            raise BadInput(f"This fit has no parameters to predict with: {self.status}.")
        x = self._counted(columns)
        unknown = [name for name, value in self.params.items() if value is None]
        if unknown and not self._of_one_r(unknown, x):
            raise BadInput(f"This fit cannot predict without {', '.join(unknown)}: {self.status}.")
        for name, (low, high) in self.reach.items():
            beyond = max(
                float(x[name].max(initial=low)) / high if high else 1.0,
                low / max(float(x[name].min()), 1e-300) if low else 1.0,
            )
            if beyond > 1.05:
                message = f"{name} leaves the fitted range [{low:.3g}, {high:.3g}] by a factor {beyond:.3g}"
                warnings.warn(message, ExtrapolationWarning, stacklevel=2)
        theta = [t[None, None] for t in self.theta]
        return np.exp(self.law.log_loss(theta, x)[0])[0] * np.ones(len(next(iter(x.values()))))

    def _counted(self, columns: Mapping[str, object] | Runs) -> Mapping[str, Array]:
        given = columns.columns if isinstance(columns, Runs) else columns
        numbers = {name: v for name, v in given.items() if name in _COUNTED or name in self.law.columns}
        shaped = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, dtype=float)) for v in numbers.values()))
        table = Runs(dict(zip(numbers, shaped, strict=True)), "columns to predict for")
        if absent := [name for name in needed_columns(self.law, table)[:-1] if name not in table]:
            raise BadInput(f"predicting with law {self.law.name} takes {', '.join(absent)} too.")
        if self.convention == "once+head" and "n_head" not in table and "n_once" in table:
            raise BadInput("this fit counts the head (convention once+head): give n_head too.")
        return law_columns(self.law, table, self.convention)

    def _of_one_r(self, unknown: list[str], x: Mapping[str, Array]) -> bool:
        """Fitted to one r alone, the law still predicts at that r."""
        return unknown == ["phi"] and np.ptp(self.reach["r"]) == 0 and bool((x["r"] == self.reach["r"][0]).all())


def fit(
    runs: object,
    law: str | Law = "joint",
    *,
    fix: Mapping[str, float] | None = None,
    delta: float = 1e-3,
    interval: str | None = None,
    resamples: int | None = None,
    level: float = 0.95,
    protocol: str = "default",
    convention: str = "once",
    diagnostics: bool = True,
    seed: int = 0,
) -> Fit:
    """Fit a law to runs: a path, a mapping of columns, a list of dicts, a data frame or a `Runs`.

    Huber loss on log residuals (`delta`; `inf` for least squares), the global optimum in the law's box, and for the
    interval a jackknife over cells (or `bootstrap`, `profile`, `delta`, `none`). `fix` holds parameters at values.
    `protocol="paper"` does as published: 500 uniform starts, and a bootstrap of 200 resamples unless told otherwise.
    Malformed runs raise `BadInput`; runs that do not identify the law give a `Fit` whose `status` says so.
    """
    law = get_law(law)
    fixed = dict(fix or {})
    method = interval or ("bootstrap" if protocol == "paper" else "jackknife")
    if resamples is None:
        resamples = intervals.PAPER_RESAMPLES if protocol == "paper" else 1000
    _check_options(law, fixed, delta, method, resamples, level, protocol, seed)
    table = as_runs(runs)
    table = check_runs(table, needed_columns(law, table), OPTIONAL)
    if reason := convention_problem(law, table, convention):
        raise BadInput(f"Convention {convention!r} is {reason}.")
    if "budget" not in table and budgets(table) is not None:
        table = table.noting(f"no column budget: runs of equal {derived_budget(table)} are taken to share one")
    found = suspicions(table) + _remarks(law, table)
    problem = problem_of(law, table, delta, convention, fixed)

    member, cell_words = cells(table, law.columns)
    design = judge_design(problem, table)
    held = fixed
    if design.unknown == frozenset({"phi"}):
        held = {**fixed, "phi": 0.0}
        problem = problem.fixing(phi=0.0)
    elif design.unknown:
        return _unidentified(law, table, design, problem, method, level, convention, protocol, fixed, member, found)

    best = solve(problem, protocol)
    if not best.converged:
        found.append("the descent did not end on its optimum: every figure of this fit is provisional")
    if best.agreeing < 3:
        found.append(
            f"only {best.agreeing} of {best.starts} starts found this optimum: a rugged fit, read it with care"
        )
    some, some_runs, some_member = problem, table, member
    if len(table) > _SAMPLE:
        at = np.sort(np.random.default_rng(seed).choice(len(table), _SAMPLE, replace=False))
        some, some_runs = problem.rows(at), table.select(at)
        some_member = np.unique(member[at], return_inverse=True)[1].ravel()
        found.append(
            f"interval and diagnostics come from {_SAMPLE:,} of the runs, drawn at random; the optimum from all"
        )
    groups = gathered(some_member, _CELLS, seed)
    count = int(groups.max()) + 1
    if count <= int(some_member.max()):
        cell_words = f"{count} random groups of {cell_words}"
    bounds = _interval(some, best, groups, method, level, resamples, seed)
    lost = bounds.lost_share if bounds else 0.0
    if bounds and lost > _LOST:
        found.append(f"no interval: {lost:.0%} of the {method}'s refits did not converge, so it would be too narrow")
        bounds = None
    verdict = design + judge_optimum(some, best, bounds)
    found += _interval_remarks(bounds, count, cell_words, method)

    without_cell = bounds.refits if bounds and bounds.method == "jackknife" else None
    checks = None
    if diagnostics and count > 1:
        if without_cell is None:
            without_cell = intervals.leave_out(some, best.theta, groups)[0]
        names = cell_names(some_runs, some_member) if groups is some_member else [f"group {k}" for k in range(count)]
        checks = diagnose(some, best, some_runs, without_cell, names, convention, held)
        found += _blind_remarks(checks)
    found += _outliers(problem, best.theta, table)
    drawn = parabolas(some_runs, law, best.theta, convention) if diagnostics else []
    found += _parabola_remarks(drawn)
    values = natural(law, best.theta)
    return Fit(
        law=law,
        status=verdict.status,
        params=Frozen({n: None if n in verdict.unknown else fixed.get(n, values[n]) for n in law.names}),
        interval=_natural_interval(problem, bounds, verdict),
        interval_method=method,
        level=level,
        objective=best.objective,
        starts=best.starts,
        starts_agreeing=best.agreeing,
        quality=quality(problem, best.theta, table),
        n_runs=len(table),
        n_cells=int(member.max()) + 1,
        convention=convention,
        delta=delta,
        protocol=protocol,
        fixed=Frozen(fixed),
        diagnostics=checks,
        parabolas=tuple(drawn),
        frontiers=tuple(frontiers(drawn)),
        notes=table.notes,
        warnings=tuple(found),
        theta=best.theta,
        reach=Frozen({n: (float(c.min()), float(c.max())) for n, c in problem.x.items()}),
    )


def _check_options(
    law: Law,
    fixed: Mapping[str, float],
    delta: float,
    method: str,
    resamples: int,
    level: float,
    protocol: str,
    seed: int,
) -> None:
    params = dict(zip(law.names, law.params, strict=True))
    for name, value in fixed.items():
        if name not in params:
            raise BadInput(f"Law {law.name} has no parameter {name!r} to fix. It has: {', '.join(law.names)}.")
        fitted = params[name].fitted(value)
        if not params[name].low <= fitted <= params[name].high:
            low, high = params[name].value(params[name].low), params[name].value(params[name].high)
            raise BadInput(f"{name} = {value:g} lies outside its box, {low:.4g} to {high:.4g}.")
    if len(fixed) == len(params):
        raise BadInput("Every parameter is fixed: there is nothing to fit.")
    if not delta > 0:
        raise BadInput(f"delta is {delta:g}; it must be above 0 (inf is plain least squares).")
    if method not in intervals.METHODS:
        raise BadInput(f"There is no interval method {method!r}. There are: {', '.join(intervals.METHODS)}.")
    if not 0 < level < 1:
        raise BadInput(f"level is {level:g}; it must lie between 0 and 1, such as 0.95.")
    if seed < 0:
        raise BadInput(f"seed is {seed}; it must be 0 or more.")
    if resamples < 2:
        raise BadInput(f"resamples is {resamples}; it must be at least 2.")
    if protocol not in PROTOCOLS:
        raise BadInput(f"There is no protocol {protocol!r}. There are: {', '.join(PROTOCOLS)}.")


def _unidentified(
    law: Law,
    runs: Runs,
    verdict: Verdict,
    problem: Problem,
    method: str,
    level: float,
    convention: str,
    protocol: str,
    fixed: Mapping[str, float],
    member: NDArray[np.int_],
    found: list[str],
) -> Fit:
    return Fit(
        law=law,
        status=verdict.status,
        params=Frozen(dict.fromkeys(law.names)),
        interval=Frozen(dict.fromkeys(law.names)),
        interval_method=method,
        level=level,
        objective=None,
        starts=0,
        starts_agreeing=0,
        quality=None,
        n_runs=len(runs),
        n_cells=int(member.max()) + 1,
        convention=convention,
        delta=problem.delta,
        protocol=protocol,
        fixed=Frozen(dict(fixed)),
        diagnostics=None,
        parabolas=tuple(parabolas(runs, convention=convention)),
        frontiers=(),
        notes=runs.notes,
        warnings=tuple(found),
    )


def _interval(
    problem: Problem, best: Optimum, member: NDArray[np.int_], method: str, level: float, resamples: int, seed: int
) -> intervals.Intervals | None:
    if method in ("jackknife", "bootstrap") and int(member.max()) < 2:
        return None
    if method == "jackknife":
        return intervals.jackknife(problem, best.theta, member, level)
    if method == "bootstrap":
        return intervals.bootstrap(problem, best.theta, member, level, resamples, seed)
    if method == "profile":
        return intervals.profile(problem, best.theta, best.objective, level)
    return intervals.delta_method(problem, best.theta, level) if method == "delta" else None


def _natural_interval(
    problem: Problem, bounds: intervals.Intervals | None, verdict: Verdict
) -> Mapping[str, tuple[float | None, float | None] | None]:
    named: dict[str, tuple[float | None, float | None] | None] = dict.fromkeys(problem.law.names)
    if bounds is not None:
        for k, param in enumerate(problem.law.params):
            if problem.free[k] and param.name not in verdict.unknown:
                # A side beyond the box is open: the fit could not have gone there.
                low = param.value(float(bounds.low[k])) if bounds.low[k] > param.low else None
                high = param.value(float(bounds.high[k])) if bounds.high[k] < param.high else None
                named[param.name] = (low, high)
    return Frozen(named)


def _remarks(law: Law, runs: Runs) -> list[str]:
    found = []
    if "status" in runs:
        marked = np.isin(np.char.lower(runs.label("status").astype(str)), ["diverged", "failed", "crashed"])
        if marked.any():
            found.append(
                f"{int(marked.sum())} of {len(runs)} runs are marked diverged or failed and are in the fit: "
                "--where \"status = 'done'\" leaves them out"
            )
    if law.name == "looped" and "n_once" in runs and (runs["n_once"] > 0).any():
        found.append("n_once is not 0: law looped counts it as if it were in the loop")
    kinds = list(dict.fromkeys(architectures(runs)))
    if law.name in ("chinchilla", "kaplan-n", "kaplan-d", "kaplan-c", "kaplan-nd") and len(kinds) > 1:
        found.append(
            f"{len(kinds)} architectures ({', '.join(map(str, kinds[:4]))}) in one fit of a law for one: "
            "--where picks one"
        )
    if len(kinds) > MANY_KINDS:
        found.append(
            f"{len(kinds):,} architectures: none is fitted or judged alone (a column architecture can name families)"
        )
    return found


def _interval_remarks(bounds: intervals.Intervals | None, count: int, words: str, method: str) -> list[str]:
    if method == "none":
        return []
    if bounds is None and count < 3:
        return [f"no interval: {method} needs at least 3 cells, here are {count}"]
    if bounds is None:
        return []
    found = []
    if method in ("jackknife", "bootstrap"):
        if not words.startswith(("(", "groups")):
            found.append(f"the interval leaves out {words}")
        if count < _FEW_CELLS:
            found.append(f"the interval rests on {count} cells only")
    if bounds.unconverged:
        total = 0 if bounds.refits is None else len(bounds.refits)
        found.append(f"{bounds.unconverged} of the interval's {total} refits did not converge")
    return found


def _blind_remarks(checks: Diagnostics) -> list[str]:
    if not checks.blind:
        return []
    last = checks.blind[-1]
    if abs(last.mean_error) <= 3 * last.rmse_fitted:
        return []
    return [
        f"fitted below {last.budget:.3g} FLOPs the law misses the runs above by {last.mean_error:+.3f} nats on average "
        f"({last.rmse_fitted:.3f} is its RMSE below): do not extrapolate with it"
    ]


def _parabola_remarks(drawn: list[Parabola]) -> list[str]:
    poor = [f"{p.architecture} at {p.budget:.3g} FLOPs ({p.status})" for p in drawn if p.status != "ok"]
    if not poor:
        return []
    more = f", and {len(poor) - 3} more" if len(poor) > 3 else ""
    return [f"{len(poor)} of {len(drawn)} iso-FLOP parabolas are not to be used: {', '.join(poor[:3])}{more}"]


def _outliers(problem: Problem, theta: Array, runs: Runs) -> list[str]:
    residual = problem.residuals(theta)
    size = np.abs(residual)
    far = np.flatnonzero(size > max(20 * float(np.median(size)), 0.1))
    if not len(far):
        return []
    first = far[size[far].argmax()]
    loss = float(np.exp(problem.log_loss[first]))
    return [
        f"{len(far)} of {len(runs)} runs lie far off the law (row {runs.rows[first]}: loss {loss:.3f}, predicted "
        f"{loss * np.exp(residual[first]):.3f}): diverged? They are in the fit; --where leaves runs out"
    ]
