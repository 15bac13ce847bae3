"""Training speed in sweep mode: one worker a core, one thread each, all of them busy at once.

    python benchmarks/train.py [--widths 64,128,256] [--contexts 128,256] [--r 4] [--batch 8192] [--rounds 5]
                               [--precision bfloat16,float32] [--against float32,bfloat16] [--eager] [--r-bwd N]

Tokens/s are sums over the workers, medians of rounds in which all workers step together; the peak is that of a large
matrix product
`--against` trains the same models the usual way too, in turns with the workers, and prints the ratio: one process with
a thread a core, the whole model under torch.compile, fused attention, the whole batch at once, and for bfloat16
automatic mixed precision over float32 weights. Optimiser and formulas are the same.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import numpy as np

from loopworth.shape import Shape
from loopworth.study import RunSpec
from machine import machine

PARTS: tuple[str, ...] = ("forward", "backward", "gather", "optimiser")
PATIENCE = 1800  # seconds; a worker that has died must not keep the others


def worker(barrier: Any, jobs: list[dict[str, Any]], rounds: int, turn: int, turns: int, usual: str, out: Any) -> None:
    """Takes the steps of its turn in every round. `usual`: the precision of the usual way, "" for this project's."""
    import torch

    from loopworth.train.compute import peak_flops

    torch.set_num_threads(os.cpu_count() or 1 if usual else 1)
    barrier.wait(PATIENCE)
    if not usual:
        out.put({"peak": {p: peak_flops("cpu", p, 1.0) for p in ("float32", "bfloat16")}})
    barrier.wait(PATIENCE)
    for place, job in enumerate(jobs):
        prepare = partial(usual_step, job, usual) if usual else partial(own_step, job)
        step, *starts = started(prepare)
        if not usual:  # the second run of a shape finds the compiled code of the first
            step, second = started(prepare)
            starts.append(second)
        found = []
        for _ in range(rounds):
            for now in range(turns):
                barrier.wait(PATIENCE)
                if now == turn:
                    found.append(step())
        parts = {k: float(np.median([f[k] for f in found])) for k in PARTS}
        took = float(np.median([sum(f.values()) for f in found]))
        out.put({"place": place, "turn": turn, "starts": starts, "parts": parts, "step": took})


def started(prepare: Callable[[], Callable[[], Any]]) -> tuple[Callable[[], Any], float]:
    begun = time.perf_counter()
    step = prepare()
    step()
    return step, time.perf_counter() - begun


def own_step(job: dict[str, Any]) -> Callable[[], dict[str, float]]:
    """One step as `loopworth train` takes it."""
    from loopworth.model import LoopedTransformer, Weights
    from loopworth.train.compute import decide, loss_function

    spec = spec_of(job)
    compute = decide(spec, "cpu", 1, not job["eager"])
    weights = Weights(LoopedTransformer(spec.shape).reset(0), compute.dtype)
    return timed(spec, weights, loss_function(weights.compute, compute.compiled), compute.rows_at_once)


def usual_step(job: dict[str, Any], precision: str) -> Callable[[], dict[str, float]]:
    """One step as trainers usually take it."""
    import torch

    from loopworth.model import LoopedTransformer, Weights, layers

    layers._SHORT = 0  # fused attention at every length
    spec = spec_of(job)
    weights = Weights(LoopedTransformer(spec.shape).reset(0))
    whole = torch.compile(weights.model.losses, dynamic=False)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            return whole(rows).sum()

    return timed(spec, weights, loss, spec.rows_per_step)


