"""One minimiser for every law: a batch of damped Newton iterations on a sum of Huber terms of log residuals.

Written by hand because SciPy minimises one start at a time: here all starts, resamples and leave-outs of a fit are one
array, which is what makes a thousand refits cost what a few SciPy calls do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import combinations, repeat

import numpy as np
from numpy.typing import NDArray

from loopworth.laws.law import Array, Columns, Law

# Elements (batch x runs) that descend together: few enough for their derivatives to stay in cache.
_BLOCK = 1 << 15
_SEED_ROWS = 20_000
_SEEDS = 128
_POLISHED = 16
_ENOUGH = 3
_PAPER_STARTS = 500
# Below this threshold a Huber term is an absolute value to nine digits, and derivatives say no more.
_FINEST = 1e-9


@dataclass(frozen=True)
class Problem:
    """Runs to explain: the law's columns, ln of the measured losses, the Huber threshold, what is held fixed.

    `fixed` holds one value per parameter as fitted, NaN where the parameter is free.
    """

    law: Law
    x: Columns
    log_loss: Array
    delta: float = 1e-3
    fixed: Array | None = None

    def __len__(self) -> int:
        return len(self.log_loss)

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which parameters may move."""
        return np.isnan(self.fixed) if self.fixed is not None else np.ones(len(self.law.params), bool)

    def rows(self, index: NDArray) -> Problem:
        """The same problem on some of the runs."""
        return replace(self, x={k: v[index] for k, v in self.x.items()}, log_loss=self.log_loss[index])

    def fixing(self, **fitted: float) -> Problem:
        """The same problem with parameters held at values (as fitted)."""
        fixed = np.full(len(self.law.params), np.nan) if self.fixed is None else self.fixed.copy()
        for name, value in fitted.items():
            fixed[self.law.names.index(name)] = value
        return replace(self, fixed=fixed)

    def residuals(self, theta: Array) -> Array:
        """Ln predicted minus ln measured, for one theta."""
        return self.law.log_loss(_columns(theta[None]), self.x)[0][0] - self.log_loss

    def jacobian(self, theta: Array) -> Array:
        """Derivative of ln predicted by each parameter, shape (params, runs)."""
        slopes = self.law.log_loss(_columns(theta[None]), self.x)[1]
        return np.stack([np.broadcast_to(np.asarray(slope, float), (1, len(self)))[0] for slope in slopes])


@dataclass(frozen=True)
class Minima:
    """Where a batch of minimisations ended."""

    theta: Array
    objective: Array
    converged: NDArray[np.bool_]

    def __iter__(self) -> Iterator[NDArray]:
        return iter((self.theta, self.objective, self.converged))


@dataclass(frozen=True)
class Optimum:
    """The best of many starts, how many of them found it, and where all of them ended."""

    theta: Array
    objective: float
    starts: int
    agreeing: int
    ends: Minima
    converged: bool


def huber(residual: Array, delta: float) -> Array:
    """r^2 / 2 up to delta, straight beyond; plain least squares when delta is infinite."""
    clipped = np.clip(residual, -delta, delta)
    return clipped * (residual - clipped / 2)


