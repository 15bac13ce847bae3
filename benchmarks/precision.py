"""Whether bfloat16 costs anything: held-out losses of the same runs in both precisions, over seeds.

    python benchmarks/precision.py PACK [--width 64] [--r 4] [--tokens 2e6] [--batch 2048] [--context 128] [--seeds 5]
                                   [--to runs]

One thread a run, as many at once as there are cores; what is finished is not done again.
"""

from __future__ import annotations

import argparse

import numpy as np

from loopworth.study import parse_spec
from machine import machine
from trained import trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--r", type=int, default=4)
    parser.add_argument("--tokens", type=float, default=2e6)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--to", default="runs")
    args = parser.parse_args()
    precisions = ("float32", "bfloat16")
    specs = [
        parse_spec(
            {
                "pack": args.pack, "tokens": args.tokens, "batch": args.batch, "precision": precision,
                "init_seed": seed, "data_seed": seed, "validation_tokens": 2**19,
                "shape": {"width": args.width, "r": args.r, "context": args.context, "vocabulary": 256},
            }
        )
        for precision in precisions
        for seed in range(args.seeds)
    ]  # fmt: skip
    records = trained(specs, args.to)
    losses = np.array([record.loss for record in records], float).reshape(2, -1)
    speeds = np.array([record.tokens_per_second for record in records]).reshape(2, -1)
    print(machine())
    print(f"width {args.width}, r = {args.r}, {records[0].tokens:,} tokens, steps of {args.batch:,}, pack {args.pack}")
    print("| | " + " | ".join(f"seed {k}" for k in range(args.seeds)) + " | mean | sd of a seed | tokens/s |")
    print("| --- " * (args.seeds + 4) + "|")
    for precision, row, speed in zip(precisions, losses, speeds, strict=True):
        cells = " | ".join(f"{loss:.4f}" for loss in row)
        print(f"| {precision} | {cells} | {row.mean():.4f} | {row.std(ddof=1):.4f} | {speed.mean():,.0f} |")
    gap = losses[1] - losses[0]
    print(f"\nbfloat16 - float32: {gap.mean():+.4f} +- {gap.std(ddof=1) / len(gap) ** 0.5:.4f} nats (standard error)")


if __name__ == "__main__":
    main()
