"""What these runs cannot determine, said before anybody reads a number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loopworth.laws.design import budgets, executed_parameters
from loopworth.laws.engine import Optimum, Problem, solve
from loopworth.laws.intervals import Intervals, rise, standard_errors
from loopworth.laws.law import Law
from loopworth.ledger import Runs

# Directions of J^T J (in units of each parameter) weaker than this are exact confusions, not merely wide intervals.
_SINGULAR = 1e-13


@dataclass(frozen=True)
class Verdict:
    """`reasons` in words, and the parameters that get no number for them. No reasons: everything is identified."""

    reasons: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(self.reasons + other.reasons, self.unknown | other.unknown)

    @property
    def status(self) -> str:
        """ "ok", or what is wrong."""
        return "; ".join(self.reasons) or "ok"


def judge_design(problem: Problem, runs: Runs) -> Verdict:
    """What the design alone rules out: too few runs, one r, one budget."""
    law, free = problem.law, [n for n, f in zip(problem.law.names, problem.free, strict=True) if f]
    everything = frozenset(law.names)
    # A long table has more designs than parameters unless its first rows say otherwise.
    design = np.stack([problem.x[c][:100_000] for c in law.columns], axis=1)
    designs = len(np.unique(design, axis=0))
    if len(problem) <= len(free) or designs < len(free):
        runs_in_words = (
            f"{len(problem)} runs" if designs == len(problem) else f"{len(problem)} runs of {designs} designs"
        )
        return Verdict((f"too few runs: {runs_in_words} for {len(free)} parameters",), everything)
    if "tokens" in law.columns and len(law.columns) > 1 and _one_budget(runs, law):
        why = (
            "one budget: size and tokens move together, so their terms cannot be told apart; add runs at another budget"
        )
        return Verdict((why,), everything)
    if "phi" in free and len(np.unique(problem.x["r"])) == 1:
        why = (
            f"one r: every run has r = {problem.x['r'][0]:g}, so phi is not identified (the rest is fitted at phi = 0)"
        )
        return Verdict((why,), frozenset({"phi"}))
    return Verdict()


def _one_budget(runs: Runs, law: Law) -> bool:
    budget = budgets(runs)
    if budget is not None and len(np.unique(budget)) == 1:
        return True
    if "budget" in runs:
        return False
    size = executed_parameters(runs)
    if size is None or np.ptp(np.log(size)) == 0 or ("n" not in law.columns and "n_rec" not in law.columns):
        return False
    # Compute is size x tokens up to the head's and attention's share: a line of slope near -1 without scatter.
    log_n, log_d = np.log(size), np.log(runs["tokens"])
    slope, at = np.polyfit(log_n - log_n.mean(), log_d, 1)
    scatter = (log_d - at - slope * (log_n - log_n.mean())).std()
    return -1.3 < slope < -0.5 and scatter < 0.05


def judge_optimum(problem: Problem, best: Optimum, found: Intervals | None) -> Verdict:
    """What the optimum shows: parameters that do the same thing, that ran to the box, or whose profile is flat."""
    verdict = _confused(problem, best)
    law = problem.law
    width = law.high - law.low
    for k, (param, free) in enumerate(zip(law.params, problem.free, strict=True)):
        if not free or param.name in verdict.unknown:
            continue
        if min(best.theta[k] - param.low, param.high - best.theta[k]) <= 1e-9 * width[k]:
            verdict += Verdict(
                (f"{param.name} ran to the edge of its box ({param.value(float(best.theta[k])):.3g})",),
                frozenset({param.name}),
            )
    # Refits at both edges of the box cost time, so only the badly determined are put to that test.
    errors = 2 * standard_errors(problem, best.theta)
    if found is not None:
        errors = np.fmax(errors, (found.high - found.low) / 2)
    for k, param in enumerate(law.params):
        doubtful = not errors[k] < width[k] / 4
        if problem.free[k] and param.name not in verdict.unknown and doubtful and _flat(problem, best, param.name):
            verdict += Verdict((f"{param.name} is not identified: its profile is flat",), frozenset({param.name}))
    return verdict


def _confused(problem: Problem, best: Optimum) -> Verdict:
    jacobian = problem.jacobian(best.theta)[problem.free]
    names = np.array(problem.law.names)[problem.free]
    unit = np.linalg.norm(jacobian, axis=1)
    without = unit <= 1e-12 * unit.max(initial=0.0)
    scaled = jacobian[~without] / unit[~without, None]
    value, direction = np.linalg.eigh(scaled @ scaled.T)
    weak = direction[:, value < _SINGULAR * len(value)]
    lost = [*names[without], *names[~without][(weak**2).sum(1) > 1e-3]]
    if not lost:
        return Verdict()
    which = ", ".join(map(str, lost))
    return Verdict((f"not identified: these runs cannot tell {which} apart",), frozenset(map(str, lost)))


def _flat(problem: Problem, best: Optimum, name: str) -> bool:
    allowed = best.objective + rise(problem, best.theta, 0.95)
    param = problem.law.params[problem.law.names.index(name)]
    return all(
        solve(problem.fixing(**{name: edge}), patient=False).objective <= allowed for edge in (param.low, param.high)
    )
