"""How often each interval covers the truth, on simulated 116-run grids; every condition from at least 2,000 of them.

    python benchmarks/coverage.py [--grids 2000] [--methods jackknife,bootstrap,profile,delta,runs] [--workers 2]

`bootstrap` resamples cells, 200 times as published; `runs` resamples single runs. `compare` is the difference in phi
between two recipes on the four lower budgets that share their r = 1 runs. Rows are printed once finished.
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
from loopworth.laws.compare import compare
from loopworth.laws.design import cells, law_columns
from loopworth.laws.engine import Problem, solve
from loopworth.laws.published import JOINT, paper_grid
from loopworth.laws.simulate import simulate
from loopworth.ledger import Runs
from machine import machine

LEVEL = 0.95
LAW = LAWS["joint"]
TRUTH = np.array([p.fitted(JOINT[p.name]) for p in LAW.params])
PHI = LAW.names.index("phi")
GRID = paper_grid()
RECIPES = {"plain": 0.453, "hyper": 0.646}

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
    noise, shared, tails = condition
    runs = simulate(GRID, LAW, JOINT, noise, shared, tails, seed=seed)
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


def one_comparison(seed: int, condition: tuple[float, float, float]) -> tuple[bool, float]:
    """Whether the interval on the difference in phi covers, and its width."""
    lower = GRID.select(GRID["budget"] < 5e18)
    drawn = [("", JOINT["phi"], lower["r"] == 1), *((name, phi, lower["r"] > 1) for name, phi in RECIPES.items())]
    tables = [
        simulate(lower.select(part), LAW, {**JOINT, "phi": phi}, *condition, seed=3 * seed + k)
        for k, (_, phi, part) in enumerate(drawn)
    ]
    columns = {name: np.concatenate([t[name] for t in tables]) for name in tables[0].columns}
    labels = [name for (name, _, _), t in zip(drawn, tables, strict=True) for _ in range(len(t))]
    (difference,) = compare(Runs(columns).with_columns(recipe=labels), reference="plain", level=LEVEL).differences
    low, high = difference.phi_interval or (-np.inf, np.inf)
    return low <= RECIPES["hyper"] - RECIPES["plain"] <= high, high - low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", type=int, default=2000)
    parser.add_argument("--methods", default="jackknife,bootstrap,profile,delta,compare")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--conditions", default="", help="numbers of the conditions to run, from 0, e.g. 0,3")
    args = parser.parse_args()
    wanted = args.methods.split(",")
    methods = tuple(method for method in wanted if method != "compare")
    chosen = [CONDITIONS[int(k)] for k in args.conditions.split(",")] if args.conditions else CONDITIONS
    print(f"{machine()}\n{args.grids} grids a condition; share of intervals that cover, in percent, at a nominal 95\n")
    print("| run noise | cell noise | tails | method | phi | others: lowest-highest | median half-width of phi |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)

    def row(condition: tuple[float, float, float], method: str, covers: np.ndarray, others: str, width: float) -> None:
        noise, shared, tails = condition
        share = 100 * covers.mean()
        error = np.sqrt(share * (100 - share) / len(covers))
        print(
            f"| {noise:.1%} | {shared:.1%} | {'normal' if np.isinf(tails) else f't{tails:g}'} | {method} "
            f"| {share:.1f} ({error:.1f}) | {others} | {width:.4f} |",
            flush=True,
        )

    with ProcessPoolExecutor(args.workers) as pool:
        for condition in chosen:
            if methods:
                work = partial(one_grid, condition=condition, methods=methods)
                outcome = np.stack(list(pool.map(work, range(args.grids), chunksize=20)))
                for k, method in enumerate(methods):
                    others = 100 * np.delete(outcome[:, k, :-1].mean(0), PHI)
                    span = "-" if method == "profile" else f"{others.min():.1f}-{others.max():.1f}"
                    row(condition, method, outcome[:, k, PHI], span, float(np.median(outcome[:, k, -1]) / 2))
            if "compare" in wanted:
                work = partial(one_comparison, condition=condition)
                found = np.array(list(pool.map(work, range(args.grids), chunksize=20)))
                row(condition, "compare", found[:, 0], "-", float(np.median(found[:, 1]) / 2))


if __name__ == "__main__":
    main()
