"""Never worse than SciPy: the objective against the best of L-BFGS-B from 500 uniform starts, on simulated grids.

python benchmarks/optimum.py [--grids 200] [--starts 500] [--workers 2]
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import numpy as np

from loopworth.laws.catalogue import LAWS
from loopworth.laws.diagnostics import problem_of
from loopworth.laws.engine import solve
from loopworth.laws.published import JOINT, paper_grid
from loopworth.laws.simulate import simulate
from machine import machine
from scipy_protocol import scipy_best

KINDS = ((0.001, 0.0, np.inf), (0.003, 0.0, np.inf), (0.01, 0.0, np.inf), (0.003, 0.003, np.inf), (0.003, 0.0, 3.0))


def one_grid(seed: int, starts: int) -> tuple[float, float, int]:
    """Our objective, SciPy's, and how many of our starts agree."""
    noise, shared, tails = KINDS[seed % len(KINDS)]
    law = LAWS["joint"]
    runs = simulate(paper_grid(), law, JOINT, noise, shared, tails, seed=seed)
    problem = problem_of(law, runs, 1e-3, "once", {})
    best = solve(problem)
    return best.objective, float(scipy_best(problem, starts, seed).fun), best.agreeing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", type=int, default=200)
    parser.add_argument("--starts", type=int, default=500)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    with ProcessPoolExecutor(args.workers) as pool:
        found = np.array(list(pool.map(partial(one_grid, starts=args.starts), range(args.grids))))
    ours, theirs, agreeing = found.T
    excess = ours / theirs - 1
    worse = (ours > theirs * (1 + 1e-9)) & (ours > theirs + 1e-15)
    print(machine())
    print(
        f"{args.grids} grids of 116 runs (noise 0.1-1 %, cell effects, heavy tails), SciPy best of {args.starts} starts"
    )
    print(f"worse than SciPy beyond 1e-9 relative and 1e-15 absolute: {int(worse.sum())}")
    print(
        f"relative excess of the objective: median {np.median(excess):+.1e}, highest {excess.max():+.1e}, "
        f"lowest {excess.min():+.1e}"
    )
    print(f"SciPy missed the optimum by more than 1e-6 relative: {int((excess < -1e-6).sum())}")
    print(f"starts agreeing, of 24: median {np.median(agreeing):.0f}, fewest {agreeing.min():.0f}")


if __name__ == "__main__":
    main()
