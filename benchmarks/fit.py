"""The engine against SciPy's published protocol, side by side in one run: the 116-run grid with 0.3 % of noise.

python benchmarks/fit.py [--starts 500] [--scipy-resamples 3]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import numpy as np

from loopworth.laws import intervals
from loopworth.laws.catalogue import LAWS
from loopworth.laws.design import cells
from loopworth.laws.diagnostics import problem_of
from loopworth.laws.engine import solve
from loopworth.laws.fit import fit
from loopworth.laws.published import JOINT, paper_grid
from loopworth.laws.simulate import simulate

T = TypeVar("T")
from machine import machine
from scipy_protocol import scipy_best


def timed(work: Callable[[], T], rounds: int) -> tuple[float, T]:
    """Median seconds of some rounds, and the last result."""
    spent = []
    results = []
    for _ in range(rounds):
        start = time.perf_counter()
        results.append(work())
        spent.append(time.perf_counter() - start)
    return float(np.median(spent)), results[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=500, help="SciPy's; the paper's is 500")
    parser.add_argument("--scipy-resamples", type=int, default=3, help="done by SciPy, then extrapolated to 1,000")
    args = parser.parse_args()

    law = LAWS["joint"]
    runs = simulate(paper_grid(), law, JOINT, noise=0.003, seed=1)
    problem = problem_of(law, runs, 1e-3, "once", {})
    member, _ = cells(runs)
    solve(problem)

    one, best = timed(lambda: solve(problem), 15)
    paper, _ = timed(lambda: solve(problem, "paper"), 3)
    left, _ = timed(lambda: intervals.jackknife(problem, best.theta, member, 0.95), 15)
    many, drawn = timed(lambda: intervals.bootstrap(problem, best.theta, member, 0.95, 1000), 5)
    whole, _ = timed(lambda: fit(runs), 5)
    print(f"scipy ({args.starts} starts, then {args.scipy_resamples} resamples) takes a while ...", file=sys.stderr)
    exact, yardstick = timed(lambda: scipy_best(problem, args.starts), 1)
    tenth, _ = timed(lambda: scipy_best(problem, max(1, args.starts // 10), gradient=False), 1)
    numeric = 10 * tenth

    # The same work for SciPy: each resample (whole cells drawn again) from all its starts.
    rng = np.random.default_rng(0)
    count = int(member.max()) + 1
    spent = 0.0
    worst = 0.0
    for _ in range(args.scipy_resamples):
        at = np.concatenate([np.flatnonzero(member == c) for c in rng.integers(count, size=count)])
        resample = problem.rows(at)
        start = time.perf_counter()
        theirs = scipy_best(resample, args.starts)
        spent += time.perf_counter() - start
        worst = max(worst, solve(resample).objective / theirs.fun - 1)
    thousand = 1000 * spent / args.scipy_resamples

    print(f"\n{machine()}\n116 runs, 0.3 % noise, one thread; medians\n")
    print("| what | loopworth | SciPy L-BFGS-B | ratio |")
    print("| --- | --- | --- | --- |")
    print(f"| the global optimum, analytic gradient | {one * 1e3:.0f} ms | {exact:.1f} s | {exact / one:,.0f} |")
    print(
        f"| the same, SciPy with numeric gradients (from a tenth of its starts) | {one * 1e3:.0f} ms "
        f"| {numeric:.1f} s | {numeric / one:,.0f} |"
    )
    print(
        f"| {args.starts} uniform starts (--protocol paper) | {paper * 1e3:.0f} ms | {exact:.1f} s "
        f"| {exact / paper:,.0f} |"
    )
    print(
        f"| 1,000 converged block resamples (SciPy: from {args.scipy_resamples}, extrapolated) | {many:.2f} s "
        f"| {thousand:,.0f} s | {thousand / many:,.0f} |"
    )
    print(f"| jackknife over 24 cells, the default interval | {left * 1e3:.0f} ms | | |")
    print(f"| lw.fit with every diagnostic | {whole * 1e3:.0f} ms | | |")
    print(
        f"\nobjective: loopworth {best.objective:.12e}, SciPy {yardstick.fun:.12e}, "
        f"relative difference {best.objective / yardstick.fun - 1:+.1e}; {best.agreeing} of {best.starts} starts agree"
    )
    print(
        f"resamples: {1000 - drawn.unconverged} of 1000 converged; on SciPy's, the worst relative difference is "
        f"{worst:+.1e}"
    )


if __name__ == "__main__":
    main()
