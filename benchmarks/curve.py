"""A looped run beside a plain one of the same executed depth, on a pack of real text: losses as a figure.

    python benchmarks/curve.py PACK [--width 128] [--tokens 1.6384e7] [--batch 4096] [--context 256] [--r 1,4]
                               [--to runs] [--figure docs/curve.svg]

One process of one thread for each r, at the same time; what is finished is not done again.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

from loopworth.study import RunRecord, RunSpec, parse_spec
from machine import machine
from trained import trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--tokens", type=float, default=1.6384e7)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--r", default="1,4")
    parser.add_argument("--to", default="runs")
    parser.add_argument("--figure", default="docs/curve.svg")
    args = parser.parse_args()
    specs = [
        parse_spec(
            {
                "pack": args.pack, "tokens": args.tokens, "batch": args.batch,
                "shape": {"width": args.width, "r": int(r), "context": args.context, "vocabulary": 256},
            }
        )
        for r in args.r.split(",")
    ]  # fmt: skip
    print(machine())
    records = trained(specs, args.to)
    print("| r | unique parameters in N | tokens | FLOPs | nats | +- | bits per byte | tokens/s |")
    print("| --- " * 8 + "|")
    for spec, record in zip(specs, records, strict=True):
        unique = spec.shape.n_once + spec.shape.n_rec + spec.shape.n_injection
        print(
            f"| {record.r} | {unique:,} | {record.tokens:,} | {record.flops:.3g} | {record.loss:.4f} "
            f"| {record.loss_standard_error or 0:.4f} | {record.bits_per_byte:.4f} | {record.tokens_per_second:,.0f} |"
        )
    print(f"\nxz, given the first {records[0].tokens:,} bytes of the text, packs what is held out into "
          f"{xz_bits(Path(args.pack), records[0].tokens):.3f} bits per byte")  # fmt: skip
    draw(specs, records, Path(args.to), Path(args.figure))


def xz_bits(pack: Path, count: int) -> float:
    """What a general compressor makes of the held-out text after as much of the other: a yardstick."""
    begun = (pack / "train.bin").read_bytes()[:count]
    held_out = (pack / "held-out.bin").read_bytes()
    sizes = (len(lzma.compress(text, preset=9)) for text in (begun + held_out, begun))
    return 8 * (next(sizes) - next(sizes)) / len(held_out)


def draw(specs: list[RunSpec], records: list[RunRecord], root: Path, figure: Path) -> None:
    """Training loss against tokens, in bits per byte, with what the held-out text came to."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    import numpy as np

    mpl.rcParams.update({"font.size": 10, "svg.hashsalt": "loopworth", "svg.fonttype": "path"})
    seen = []
    fig, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for colour, spec, record in zip(("#4c4c4c", "#0072b2", "#d55e00", "#009e73"), specs, records, strict=False):
        lines = (root / record.run_id / "metrics.jsonl").read_text().splitlines()
        tokens, loss = np.array([(m["tokens"], m["loss"]) for m in map(json.loads, lines)]).T
        bits = (record.bits_per_byte or np.nan) / (record.loss or np.nan)
        # Means over a tenth to either side: the noise of a step hides the curve.
        means = [loss[(tokens > t * 0.9) & (tokens <= t * 1.1)].mean() for t in tokens]
        looped = f"r = {record.r}: {spec.shape.prelude} + {spec.shape.loop} x {record.r} + {spec.shape.coda} layers"
        name = looped if record.r > 1 else f"r = 1: {spec.shape.depth} layers"
        end = f"{name}, {record.bits_per_byte:.3f} held out"
        axes.plot(tokens, bits * loss, color=colour, alpha=0.15, linewidth=0.8)
        seen.append(bits * np.array(means)[tokens > records[0].tokens / 20])
        axes.plot(tokens, bits * np.array(means), color=colour, linewidth=1.8, label=end)
        axes.plot(record.tokens, record.bits_per_byte or np.nan, "o", color=colour, markersize=6, clip_on=False)
    # The first twentieth falls from log2(vocabulary), which would press the rest together.
    axes.set(
        xscale="log",
        xlim=(records[0].tokens / 20, 1.05 * records[0].tokens),
        xlabel="tokens seen",
        ylabel="bits per byte",
    )
    axes.set_ylim(0.95 * min(map(np.min, seen)), 1.02 * max(map(np.max, seen)))
    axes.set_title(f"Width {specs[0].shape.width}: training loss (lines), held-out loss at the end (dots)", fontsize=11)
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    fig.savefig(figure, metadata={"Date": None})


if __name__ == "__main__":
    main()
