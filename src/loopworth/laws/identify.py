"""What these runs cannot determine, said before anybody reads a number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loopworth.laws.design import budgets, executed_parameters
from loopworth.laws.engine import Optimum, Problem, minimise, solve
from loopworth.laws.intervals import Intervals, rise, standard_errors
from loopworth.laws.law import Array, Law
from loopworth.ledger import Runs

# Directions of J^T J (in units of each parameter) weaker than this are exact confusions, not merely wide intervals.
_SINGULAR = 1e-13
# Values of phi at which the rest is refitted, in search of a second optimum.
_SCAN = 25


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
    if budget is not None and len(np.unique(budget)) > 1:
        return False
    size = executed_parameters(runs)
    if size is None:
        return budget is not None
    if np.ptp(np.log(size)) == 0 or ("n" not in law.columns and "n_rec" not in law.columns):
        return False
    # Compute is size x tokens up to the head's and attention's share: a line of slope near -1 without scatter.
    log_n, log_d = np.log(size), np.log(runs["tokens"])
    slope, at = np.polyfit(log_n - log_n.mean(), log_d, 1)
    scatter = (log_d - at - slope * (log_n - log_n.mean())).std()
    return -1.3 < slope < -0.5 and scatter < (0.05 if budget is None else 0.3)


def judge_quickly(problem: Problem, best: Optimum) -> Verdict:
    """What the optimum shows at a glance: parameters that do the same thing, or that ran to the box."""
    verdict = _confused(problem, best)
    return verdict + _edges(problem, best, verdict.unknown)


def _edges(problem: Problem, best: Optimum, known: frozenset[str]) -> Verdict:
    verdict = Verdict()
    for k, (param, free) in enumerate(zip(problem.law.params, problem.free, strict=True)):
        near = min(best.theta[k] - param.low, param.high - best.theta[k]) <= 1e-9 * (param.high - param.low)
        if free and near and param.name not in known:
            edge = f"{param.name} ran to the edge of its box ({param.value(float(best.theta[k])):.3g})"
            verdict += Verdict((edge,), frozenset({param.name}))
    return verdict


def judge_optimum(problem: Problem, best: Optimum, found: Intervals | None) -> Verdict:
    """All of it: also a second optimum that these runs do not rule out, and profiles that are flat."""
    verdict = _confused(problem, best)
    law = problem.law
    width = law.high - law.low
    errors = 2 * standard_errors(problem, best.theta)
    if found is not None:
        errors = np.fmax(errors, (found.high - found.low) / 2)
    verdict += _rivals(problem, best, errors)
    # Refits at both edges of the box cost time, so only the badly determined are put to that test.
    for k, param in enumerate(law.params):
        doubtful = not errors[k] < width[k] / 4
        if problem.free[k] and param.name not in verdict.unknown and doubtful and _flat(problem, best, param.name):
            verdict += Verdict((f"{param.name} is not identified: its profile is flat",), frozenset({param.name}))
    return verdict + _edges(problem, best, verdict.unknown)


def _rivals(problem: Problem, best: Optimum, errors: Array) -> Verdict:
    """Another optimum that these runs cannot rule out, farther off than the interval reaches.

    Without r = 1, runs of equal executed depth have the same ratio of effective sizes at two values of phi.
    """
    law = problem.law
    allowed = best.objective + rise(problem, best.theta, 0.95)
    thetas, objectives = best.ends.theta[best.ends.converged], best.ends.objective[best.ends.converged]
    if "phi" in law.names and problem.free[at := law.names.index("phi")]:
        grid = np.tile(best.theta, (_SCAN, 1))
        grid[:, at] = np.linspace(law.low[at], law.high[at], _SCAN)
        held = np.zeros(grid.shape, bool)
        held[:, at] = True
        scan = minimise(problem, grid, held=held)
        around = np.concatenate([[np.inf], scan.objective, [np.inf]])
        dips = (around[1:-1] <= around[:-2]) & (around[1:-1] <= around[2:])
        ends = minimise(problem, scan.theta[dips])
        thetas = np.concatenate([thetas, ends.theta])
        objectives = np.concatenate([objectives, ends.objective])
    far = np.abs(thetas - best.theta) > np.maximum(2 * errors, 1e-3 * (law.high - law.low))
    far[:, ~problem.free] = False
    rivals = (objectives <= allowed) & far.any(1)
    if not rivals.any():
        return Verdict()
    other = np.flatnonzero(rivals)[objectives[rivals].argmin()]
    lost = np.flatnonzero(far[other])
    names = [law.names[k] for k in lost]
    one, two = (
        ", ".join(f"{law.names[k]} = {law.params[k].value(float(t[k])):.3g}" for k in lost)
        for t in (best.theta, thetas[other])
    )
    advice = "; runs at r = 1 would tell them apart" if "phi" in names else ""
    return Verdict((f"two optima: {one} and {two} explain these runs about equally well{advice}",), frozenset(names))


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
    why = f"these runs cannot tell {which} apart" if len(lost) > 1 else f"{which} changes nothing in these runs"
    return Verdict((f"not identified: {why}",), frozenset(map(str, lost)))


def _flat(problem: Problem, best: Optimum, name: str) -> bool:
    allowed = best.objective + rise(problem, best.theta, 0.95)
    param = problem.law.params[problem.law.names.index(name)]
    return all(
        solve(problem.fixing(**{name: edge}), patient=False).objective <= allowed for edge in (param.low, param.high)
    )
