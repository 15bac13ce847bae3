"""How often each interval covers the truth, on simulated 116-run grids; every condition from at least 2,000 of them.

    python benchmarks/coverage.py [--grids 2000] [--methods jackknife,bootstrap,profile,delta,runs] [--workers 2]

`bootstrap` resamples cells, 200 times as published; `runs` resamples single runs. Rows are printed once finished.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import numpy as np

from loopworth.laws import intervals
from loopworth.laws.catalogue import LAWS
from loopworth.laws.design import cells, law_columns
from loopworth.laws.engine import Problem, solve
from loopworth.laws.published import JOINT, paper_grid
from loopworth.laws.simulate import simulate
from machine import machine

LEVEL = 0.95
LAW = LAWS["joint"]
TRUTH = np.array([p.fitted(JOINT[p.name]) for p in LAW.params])
PHI = LAW.names.index("phi")

# noise of a run, noise that the runs of a cell share, degrees of freedom of the tails
CONDITIONS = (
    (0.001, 0.0, np.inf),
    (0.003, 0.0, np.inf),
    (0.01, 0.0, np.inf),
    (0.001, 0.001, np.inf),
    (0.003, 0.003, np.inf),
    (0.01, 0.01, np.inf),
    (0.001, 0.003, np.inf),
    (0.003, 0.0, 3.0),
    (0.01, 0.0, 3.0),
    (0.003, 0.003, 3.0),
)


def one_grid(seed: int, condition: tuple[float, float, float], methods: tuple[str, ...]) -> np.ndarray:
    """For each method and parameter: 1 where the interval covers, 0 where not; and the width for phi."""
    design = paper_grid()
    noise, shared, tails = condition
    runs = simulate(design, LAW, JOINT, noise, shared, tails, seed=seed)
    problem = Problem(LAW, law_columns(LAW, runs), np.log(runs["loss"]))
    member, _ = cells(runs)
    best = solve(problem)
    rows = []
    for method in methods:
        if method == "jackknife":
            found = intervals.jackknife(problem, best.theta, member, LEVEL)
        elif method == "bootstrap":
            found = intervals.bootstrap(problem, best.theta, member, LEVEL, intervals.PAPER_RESAMPLES, seed)
        elif method == "runs":
            found = intervals.bootstrap(problem, best.theta, np.arange(len(runs)), LEVEL, 200, seed)
        elif method == "profile":
            found = intervals.profile(problem, best.theta, best.objective, LEVEL, only=("phi",))
        else:
            found = intervals.delta_method(problem, best.theta, LEVEL)
        low = np.where(np.isnan(found.low), -np.inf, found.low)
        high = np.where(np.isnan(found.high), np.inf, found.high)
        rows.append([*((low <= TRUTH) & (high >= TRUTH)), high[PHI] - low[PHI]])
    return np.array(rows, dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", type=int, default=2000)
    parser.add_argument("--methods", default="jackknife,bootstrap,profile,delta")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--conditions", default="", help="numbers of the conditions to run, from 0, e.g. 0,3")
    args = parser.parse_args()
    methods = tuple(args.methods.split(","))
    chosen = [CONDITIONS[int(k)] for k in args.conditions.split(",")] if args.conditions else CONDITIONS
    print(f"{machine()}\n{args.grids} grids a condition; share of intervals that cover, in percent, at a nominal 95\n")
    print("| run noise | cell noise | tails | method | phi | others: lowest-highest | median half-width of phi |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with ProcessPoolExecutor(args.workers) as pool:
        for condition in chosen:
            work = partial(one_grid, condition=condition, methods=methods)
            outcome = np.stack(list(pool.map(work, range(args.grids), chunksize=20)))
            noise, shared, tails = condition
            for k, method in enumerate(methods):
                share = 100 * outcome[:, k, :-1].mean(0)
                error = np.sqrt(share * (100 - share) / args.grids)
                others = np.delete(share, PHI)
                width = np.median(outcome[:, k, -1]) / 2
                print(
                    f"| {noise:.1%} | {shared:.1%} | {'normal' if np.isinf(tails) else f't{tails:g}'} | {method} "
                    f"| {share[PHI]:.1f} ({error[PHI]:.1f}) "
                    f"| {'-' if method == 'profile' else f'{others.min():.1f}-{others.max():.1f}'} | {width:.4f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
