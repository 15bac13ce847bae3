"""Figures of arXiv 2604.21106: the joint law as its authors' page prints it, and the design of its 116 runs."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from loopworth.ledger import Runs, as_runs
from loopworth.shape import Shape

JOINT = MappingProxyType({"A": 28.027, "alpha": 0.19924, "B": 915.82, "beta": 0.36863, "E": 1.56773, "phi": 0.459})
JOINT_PHI_INTERVAL = (0.41, 0.53)

# Widths in units of 64, for each budget and each r.
GRID = MappingProxyType(
    {
        4.64e17: (6, 8, 10, 12),
        1e18: (6, 8, 10, 12, 14),
        2.15e18: (8, 10, 12, 14, 16),
        4.64e18: (10, 12, 14, 16, 18, 20),
        1e19: (12, 16, 18, 20, 24),
        2.15e19: (18, 24, 28, 34),
    }
)
PASSES = (1, 2, 4, 8)


def paper_grid() -> Runs:
    """The design of the 116 runs, in raw parameter groups and without losses, which were not published."""
    cells = [(budget, Shape(width=64 * s, r=r)) for r in PASSES for budget, widths in GRID.items() for s in widths]
    groups = ("n_once", "n_rec", "n_injection", "n_head", "r", "width", "flops_per_token")
    columns = {name: np.array([getattr(shape, name) for _, shape in cells], dtype=float) for name in groups}
    columns["budget"] = np.array([budget for budget, _ in cells])
    columns["tokens"] = np.array([shape.tokens(budget) for budget, shape in cells])
    return as_runs(columns, source="the paper's grid")
