"""The published protocol in SciPy, as the yardstick: 500 uniform starts, L-BFGS-B, tight tolerances, one at a time."""

from __future__ import annotations

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from loopworth.laws.engine import Problem, huber


def scipy_best(problem: Problem, starts: int = 500, seed: int = 0, gradient: bool = True) -> OptimizeResult:
    """The best of `starts` minimisations of the sum of Huber terms, drawn uniformly from the law's box."""
    law = problem.law
    free = problem.free
    low, high = law.low[free], law.high[free]
    whole = law.low.copy() if problem.fixed is None else np.where(free, law.low, problem.fixed)

    def objective(part):
        theta = whole.copy()
        theta[free] = part
        prediction, slopes = law.log_loss([t[None, None] for t in theta], problem.x)
        residual = prediction[0] - problem.log_loss
        value = huber(residual, problem.delta).sum()
        if not gradient:
            return value
        psi = np.clip(residual, -problem.delta, problem.delta)
        wanted = [slope for slope, moves in zip(slopes, free, strict=True) if moves]
        return value, np.array([(np.broadcast_to(slope, prediction.shape)[0] * psi).sum() for slope in wanted])

    rng = np.random.default_rng(seed)
    best = OptimizeResult(fun=np.inf)
    for _ in range(starts):
        result = minimize(
            objective,
            low + rng.random(len(low)) * (high - low),
            jac=gradient,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": 20_000, "maxfun": 200_000, "ftol": 1e-15, "gtol": 1e-12},
        )
        if result.fun < best.fun:
            best = result
    return best
