"""Four ways to an interval for every parameter; docs/intervals.md says which to choose and what each covers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, stdtrit

from loopworth.laws.engine import Problem, minimise
from loopworth.laws.law import Array

METHODS = ("jackknife", "bootstrap", "profile", "delta", "none")
PAPER_RESAMPLES = 200


@dataclass(frozen=True)
class Intervals:
    """Bounds per parameter, as fitted (ln A, not A); NaN where a side is open. `refits` has one theta per refit."""

    method: str
    level: float
    low: Array
    high: Array
    refits: Array | None = None
    unconverged: int = 0

    @property
    def lost_share(self) -> float:
        """The share of refits that did not converge."""
        return self.unconverged / len(self.refits) if self.refits is not None else 0.0


def jackknife(problem: Problem, theta: Array, member: NDArray[np.int_], level: float) -> Intervals:
    """Leave each cell out in turn; Student's t with as many degrees as cells that matter.

    Whatever the runs of a cell share shows in how far the fit moves without them: nothing is assumed about its size.
    """
    refits, unconverged = leave_out(problem, theta, member)
    count = len(refits)
    error = np.sqrt((count - 1) / count * ((refits - refits.mean(0)) ** 2).sum(0))
    reach = error * stdtrit(jackknife_degrees(problem, theta, member), (1 + level) / 2)
    return Intervals("jackknife", level, theta - reach, theta + reach, refits, unconverged)


def jackknife_degrees(problem: Problem, theta: Array, member: NDArray[np.int_]) -> Array:
    """How many cells each parameter rests on, which is what its jackknife variance is worth in degrees of freedom."""
    degrees = np.full(len(theta), float(member.max()))
    degrees[problem.free] = effective_cells(influence(problem, theta), member)
    return degrees


def influence(problem: Problem, theta: Array) -> Array:
    """How far a small change of each ln loss moves each free parameter, with the law made linear at theta."""
    return np.linalg.pinv(problem.jacobian(theta)[problem.free].T, rcond=1e-12).astype(float)


def effective_cells(influence: Array, member: NDArray[np.int_]) -> Array:
    """How many cells an estimate rests on, between 1 and one less than there are; `influence` has a row per estimate.

    A few cells at the ends of the grid decide phi: 14 rather than 24 on the paper's grid. (The effective number of
    clusters of Carter, Schnepel and Steigerwald 2017.)
    """
    count = int(member.max()) + 1
    share = np.stack([np.bincount(member, row**2, count) for row in influence])
    with np.errstate(divide="ignore", invalid="ignore"):
        found = share.sum(1) ** 2 / (share**2).sum(1)
    return np.where(np.isfinite(found), np.clip(found, 1.0, count - 1.0), count - 1.0)


def leave_out(problem: Problem, theta: Array, member: NDArray[np.int_]) -> tuple[Array, int]:
    """The optimum without each group of runs, and how many of these refits did not converge."""
    count = int(member.max()) + 1
    weights = (member[None, :] != np.arange(count)[:, None]).astype(float)
    ends = minimise(problem, np.tile(theta, (count, 1)), weights)
    return ends.theta, int((~ends.converged).sum())


def bootstrap(
    problem: Problem, theta: Array, member: NDArray[np.int_], level: float, resamples: int = 1000, seed: int = 0
) -> Intervals:
    """Resample whole cells with replacement and take percentiles, as published (there with 200 resamples)."""
    count = int(member.max()) + 1
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    ends = minimise(problem, np.tile(theta, (resamples, 1)), drawn[:, member].astype(float))
    low, high = np.quantile(ends.theta, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Intervals("bootstrap", level, low, high, ends.theta, int((~ends.converged).sum()))


def delta_method(problem: Problem, theta: Array, level: float) -> Intervals:
    """Large-sample normal theory at the optimum: independent runs, a law that is all but linear. For comparison."""
    error = standard_errors(problem, theta)
    reach = error * stdtrit(max(1, len(problem) - int(problem.free.sum())), (1 + level) / 2)
    return Intervals("delta", level, theta - reach, theta + reach)


def profile(
    problem: Problem, theta: Array, objective: float, level: float, only: tuple[str, ...] | None = None
) -> Intervals:
    """Where the objective, minimised over the other parameters, has risen by what the level allows; runs independent.

    `only` names the parameters to profile; the others get no interval.
    """
    n_params = len(theta)
    allowed = objective + rise(problem, theta, level)
    names = problem.law.names
    wanted = [k for k in np.flatnonzero(problem.free) if only is None or names[k] in only]
    sides = [(k, sign) for k in wanted for sign in (-1.0, 1.0)]
    which = np.array([k for k, _ in sides])
    sign = np.array([s for _, s in sides])
    held = np.zeros((len(sides), n_params), bool)
    held[np.arange(len(sides)), which] = True
    edge = np.where(sign < 0, problem.law.low[which], problem.law.high[which])

    def raised(values: Array, start: Array) -> tuple[NDArray[np.bool_], Array]:
        begin = start.copy()
        begin[np.arange(len(sides)), which] = values
        ends = minimise(problem, begin, held=held)
        return ends.objective > allowed, ends.theta

    # Outward in growing steps until the objective is above the line, then halve the bracket.
    inside = np.broadcast_to(theta[which], edge.shape).copy()
    at = np.tile(theta, (len(sides), 1))
    step = np.maximum(standard_errors(problem, theta)[which], 1e-9 * (1 + np.abs(inside)))
    outside = np.clip(inside + sign * step, problem.law.low[which], problem.law.high[which])
    found = np.zeros(len(sides), bool)
    for _ in range(60):
        above, ends = raised(outside, at)
        found |= above
        moving = ~found & (outside != edge)
        if not moving.any():
            break
        at[moving], inside[moving] = ends[moving], outside[moving]
        step[moving] *= 1.6
        outside[moving] = np.clip(inside + sign * step, problem.law.low[which], problem.law.high[which])[moving]
    for _ in range(30):
        middle = (inside + outside) / 2
        above, ends = raised(middle, at)
        outside = np.where(found & above, middle, outside)
        lower = found & ~above
        inside, at[lower] = np.where(lower, middle, inside), ends[lower]
    low, high = np.full(n_params, np.nan), np.full(n_params, np.nan)
    for (k, s), value, closed in zip(sides, (inside + outside) / 2, found, strict=True):
        (low if s < 0 else high)[k] = value if closed else np.nan
    return Intervals("profile", level, low, high)


def rise(problem: Problem, theta: Array, level: float) -> float:
    """By how much the objective may rise within the level: chi-square times half of mean psi^2 over mean psi'."""
    psi_squared, slope, _ = _spread(problem, theta)
    return float(chdtri(1, 1 - level) * psi_squared / slope / 2)


