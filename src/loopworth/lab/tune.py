"""Find base rates by a sweep, and say what one rate for all costs: the regret of SCIENCE, section 4."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

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
    the cell that suffers most."""

    rate: str
    base: float
    factors: tuple[float, ...]
    cells: tuple[Cell, ...]
    common: float
    worst_regret: float | None


def tune(
    spec: RunSpec,
    root: str | Path,
    *,
    rate: str = "matrix",
    factors: Iterable[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
    widths: Iterable[int] = (),
    r: Iterable[int] = (),
    ratios: Iterable[float] = (1.0,),
    threads: int | None = None,
    watch: Callable[[RunRecord], object] | None = None,
) -> Tuning:
    """Train the spec at every factor of one base rate, at every width, r and multiple of its tokens.

    Runs land in `root` like any other: what is there is not done again.
    """
    if rate not in RATES:
        raise BadInput(f"There is no rate {rate!r}. There are: {', '.join(RATES)}.")
    factors = tuple(sorted({*map(float, factors), 1.0}))
    if len(factors) < 3 or factors[0] <= 0:
        raise BadInput("factors must be above 0, and at least three with 1 among them, such as 0.5, 1, 2.")
    base = getattr(spec.recipe, f"{rate}_rate")
    cells, floors = [], []
    for design in _designs(spec, tuple(widths), tuple(r), tuple(ratios)):
        losses = []
        for factor in factors:
            raw = design.as_json()
            raw["recipe"][f"{rate}_rate"] = base * factor
            record = train(parse_spec(raw), root, threads=threads)
            losses.append(record.loss)
            if watch:
                watch(record)
        best, lowest = _lowest(factors, losses)
        floors.append(np.inf if lowest is None else lowest)
        at_base = losses[factors.index(1.0)]
        regret = None if lowest is None or at_base is None else at_base - lowest
        cells.append(Cell(int(design.shape.width), design.shape.r, design.trained_tokens, tuple(losses), best, regret))
    table = np.array([[np.inf if loss is None else loss for loss in cell.losses] for cell in cells])
    common = int(table.mean(0).argmin())
    worst = float((table[:, common] - np.minimum(table.min(1), floors)).max())
    return Tuning(rate, base, factors, tuple(cells), factors[common], worst if np.isfinite(worst) else None)


def _designs(spec: RunSpec, widths: tuple[int, ...], r: tuple[int, ...], ratios: tuple[float, ...]) -> list[RunSpec]:
    found = []
    for width in widths or (int(spec.shape.width),):
        for passes in r or (spec.shape.r,):
            for ratio in ratios:
                raw = spec.as_json()
                raw["shape"] |= {"width": width, "r": passes}
                raw["tokens"], raw["budget"] = spec.wanted_tokens * ratio, None
                found.append(parse_spec(raw))
    return found


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
