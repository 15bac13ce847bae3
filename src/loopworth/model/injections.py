"""The ways of bringing the prelude's output e into pass i of the loop; SCIENCE, section 2."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from loopworth.shape import Shape


class Injection(nn.Module):
    """What an injection may say; left as it is, passthrough: u = h, h(0) = e, the prelude is seen once."""

    def prepare(self, e: Tensor) -> Tensor:
        """What every pass gets of the prelude's output, computed once."""
        return e

    def start(self, e: Tensor) -> Tensor:
        """The state before the first pass."""
        return e

    def enter(self, state: Tensor, e: Tensor, i: int) -> Tensor:
        """What the loop's layers get in pass i."""
        del e, i
        return state

    def leave(self, state: Tensor, out: Tensor, i: int) -> Tensor:
        """The state after pass i, whose layers gave `out`."""
        del state, i
        return out

    def read(self, state: Tensor) -> Tensor:
        """What the coda gets."""
        return state

    def reset(self) -> None:
        """Set the start values."""


class Linear(Injection):
    """u = W [e ; h] with W started at [I | 0]; h(0) = e."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(int(shape.width), 2 * int(shape.width)))

    def enter(self, state: Tensor, e: Tensor, i: int) -> Tensor:
        del i
        return F.linear(torch.cat([e, state], -1), self.weight)

    @torch.no_grad()
    def reset(self) -> None:
        nn.init.zeros_(self.weight)
        self.weight[:, : len(self.weight)].fill_diagonal_(1.0)


class Additive(Injection):
    """u = h + e, h(0) = 0."""

    def start(self, e: Tensor) -> Tensor:
        return torch.zeros_like(e)

    def enter(self, state: Tensor, e: Tensor, i: int) -> Tensor:
        del i
        return state + e


class Diagonal(Injection):
    """u = exp(-dt a) h + dt (B e) per channel, dt = softplus(delta), a = exp(log_a); h(0) = 0.

    The decay exp(-dt a) lies below 1 whatever is learnt. Started at dt = 1, a = 1, B = I.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = int(shape.width)
        self.weight = nn.Parameter(torch.empty(d, d))
        self.delta = nn.Parameter(torch.empty(d))
        self.log_a = nn.Parameter(torch.empty(d))

    def start(self, e: Tensor) -> Tensor:
        return torch.zeros_like(e)

    def prepare(self, e: Tensor) -> Tensor:
        return (F.softplus(self.delta) * F.linear(e, self.weight).float()).to(e.dtype)

    def enter(self, state: Tensor, e: Tensor, i: int) -> Tensor:
        del i
        decay = torch.exp(-F.softplus(self.delta) * torch.exp(self.log_a))
        return (decay * state.float()).to(state.dtype) + e

    @torch.no_grad()
    def reset(self) -> None:
        nn.init.eye_(self.weight)
        nn.init.constant_(self.delta, math.log(math.e - 1))
        nn.init.zeros_(self.log_a)


class Hyperconnections(Injection):
    """K lanes; u_i = alpha_i . l(i), l(i+1) = M_i l(i) + beta_i (x) s_i, and the coda gets the sum of the lanes.

    The scalars belong to passes: pass i beyond those trained takes those of i mod r.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        r, lanes = int(shape.r), shape.lanes
        self.alpha = nn.Parameter(torch.empty(r, lanes))
        self.mix = nn.Parameter(torch.empty(r, lanes, lanes))
        self.beta = nn.Parameter(torch.empty(r, lanes))

    def start(self, e: Tensor) -> Tensor:
        return e.expand(self.alpha.shape[1], *e.shape)

    def enter(self, state: Tensor, e: Tensor, i: int) -> Tensor:
        del e
        alpha = self.alpha[i % len(self.alpha)]
        return torch.einsum("l,lbtd->btd", alpha, state.float()).to(state.dtype)

    def leave(self, state: Tensor, out: Tensor, i: int) -> Tensor:
        at = i % len(self.alpha)
        # In float32: rounded to the stream's type, a scalar near 1 would move by steps of 1/128 only.
        mixed = torch.einsum("ml,lbtd->mbtd", self.mix[at], state.float())
        return (mixed + self.beta[at][:, None, None, None] * out).to(state.dtype)

    def read(self, state: Tensor) -> Tensor:
        return state.sum(0)

    @torch.no_grad()
    def reset(self) -> None:
        r, lanes = self.alpha.shape
        self.alpha.copy_(F.one_hot(torch.arange(r) % lanes, lanes))
        self.mix.copy_(torch.eye(lanes).expand(r, lanes, lanes))
        nn.init.ones_(self.beta)


def injection(shape: Shape) -> Injection:
    """The injection of a shape; at r = 1 there is none of any kind."""
    if not shape.injects or shape.injection == "passthrough":
        return Injection()
    if shape.injection == "additive":
        return Additive()
    return {"linear": Linear, "diagonal": Diagonal, "hyperconnections": Hyperconnections}[shape.injection](shape)