def timed(spec: RunSpec, weights: Any, loss: Callable[[Any], Any], at_once: int) -> Callable[[], dict[str, float]]:
    """A step that says how long its parts took."""
    import torch

    from loopworth.recipe import Optimizer

    optimizer = Optimizer(weights, spec)
    rows = torch.randint(0, spec.shape.vocabulary, (spec.rows_per_step, spec.shape.context + 1))

    def step() -> dict[str, float]:
        spent: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        clock = time.perf_counter
        weights.gradients.zero_()
        for piece in rows.split(at_once):
            times = [clock()]
            value = loss(piece) / spec.batch
            times.append(clock())
            value.backward()
            times.append(clock())
            weights.gather()
            times.append(clock())
            for part, took in zip(PARTS, np.diff(times), strict=False):
                spent[part] += took
        begun = clock()
        optimizer.step(0.01)
        weights.spread()
        spent["optimiser"] += clock() - begun
        return spent

    return step


def spec_of(job: dict[str, Any]) -> RunSpec:
    return RunSpec(shape=Shape(**job["shape"]), tokens=1e9, batch=job["batch"], precision=job["precision"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="64,128,256")
    parser.add_argument("--contexts", default="128,256")
    parser.add_argument("--r", default="4")
    parser.add_argument("--r-bwd", type=int)
    parser.add_argument("--injection", default="linear")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--against", default="", help="precisions of the usual way")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    jobs = [
        {
            "shape": {
                "width": int(d), "r": int(r), "context": int(t), "vocabulary": 256, "r_bwd": args.r_bwd,
                "injection": args.injection,
            },
            "batch": args.batch, "precision": precision, "eager": args.eager,
        }
        for d in args.widths.split(",")
        for r in args.r.split(",")
        for t in args.contexts.split(",")
        for precision in args.precision.split(",")
    ]  # fmt: skip
    os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")  # as `loopworth train` does, for the workers
    against = [precision for precision in args.against.split(",") if precision]
    turns = 1 + len(against)
    context = mp.get_context("spawn")
    barrier, out = context.Barrier(args.workers + len(against)), context.Queue()
    workers = [(0, "")] * args.workers + list(enumerate(against, 1))
    processes = [
        context.Process(target=worker, args=(barrier, jobs, args.rounds, turn, turns, usual, out), daemon=True)
        for turn, usual in workers
    ]
    for process in processes:
        process.start()
    peaks = [out.get(timeout=PATIENCE)["peak"] for _ in range(args.workers)]
    peak = {precision: sum(p[precision] for p in peaks) for precision in peaks[0]}
    print(machine())
    print(f"{args.workers} workers of one thread, {args.batch:,} tokens a step each; {args.rounds} rounds")
    of_peak = f"{peak['float32'] / 1e9:.0f} GFLOP/s float32, {peak['bfloat16'] / 1e9:.0f} bfloat16"
    print(f"peak of a matrix product: {of_peak}\n")
    usually = "".join(f" usual way, {p}: tokens/s | ratio |" for p in against)
    print(
        "| d, r, T | precision | tokens/s | GFLOP/s | share of bfloat16 peak "
        f"| {', '.join(PARTS)} % | first and second start s |{usually}"
    )
    print("| --- " * (7 + 2 * len(against)) + "|", flush=True)
    for place, job in enumerate(jobs):
        found = [out.get(timeout=PATIENCE) for _ in processes]
        assert {f["place"] for f in found} == {place}
        own = [f for f in found if f["turn"] == 0]
        shape = Shape(**job["shape"])
        speed = sum(job["batch"] / f["step"] for f in own)
        flops = speed * shape.flops_per_token
        parts = [np.mean([f["parts"][k] / f["step"] for f in own]) for k in PARTS]
        starts = (max(f["starts"][k] for f in own) for k in range(2))
        others = [job["batch"] / f["step"] for f in sorted(found, key=lambda f: f["turn"]) if f["turn"]]
        print(
            f"| {shape.width}, {shape.r}, {shape.context} | {job['precision']} | {speed:,.0f} | {flops / 1e9:.0f} "
            f"| {flops / peak['bfloat16']:.0%} | {', '.join(f'{100 * v:.0f}' for v in parts)} "
            f"| {', '.join(f'{s:.1f}' for s in starts)} |" + "".join(f" {o:,.0f} | {speed / o:.2f} |" for o in others),
            flush=True,
        )
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
