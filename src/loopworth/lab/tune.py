"""Find base rates by a sweep, and say what one rate for all costs: the regret of SCIENCE, section 4."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from signal import SIGINT, signal
from threading import Thread

import numpy as np

from loopworth.errors import BadInput
from loopworth.study import RunRecord, RunSpec, parse_spec
from loopworth.train import train

RATES = ("matrix", "embedding", "head", "norm", "lane")


@dataclass(frozen=True)
class Cell:
    """One design at every factor of the base rate; a loss is None where the run diverged.

    `best` is the factor at the minimum of a parabola through the lowest three losses, `regret` what the base rate
    costs above that minimum, in nats; None where the minimum lies at an end of the factors.
    """

    width: int
    r: int
    tokens: int
    losses: tuple[float | None, ...]
    best: float | None
    regret: float | None


@dataclass(frozen=True)
class Tuning:
    """A rate's sweep. `common` is the factor with the lowest mean loss over the cells, `worst_regret` what it costs
    the cell that suffers most; at least that, where not `bracketed`: some cell's optimum lies outside the factors."""

    rate: str
    base: float
    factors: tuple[float, ...]
    cells: tuple[Cell, ...]
    common: float
    worst_regret: float | None
    bracketed: bool


def tune(
    spec: RunSpec,
    root: str | Path,
    *,
    rate: str = "matrix",
    factors: Iterable[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
    widths: Iterable[int] = (),
    r: Iterable[int] = (),
    ratios: Iterable[float] = (),
    threads: int | None = None,
    workers: int = 1,
    watch: Callable[[RunRecord], object] | None = None,
) -> Tuning:
    """Train the spec at every factor of one base rate, at every width, r and ratio of tokens to executed parameters.

    Runs land in `root` like any other: what is there is not done again. More than one of the `workers` take a thread
    each, unless told otherwise, and the longest runs first.
    """
    if rate not in RATES:
        raise BadInput(f"There is no rate {rate!r}. There are: {', '.join(RATES)}.")
    factors = tuple(sorted({*map(float, factors), 1.0}))
    if len(factors) < 3 or factors[0] <= 0:
        raise BadInput("factors must be above 0, and at least three with 1 among them, such as 0.5, 1, 2.")
    designs = _designs(spec, tuple(widths), tuple(r), tuple(ratios))
    if rate == "lane" and not any(design.shape.n_lanes for design in designs):
        raise BadInput("the rate of lanes moves nothing here: only hyperconnections and diagonal injection have any.")
    bases = {design.base_rates[rate] for design in designs}
    if len(bases) > 1:
        raise BadInput(f"widths on both sides of 256 have {rate}_rates of their own: name one in the spec's recipe.")
    base = bases.pop()
    sweep = [[_scaled(design, rate, base * factor) for factor in factors] for design in designs]
    losses = _losses([run for row in sweep for run in row], root, threads, workers, watch)
    cells, floors = [], []
    for design, at in zip(designs, range(0, len(losses), len(factors)), strict=True):
        row = losses[at : at + len(factors)]
        best, lowest = _lowest(factors, row)
        floors.append(np.inf if lowest is None else lowest)
        at_base = row[factors.index(1.0)]
        regret = None if lowest is None or at_base is None else at_base - lowest
        cells.append(Cell(int(design.shape.width), design.shape.r, design.trained_tokens, tuple(row), best, regret))
    table = np.array([[np.inf if loss is None else loss for loss in cell.losses] for cell in cells])
    common = int(table.mean(0).argmin())
    worst = float((table[:, common] - np.minimum(table.min(1), floors)).max())
    return Tuning(
        rate,
        base,
        factors,
        tuple(cells),
        factors[common],
        worst if np.isfinite(worst) else None,
        all(cell.best is not None for cell in cells),
    )


def _designs(spec: RunSpec, widths: tuple[int, ...], r: tuple[int, ...], ratios: tuple[float, ...]) -> list[RunSpec]:
    """The spec at every width and r, each once; with its own tokens, unless there are ratios."""
    found = {}
    for width in widths or (int(spec.shape.width),):
        for passes in r or (spec.shape.r,):
            raw, at = spec.as_json(), f"width {width}, r = {passes}"
            raw["shape"] |= {"width": width, "r": passes}
            raw["tokens"], raw["budget"] = spec.wanted_tokens, None
            executed = parse_spec(raw, at).shape.n_executed
            for ratio in ratios or (None,):
                raw["tokens"] = spec.wanted_tokens if ratio is None else ratio * executed
                design = parse_spec(raw, at)
                found.setdefault(design.run_id(""), design)
    return list(found.values())


def _scaled(spec: RunSpec, rate: str, value: float) -> RunSpec:
    raw = spec.as_json()
    raw["recipe"][f"{rate}_rate"] = value
    return parse_spec(raw)


def _losses(
    specs: list[RunSpec],
    root: str | Path,
    threads: int | None,
    workers: int,
    watch: Callable[[RunRecord], object] | None,
) -> list[float | None]:
    """The loss of each run, in the order of the specs."""
    records: dict[int, RunRecord] = {}
    if workers == 1:
        for place, spec in enumerate(specs):
            records[place] = train(spec, root, threads=threads)
            if watch:
                watch(records[place])
    else:
        order = sorted(range(len(specs)), key=lambda k: -specs[k].shape.flops_per_token * specs[k].trained_tokens)
        with ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool:
            jobs = {pool.submit(train, specs[place], root, threads=threads or 1): place for place in order}
            for job in as_completed(jobs):
                if job.exception():  # told at once, and not after every run that waits
                    pool.shutdown(wait=False, cancel_futures=True)
                records[jobs[job]] = job.result()
                if watch:
                    watch(records[jobs[job]])
    return [records[place].loss for place in range(len(specs))]


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on to the end of its queue, unseen; interrupted, it just ends."""
    signal(SIGINT, lambda *_: os._exit(130))
    if parent := parent_process():
        Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


def _lowest(factors: tuple[float, ...], losses: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Factor and loss at the minimum of a parabola in ln factor through the lowest loss and its neighbours."""
    y = np.array([np.inf if loss is None else loss for loss in losses])
    at = int(y.argmin())
    if at in (0, len(y) - 1) or not np.isfinite(y[at - 1 : at + 2]).all():
        return None, None
    x = np.log(factors)
    square, slope, level = np.polyfit(x[at - 1 : at + 2] - x[at], y[at - 1 : at + 2], 2)
    step = -slope / (2 * square)
    return float(np.exp(x[at] + step)), float(level + slope * step / 2)
