"""Training speed in sweep mode: one worker a core, one thread each, all of them busy at once.

    python benchmarks/train.py [--widths 64,128,256] [--contexts 128,256] [--r 4] [--batch 8192] [--rounds 5]
                               [--precision bfloat16,float32] [--eager] [--r-bwd N]

Tokens/s are sums over the workers, medians of rounds in which all workers step together; the peak is that of a large
matrix product measured by the same workers in the same run. A first step that takes long has compiled.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import time
from typing import Any

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import numpy as np

from loopworth.shape import Shape
from loopworth.study import RunSpec
from machine import machine


def worker(barrier: Any, jobs: list[dict[str, Any]], rounds: int, out: Any) -> None:
    import torch

    from loopworth.model import LoopedTransformer, Weights
    from loopworth.recipe import Optimizer
    from loopworth.train.compute import Compute, decide, loss_function, peak_flops

    torch.set_num_threads(1)
    barrier.wait()
    out.put({"peak": {p: peak_flops(p, 1.0) for p in ("float32", "bfloat16")}})
    for job in jobs:
        shape = Shape(**job["shape"])
        spec = RunSpec(shape=shape, tokens=1e9, batch=job["batch"], precision=job["precision"])
        compute: Compute = decide(spec, "cpu", 1, not job["eager"])
        model = LoopedTransformer(shape).reset(0)
        weights = Weights(model, compute.dtype)
        optimizer = Optimizer(weights, spec)
        loss = loss_function(weights.compute, compute.compiled)
        rows = torch.randint(0, shape.vocabulary, (spec.rows_per_step, shape.context + 1))

        def step(
            rows=rows, weights=weights, optimizer=optimizer, loss=loss, at_once=compute.rows_at_once, batch=spec.batch
        ) -> dict[str, float]:
            spent = {"forward": 0.0, "backward": 0.0, "gather": 0.0, "optimiser": 0.0}
            clock = time.perf_counter
            weights.gradients.zero_()
            for piece in rows.split(at_once):
                begun = clock()
                value = loss(piece) / batch
                forward = clock()
                value.backward()
                backward = clock()
                weights.gather()
                gathered = clock()
                spent["forward"] += forward - begun
                spent["backward"] += backward - forward
                spent["gather"] += gathered - backward
            begun = clock()
            optimizer.step(0.01)
            weights.spread()
            spent["optimiser"] += clock() - begun
            return spent

        begun = time.perf_counter()
        step()
        first = time.perf_counter() - begun
        step()
        found = []
        for _ in range(rounds):
            barrier.wait()
            found.append(step())
        out.put({"job": job, "first": first, "parts": {k: float(np.median([f[k] for f in found])) for k in found[0]},
                 "step": float(np.median([sum(f.values()) for f in found]))})  # fmt: skip


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
    context = mp.get_context("spawn")
    barrier, out = context.Barrier(args.workers), context.Queue()
    processes = [context.Process(target=worker, args=(barrier, jobs, args.rounds, out)) for _ in range(args.workers)]
    for process in processes:
        process.start()
    peaks = [out.get()["peak"] for _ in processes]
    peak = {precision: sum(p[precision] for p in peaks) for precision in peaks[0]}
    print(machine())
    print(f"{args.workers} workers of one thread, {args.batch:,} tokens a step each; {args.rounds} rounds")
    of_peak = f"{peak['float32'] / 1e9:.0f} GFLOP/s float32, {peak['bfloat16'] / 1e9:.0f} bfloat16"
    print(f"peak of a matrix product: {of_peak}\n")
    parts_in_words = "forward, backward, gather, optimiser %"
    print(f"| d, r, T | precision | tokens/s | GFLOP/s | share of bfloat16 peak | {parts_in_words} | first step s |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for job in jobs:
        found = [out.get(timeout=600) for _ in processes]
        assert all(json.dumps(f["job"]) == json.dumps(job) for f in found)
        shape = Shape(**job["shape"])
        speed = sum(job["batch"] / f["step"] for f in found)
        flops = speed * shape.flops_per_token
        parts = {k: np.mean([f["parts"][k] / f["step"] for f in found]) for k in found[0]["parts"]}
        print(
            f"| {shape.width}, {shape.r}, {shape.context} | {job['precision']} | {speed:,.0f} | {flops / 1e9:.0f} "
            f"| {flops / peak['bfloat16']:.0%} | {', '.join(f'{100 * v:.0f}' for v in parts.values())} "
            f"| {max(f['first'] for f in found):.1f} |",
            flush=True,
        )
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