def minimise(
    problem: Problem,
    theta: Array,
    weights: Array | None = None,
    held: NDArray[np.bool_] | None = None,
    max_iterations: int = 500,
) -> Minima:
    """Descend from each row of `theta`; `weights` (batch, runs) count runs, `held` (batch, params) marks fixed ones."""
    if problem.delta < _FINEST:
        ends = minimise(replace(problem, delta=_FINEST), theta, weights, held, max_iterations)
        exact = [
            (huber(problem.residuals(t), problem.delta) * w).sum()
            for t, w in zip(ends.theta, _each(weights), strict=False)
        ]
        return replace(ends, objective=np.array(exact))
    theta = np.clip(np.array(theta, dtype=float), problem.law.low, problem.law.high)
    held = np.zeros(theta.shape, bool) if held is None else held.copy()
    if problem.fixed is not None:
        held |= ~problem.free
        theta = np.where(problem.free, theta, problem.fixed)
    rows = max(1, _BLOCK // len(problem))
    parts = [
        _descend(
            problem,
            theta[k : k + rows],
            None if weights is None else weights[k : k + rows],
            held[k : k + rows],
            max_iterations,
        )
        for k in range(0, len(theta), rows)
    ]
    return Minima(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _descend(problem: Problem, theta: Array, weights: Array | None, held: NDArray[np.bool_], max_iterations: int):
    """Damped Gauss-Newton with geodesic acceleration, until a barely damped step promises 1e-12 of F.

    The curvature is that of the runs inside delta plus a fading share of the others' reweighted least squares: the
    share makes far starts safe (it majorises F), its fading makes the end quadratic. The acceleration (half the second
    derivative of the residuals along the step, Transtrum and Sethna 2011) follows the curved valleys in which A trades
    against alpha: tens of iterations where plain steps take hundreds.
    """
    law = problem.law
    damping = np.ones(len(theta))
    going = np.ones(len(theta), bool)
    converged = np.zeros(len(theta), bool)
    state = _look(problem, theta, weights, damping)
    going &= np.isfinite(state.objective)
    for _ in range(max_iterations):
        at = np.flatnonzero(going)
        if not len(at):
            break
        here = state if len(at) == len(theta) else state.rows(at)
        step = _step(theta[at], here.gradient, here.curvature, damping[at], held[at], law)
        promise = -(here.gradient * step).sum(-1)
        moved = np.clip(theta[at] + _bend(problem, theta[at], step, here, damping[at], held[at]), law.low, law.high)
        there = _look(problem, moved, None if weights is None else weights[at], damping[at])
        better = there.objective < here.objective
        finished = (np.abs(promise) <= 1e-12 * here.objective) & (damping[at] < 1e-2)
        finished |= here.objective < 1e-27 * len(problem)
        state.update(at[better], there.rows(np.flatnonzero(better)))
        theta[at[better]] = moved[better]
        converged[at[finished]] = True
        damping[at] *= np.where(better, 0.2, 6.0)
        going[at[finished | (damping[at] > 1e8)]] = False
    # Where rounding leaves no decrease to be had, the undamped step says whether there was one to be found.
    at = np.flatnonzero(~converged & np.isfinite(state.objective))
    if len(at):
        step = _step(theta[at], state.gradient[at], state.curvature[at], np.zeros(len(at)), held[at], law)
        promise = -(state.gradient[at] * step).sum(-1)
        converged[at] = np.abs(promise) <= 1e-9 * state.objective[at]
    return theta, state.objective, converged


def solve(problem: Problem, protocol: str = "default", patient: bool = True) -> Optimum:
    """The global optimum: many starts, polished together.

    "default" solves the amplitudes on a fixed low-discrepancy set of shapes and polishes the best 16; "paper" polishes
    500 uniform draws from the box. Of a very long table the starts see a sample, the last descent all of it.
    `patient`: where hardly any starts agree, look harder, for seconds.
    """
    seen = problem
    if len(problem) > _SEED_ROWS:
        seen = problem.rows(np.random.default_rng(0).choice(len(problem), _SEED_ROWS, replace=False))
    if protocol == "paper":
        uniform = np.random.default_rng(0).random((_PAPER_STARTS, len(problem.law.params)))
        theta = problem.law.low + uniform * (problem.law.high - problem.law.low)
    else:
        theta = _seeds(seen, _SEEDS, _POLISHED)
    optimum = _best(minimise(seen, theta))
    if patient and protocol != "paper" and optimum.agreeing < _ENOUGH:
        # A rugged objective (few runs, many parameters): look harder.
        wide = _seeds(seen, 4 * _SEEDS, 8 * _POLISHED)
        optimum = min(optimum, _best(minimise(seen, wide, max_iterations=2000)), key=lambda found: found.objective)
    if protocol != "paper":
        smooth = minimise(seen, _smoothly(seen, optimum.ends.theta[: _POLISHED // 2]))
        optimum = _best(Minima(*(np.concatenate(pair) for pair in zip(optimum.ends, smooth, strict=True))))
    if seen is not problem or not optimum.converged:
        ends = minimise(problem, optimum.theta[None], max_iterations=5000)
        optimum = replace(
            optimum, theta=ends.theta[0], objective=float(ends.objective[0]), converged=bool(ends.converged[0])
        )
    return optimum


def _smoothly(problem: Problem, theta: Array) -> Array:
    """Starts that have followed the optimum from a wide threshold to a narrow one.

    With few runs, or a threshold far below their noise, the objective is all kinks, and descents freeze in them.
    """
    delta = 0.1
    while delta > 1.5 * max(problem.delta, _FINEST):
        theta = minimise(replace(problem, delta=delta), theta, max_iterations=100).theta
        delta /= 10**0.5 if delta < 2e-3 else 10
    return theta


def _best(ends: Minima) -> Optimum:
    # A start that never had a finite objective is a start that does not agree.
    values = np.where(np.isfinite(ends.objective), ends.objective, np.inf)
    best = int(values.argmin())
    agreeing = int((values <= values[best] * (1 + 1e-6) + 1e-15).sum())
    return Optimum(
        ends.theta[best], float(ends.objective[best]), len(values), agreeing, ends, bool(ends.converged[best])
    )


def _each(weights: Array | None) -> Iterable[Array | float]:
    return repeat(1.0) if weights is None else weights


def _columns(theta: Array) -> list[Array]:
    return [theta[:, k, None] for k in range(theta.shape[1])]


@dataclass
class _View:
    """Everything known at a batch of points. `share` is each run's part in the curvature."""

    objective: Array
    gradient: Array
    curvature: Array
    residual: Array
    jacobian: Array
    share: Array

    def rows(self, at: NDArray) -> _View:
        return _View(*(getattr(self, f.name)[at] for f in fields(self)))

    def update(self, at: NDArray, other: _View) -> None:
        for f in fields(self):
            getattr(self, f.name)[at] = getattr(other, f.name)


def _look(problem: Problem, theta: Array, weights: Array | None, damping: Array) -> _View:
    delta = problem.delta
    with np.errstate(all="ignore"):
        prediction, slopes = problem.law.log_loss(_columns(theta), problem.x)
        residual = prediction - problem.log_loss
        jacobian = np.empty((len(theta), theta.shape[1], len(problem)))
        for k, slope in enumerate(slopes):
            jacobian[:, k] = slope
        psi = np.clip(residual, -delta, delta)
        terms = psi * (residual - psi / 2)
        if np.isinf(delta):
            share = np.ones_like(residual)
        else:
            size = np.abs(residual)
            share = np.minimum(damping, 1.0)[:, None] * (delta / np.maximum(size, delta))
            share[size <= delta] = 1.0
    if weights is not None:
        terms, psi, share = terms * weights, psi * weights, share * weights
    gradient = np.matmul(jacobian, psi[:, :, None])[:, :, 0]
    curvature = np.matmul(jacobian * share[:, None, :], jacobian.transpose(0, 2, 1))
    return _View(terms.sum(-1), gradient, curvature, residual, jacobian, share)


def _bend(problem: Problem, theta: Array, step: Array, here: _View, damping: Array, held: NDArray[np.bool_]) -> Array:
    """The step with its geodesic acceleration, where that is small enough to be trusted."""
    h = 0.1
    with np.errstate(all="ignore"):
        ahead = problem.law.log_loss(_columns(theta + h * step), problem.x)[0] - problem.log_loss
        along = np.matmul(step[:, None, :], here.jacobian)[:, 0]
        second = 2 / h * ((ahead - here.residual) / h - along)
        pull = np.matmul(here.jacobian, (here.share * second)[:, :, None])[:, :, 0]
        bend = _step(theta, pull, here.curvature, damping, held, problem.law)
        unit = np.einsum("spp->sp", here.curvature)
        trusted = (unit * bend**2).sum(-1) <= 2.25 * (unit * step**2).sum(-1)
    return np.where(trusted[:, None], step + bend / 2, step)


def _step(theta: Array, gradient: Array, curvature: Array, damping: Array, held: NDArray[np.bool_], law: Law) -> Array:
    """Newton's step within the box, in units of each parameter's own curvature.

    What the step would take out of the box goes to its edge, and the others are solved for again given that: clipped
    alone, it would leave them on their way to a place that is not reached.
    """
    diagonal = np.einsum("spp->sp", curvature)
    unit = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = curvature / unit[:, :, None] / unit[:, None, :]
    every = range(theta.shape[1])
    scaled[:, every, every] = 1.0 + np.maximum(damping * 1e-3, 1e-14)[:, None]
    given = held | ((theta <= law.low) & (gradient > 0)) | ((theta >= law.high) & (gradient < 0))
    imposed = np.zeros_like(theta)
    downhill = -gradient / unit
    step = _solved(scaled, downhill, given, imposed)
    at = np.arange(len(theta))
    for _ in every:
        ends = theta[at] + step[at] / unit[at]
        out = ~given[at] & ((ends < law.low) | (ends > law.high))
        some = out.any(1)
        if not some.any():
            break
        at, out, ends = at[some], out[some], ends[some]
        imposed[at] = np.where(out, (np.clip(ends, law.low, law.high) - theta[at]) * unit[at], imposed[at])
        given[at] |= out
        step[at] = _solved(scaled[at], downhill[at], given[at], imposed[at])
    return step / unit


def _solved(matrix: Array, right: Array, given: NDArray[np.bool_], values: Array) -> Array:
    """The solutions of a batch of linear systems in which some unknowns have given values."""
    right = np.where(given, values, right - np.matmul(matrix, np.where(given, values, 0.0)[:, :, None])[:, :, 0])
    matrix = np.where(given[:, :, None] | given[:, None, :], np.eye(matrix.shape[1]), matrix)
    try:
        found = np.linalg.solve(matrix, right[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        # Parameters that do the same thing exactly: the shortest step serves.
        found = (np.linalg.pinv(matrix) @ right[:, :, None])[:, :, 0]
    return np.where(np.isfinite(found), found, 0.0)


def _seeds(problem: Problem, points: int, count: int) -> Array:
    """The best starting points of a fixed set: shapes spread evenly over the box, amplitudes solved for each.

    Scales that are no amplitudes (Kaplan's N_c) cannot be solved for: more points, and a descent of the scales alone. A
    few iterations come before the choice: unpolished objectives all but ignore the narrower of two valleys.
    """
    law, free = problem.law, problem.free
    solved = free & np.array([p.amplitude for p in law.params])
    scales = free & ~solved & np.array([p.log for p in law.params])
    if scales.any():
        points *= 4
    drawn = free & ~solved
    theta = np.tile((law.low + law.high) / 2, (points, 1))
    theta[:, drawn] = law.low[drawn] + _even(points, int(drawn.sum())) * (law.high - law.low)[drawn]
    if problem.fixed is not None:
        theta = np.where(free, theta, problem.fixed)
    if solved.any():
        theta = _with_amplitudes(problem, theta, solved)
    if scales.any():
        theta = minimise(problem, theta, held=np.tile(~scales, (points, 1)), max_iterations=20).theta
    theta = theta[_order(minimise(problem, theta, max_iterations=0).objective)[: 2 * count]]
    partly = minimise(problem, theta, max_iterations=8)
    return partly.theta[_order(partly.objective)[:count]]


def _order(objective: Array) -> NDArray:
    return np.argsort(np.where(np.isfinite(objective), objective, np.inf), kind="stable")


def _with_amplitudes(problem: Problem, theta: Array, solved: NDArray[np.bool_]) -> Array:
    """Variable projection: with the shapes given, the loss is linear in the amplitudes.

    The basis is read off the law itself: an amplitude's derivative is its term's share of the loss. Relative residuals
    are minimised over non-negative amplitudes, by trying every set of terms that may be present.
    """
    law = problem.law
    theta = theta.copy()
    theta[:, solved] = 0.0
    keep = np.linspace(0, len(problem) - 1, min(len(problem), 512)).astype(int)
    some = problem.rows(keep)
    with np.errstate(all="ignore"):
        prediction, gradient = law.log_loss(_columns(theta), some.x)
        ratio = np.exp(prediction - some.log_loss)
        basis = np.stack(
            [np.broadcast_to(gradient[k], ratio.shape) * ratio for k in np.flatnonzero(solved).tolist()], 1
        )
        given = ratio - basis.sum(1)
    size = np.maximum(np.abs(basis).max(-1), 1e-300)
    basis = basis / size[:, :, None]
    target = 1.0 - given
    n_terms = basis.shape[1]
    best, amplitudes = np.full(len(theta), np.inf), np.full((len(theta), n_terms), np.nan)
    for count in range(1, n_terms + 1):
        for present in map(list, combinations(range(n_terms), count)):
            part = basis[:, present]
            gram = part @ part.transpose(0, 2, 1) + 1e-13 * np.eye(count)
            moments = (part @ target[:, :, None])[:, :, 0]
            found = np.linalg.solve(gram, moments[:, :, None])[:, :, 0]
            misfit = ((target - (found[:, None] @ part)[:, 0]) ** 2).sum(-1)
            better = (misfit < best) & (found > 0).all(-1)
            best[better] = misfit[better]
            amplitudes[better] = 0.0
            amplitudes[np.ix_(better, present)] = found[better]
    with np.errstate(divide="ignore"):
        theta[:, solved] = np.log(np.nan_to_num(amplitudes, nan=1.0) / size)
    return np.clip(theta, np.where(problem.free, law.low, -np.inf), np.where(problem.free, law.high, np.inf))


def _even(count: int, dimensions: int) -> Array:
    """Points spread evenly over the unit cube: multiples of powers of the generalised golden ratio, modulo 1."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    return (0.5 + np.outer(np.arange(1, count + 1), ratio ** -np.arange(1.0, dimensions + 1))) % 1.0
