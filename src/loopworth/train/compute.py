"""How a run is computed on this machine: device, precision, compiled or not, how much at once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

import torch
from torch import Tensor

from loopworth.errors import BadInput
from loopworth.model import LoopedTransformer, nats
from loopworth.model.looped import run_layer
from loopworth.study import RunSpec

# A cold compilation takes half a minute a shape, a warm one seconds: worth it for runs of more tokens than these.
_WORTH_COMPILING = {"cpu": 1e6, "cuda": 2e7}
_SHAPES = 1024  # in one process
# Read when CUDA's library of products is first used: sums in an order that does not change from run to run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@dataclass(frozen=True)
class Compute:
    """Decided once per run and kept with it, so that a resumed run computes the same to the bit.

    `device` is cpu or cuda, whichever of them it is.
    """

    device: str
    precision: str
    compiled: bool
    rows_at_once: int
    threads: int
    processes: int

    @property
    def dtype(self) -> torch.dtype:
        """What matrices are multiplied in."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32

    @classmethod
    def of(cls, raw: Mapping[str, Any], source: str) -> Compute:
        """From compute.json."""
        if raw.keys() != {field.name for field in fields(cls)}:
            raise BadInput(f"{source} is not what this version writes: remove the run's folder, then run again.")
        return cls(**raw)

    def as_json(self) -> dict[str, str | bool | int]:
        """For compute.json and the record."""
        return asdict(self)


def decide(
    spec: RunSpec,
    device: str | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
    ranks: int = 1,
    rows_at_once: int | None = None,
) -> Compute:
    """The quickest way that this machine has, from the spec and the machine alone: no choice depends on a stopwatch."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise BadInput(f"there is no device {device!r}. There are: cpu, cuda, cuda:1 and so on.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadInput("device cuda is asked for, but torch sees no CUDA device here. Leave --device out for the CPU.")
    if spec.rows_per_step % ranks:
        raise BadInput(f"{spec.rows_per_step} rows a step cannot be shared evenly by {ranks} processes: change batch.")
    threads = threads or _threads()
    precision = spec.precision
    if precision == "auto":
        precision = "bfloat16" if bfloat16_pays(kind) else "float32"
    if compiled is None:
        compiled = spec.trained_tokens > _WORTH_COMPILING.get(kind, float("inf")) and _can_compile(kind)
    rows = spec.rows_per_step // ranks
    most = rows_at_once or spec.tokens_at_once(kind) // spec.shape.context
    at_once = next(k for k in range(min(rows, most), 0, -1) if rows % k == 0)
    return Compute(kind, precision, compiled, at_once, threads, ranks)


def _threads() -> int:
    """A thread for each core that this process may use, or what OMP_NUM_THREADS says (torchrun makes it 1)."""
    if (told := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        return max(1, int(told))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@contextmanager
def exactly(device: str) -> Iterator[None]:
    """On a GPU, sums in an order that does not change from run to run; a CPU keeps it by itself."""
    if not device.startswith("cuda"):
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    # Not as a warning only: fused attention would then keep to its unordered sums.
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def bfloat16_pays(kind: str) -> bool:
    """Where processors multiply in bfloat16 by themselves: 1.15 to 3.8 times float32 from width 16 on (docs/model.md).

    Asked of the processor and not of a stopwatch, so that the same run is computed alike on a busy day.
    """
    if kind == "cuda":
        return torch.cuda.is_bf16_supported()
    flags = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return kind == "cpu" and any(getattr(torch.cpu, flag, bool)() for flag in flags)


@cache
def peak_flops(device: str, precision: str, seconds: float = 0.1) -> float:
    """FLOP/s of a large matrix product here, on the threads that torch has: what a share of peak is a share of."""
    size = 8192 if device == "cuda" else 1024
    narrow = precision == "bfloat16"
    x = torch.randn(size, size, device=device, dtype=torch.bfloat16 if narrow else torch.float32)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until or best == float("inf"):
        start = time.perf_counter()
        torch.matmul(x, x)
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def loss_function(model: LoopedTransformer, compiled: bool) -> Callable[[Tensor], Tensor]:
    """Rows of t + 1 tokens to their summed nats; compiled, one piece of code serves every layer and pass."""
    if not compiled:
        return lambda rows_bt: model.losses(rows_bt).sum()
    import torch._dynamo.config as dynamo  # slow to load

    # A warm worker meets many shapes, each compiled once; torch gives up after the eighth unless told otherwise.
    dynamo.recompile_limit = _SHAPES
    dynamo.accumulated_recompile_limit = 4 * _SHAPES
    model.run_layer = _compiled_layer
    return lambda rows_bt: _compiled_sum(model, model.hidden(rows_bt[:, :-1]), rows_bt[:, 1:])


def _sum(model: LoopedTransformer, x_btd: Tensor, targets_bt: Tensor) -> Tensor:
    return nats(model.read_out(x_btd), targets_bt).sum()


_compiled_layer = torch.compile(run_layer, dynamic=False, fullgraph=True)
_compiled_sum = torch.compile(_sum, dynamic=False, fullgraph=True)


def _can_compile(kind: str) -> bool:
    return kind == "cuda" or any(shutil.which(os.environ.get("CXX", name)) for name in ("g++", "clang++", "c++"))
