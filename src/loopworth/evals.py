"""What a model knows of rows it has not seen: nats by position. The one validation function of the project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from loopworth.model import LoopedTransformer


@dataclass(frozen=True)
class Validation:
    """Mean nats per token, and by position (from 1). Standard errors take a row's tokens as one observation."""

    nats: float
    standard_error: float
    positions: NDArray[np.float64]
    positions_standard_error: NDArray[np.float64]
    rows: int

    @property
    def tokens(self) -> int:
        """Tokens predicted."""
        return self.rows * len(self.positions)


@torch.inference_mode()
def validate(
    model: LoopedTransformer, rows_bt: NDArray[np.integer], rows_at_once: int, passes: int | None = None
) -> Validation:
    """The model on rows of t + 1 tokens; with `passes`, run at another depth than trained."""
    device = model.head.weight.device
    found = []
    for at in range(0, len(rows_bt), rows_at_once):
        some = torch.as_tensor(rows_bt[at : at + rows_at_once].astype(np.int64), device=device)
        # A shorter last piece is filled up, so that compiled code sees one shape.
        fill = rows_at_once - len(some)
        losses = model.losses(torch.cat([some, some[:1].expand(fill, -1)]) if fill else some, passes)
        found.append(losses[: len(some)].double().cpu().numpy())
    nats_bt = np.concatenate(found)
    by_row = nats_bt.mean(1)
    spread = max(1, len(by_row) - 1) ** 0.5 * len(by_row) ** 0.5
    return Validation(
        float(by_row.mean()),
        float(np.sqrt(((by_row - by_row.mean()) ** 2).sum()) / spread),
        nats_bt.mean(0),
        np.sqrt(((nats_bt - nats_bt.mean(0)) ** 2).sum(0)) / spread,
        len(nats_bt),
    )