def standard_errors(problem: Problem, theta: Array) -> Array:
    """Large-sample standard errors; 0 for what is held fixed, NaN for what the runs do not determine."""
    psi_squared, slope, information = _spread(problem, theta)
    free = problem.free
    errors = np.zeros(len(theta))
    inner = information[np.ix_(free, free)]
    unit = np.sqrt(np.where(np.diag(inner) > 0, np.diag(inner), 1.0))
    inverse = np.linalg.pinv(inner / np.outer(unit, unit), rcond=1e-14, hermitian=True)
    errors[free] = np.sqrt(np.maximum(np.diag(inverse), 0) * psi_squared) / slope / unit
    errors[free] = np.where(np.diag(inner) > 0, errors[free], np.nan)
    return errors


def _spread(problem: Problem, theta: Array) -> tuple[float, float, Array]:
    """Mean psi^2 (per free degree), mean psi' and J^T J at theta.

    psi' of a Huber term is 1 inside delta, 0 outside: its mean is a density of residuals near 0, counted in a window
    wider than delta where few runs come that close.
    """
    residual = np.abs(problem.residuals(theta))
    window = max(problem.delta, float(np.quantile(residual, 1 / 3)))
    inside = float(np.mean(residual <= window))
    slope = inside if np.isinf(window) else inside * problem.delta / window
    degrees = max(1, len(problem) - int(problem.free.sum()))
    psi = np.minimum(residual, problem.delta)
    jacobian = replace(problem, delta=np.inf).jacobian(theta)
    return float((psi**2).sum() / degrees), max(slope, 1e-300), jacobian @ jacobian.T
