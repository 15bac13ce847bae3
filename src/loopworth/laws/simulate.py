"""Runs drawn from a law whose parameters are known, to see what a method makes of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loopworth.laws.design import cells, law_columns
from loopworth.laws.law import Array, Law
from loopworth.ledger import Runs


def simulate(
    design: Runs,
    law: Law,
    params: Mapping[str, float],
    noise: float,
    cell_noise: float = 0.0,
    tails: float = np.inf,
    convention: str = "once",
    seed: int = 0,
) -> Runs:
    """The design with a loss column: the law's loss times exp(noise).

    `noise` is the standard deviation of ln loss (0.003 is 0.3 %); `cell_noise` the part that the runs of a (budget,
    architecture) cell share; `tails` the degrees of freedom of Student's t in place of the normal, scaled to the same
    standard deviation.
    """
    rng = np.random.default_rng(seed)
    log_loss = np.log(law.predict(params, law_columns(law, design, convention)))
    member, _ = cells(design, law.columns)
    own = _noise(rng, len(design), tails)
    shared = _noise(rng, int(member.max()) + 1, tails)[member]
    return design.with_columns(loss=np.exp(log_loss + noise * own + cell_noise * shared))


def _noise(rng: np.random.Generator, count: int, tails: float) -> Array:
    if np.isinf(tails):
        return rng.standard_normal(count)
    return rng.standard_t(tails, count) * np.sqrt((tails - 2) / tails)
