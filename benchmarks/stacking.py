"""What training several small models of one shape as one would give: layers with batched products against one by one.

    python benchmarks/stacking.py [--widths 16,32,64] [--tokens 512,1024,2048,4096] [--stacks 2,4]

Twenty layers (eight distinct ones), compiled, forward and backward on one thread; nothing around them. Printed is the
time of S models one after the other over the time of a stack of S; `tokens` are those of a step of one model.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
if "GLIBC_TUNABLES" not in os.environ:  # read when a process starts
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch
import torch._dynamo.config as dynamo

from loopworth.model.layers import Layer, rotations
from loopworth.shape import Shape
from machine import machine

ROUNDS = 11


def step_seconds(width: int, tokens: int, stack: int, context: int = 128) -> float:
    """Median seconds of a forward and backward pass of `stack` models together."""
    torch.manual_seed(0)
    rotation = rotations(context, width)
    layer = Layer(Shape(width, context=context, vocabulary=256))
    layers = [
        {
            name: torch.stack([narrow(name, torch.randn_like(p) * width**-0.5) for _ in range(stack)]).requires_grad_()
            for name, p in layer.named_parameters()
        }
        for _ in range(8)
    ]

    def one(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, values, (x, rotation))

    together = torch.compile(torch.vmap(one) if stack > 1 else one, dynamic=False)
    if stack == 1:
        layers = [{name: p.detach()[0].requires_grad_() for name, p in values.items()} for values in layers]
    start = torch.randn(stack, tokens // context, context, width).bfloat16()

    def step() -> None:
        x = start if stack > 1 else start[0]
        for k in range(20):
            x = together(layers[k % 8], x)
        x.float().square().sum().backward()
        for values in layers:
            for p in values.values():
                p.grad = None

    took = []
    for _ in range(2 + ROUNDS):
        begun = time.perf_counter()
        step()
        took.append(time.perf_counter() - begun)
    return sorted(took[2:])[ROUNDS // 2]


def narrow(name: str, value: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(value) if "norm" in name else value.bfloat16()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="16,32,64")
    parser.add_argument("--tokens", default="512,1024,2048,4096")
    parser.add_argument("--stacks", default="2,4")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 1024
    stacks = [int(s) for s in args.stacks.split(",")]
    print(machine())
    print("| width | tokens a step | alone, ms | " + " | ".join(f"{s} stacked: ratio" for s in stacks) + " |")
    print("| --- " * (3 + len(stacks)) + "|")
    for width in map(int, args.widths.split(",")):
        for tokens in map(int, args.tokens.split(",")):
            alone = step_seconds(width, tokens, 1)
            ratios = (s * alone / step_seconds(width, tokens, s) for s in stacks)
            print(
                f"| {width} | {tokens:,} | {1e3 * alone:.1f} | " + " | ".join(f"{x:.2f}" for x in ratios) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
