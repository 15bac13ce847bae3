"""A model's parameters in one float32 buffer, their gradients in another, and a narrow copy to compute with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from loopworth.model.injections import Diagonal, Hyperconnections, Linear
from loopworth.model.layers import Norm
from loopworth.model.looped import LoopedTransformer

GROUPS = ("matrix", "embedding", "head", "norm", "lane")


@dataclass(frozen=True)
class Stack:
    """Parameters of one group and shape: `values` and `gradients` are (count, *shape) views of the buffers."""

    group: str
    names: tuple[str, ...]
    values: Tensor
    gradients: Tensor


class Weights:
    """Takes over a model's parameters: they become views of `values`, sorted so that equal shapes lie together.

    `compute` is what runs forward and backward: the model itself, or with `dtype` a copy whose matrices are of that
    type; `gather` adds its gradients to `gradients`, `spread` brings changed values to it.
    """

    def __init__(self, model: LoopedTransformer, dtype: torch.dtype = torch.float32) -> None:
        named = sorted(model.named_parameters(), key=lambda item: _order(model, item))
        device = named[0][1].device
        count = sum(p.numel() for _, p in named)
        self.model = model
        self.dtype = dtype
        self.values = torch.empty(count, device=device)
        self.gradients = torch.zeros(count, device=device)
        self.stacks: tuple[Stack, ...] = ()
        at = 0
        for (group, shape), members in groupby(named, key=lambda item: (group_of(model, item[0]), item[1].shape)):
            names, tensors = zip(*members, strict=True)
            size = len(tensors) * tensors[0].numel()
            values = self.values[at : at + size].view(len(tensors), *shape)
            torch.stack([t.detach() for t in tensors], out=values)
            for tensor, place in zip(tensors, values.unbind(0), strict=True):
                tensor.data = place
            gradients = self.gradients[at : at + size].view(len(tensors), *shape)
            self.stacks += (Stack(group, names, values, gradients),)
            at += size
        self._order = [name for stack in self.stacks for name in stack.names]
        self._narrow = dtype != torch.float32
        self.compute = _narrowed(model, dtype) if self._narrow else model
        of_compute = dict(self.compute.named_parameters())
        self._compute = [of_compute[name] for name in self._order]
        self._places = [g for stack in self.stacks for g in stack.gradients.unbind(0)]
        self._values = [v for stack in self.stacks for v in stack.values.unbind(0)]

    @torch.no_grad()
    def gather(self) -> None:
        """Add the gradients of the computing model to the buffer and forget them there."""
        got = [(place, p.grad) for place, p in zip(self._places, self._compute, strict=True) if p.grad is not None]
        if got:
            torch._foreach_add_([place for place, _ in got], [grad for _, grad in got])  # pyright: ignore
        for p in self._compute:
            p.grad = None

    @torch.no_grad()
    def spread(self) -> None:
        """Copy changed values to the computing model."""
        if self._narrow:
            torch._foreach_copy_([p.data for p in self._compute], self._values)  # pyright: ignore

    def named(self) -> dict[str, Tensor]:
        """Every value by its name in `state_dict()`."""
        return dict(zip(self._order, self._values, strict=True))


def group_of(model: LoopedTransformer, name: str) -> str:
    """The recipe's group of a parameter: matrix, embedding, head, norm or lane."""
    owner = model.get_submodule(name.rpartition(".")[0])
    if owner is model.embedding:
        return "embedding"
    if owner is model.head:
        return "head"
    if isinstance(owner, Norm):
        return "norm"
    vector = not isinstance(owner, nn.Linear | Linear) and not name.endswith("weight")
    return "lane" if isinstance(owner, Hyperconnections | Diagonal) and vector else "matrix"


def _order(model: LoopedTransformer, item: tuple[str, nn.Parameter]) -> tuple[int, tuple[int, ...]]:
    name, parameter = item
    return GROUPS.index(group_of(model, name)), tuple(parameter.shape)


def _narrowed(model: LoopedTransformer, dtype: torch.dtype) -> LoopedTransformer:
    """A copy whose products are of the dtype. Norms and lanes stay float32, which they are computed in anyway, and so
    does the embedding: its gradient is a sum over every place of a token, which a narrow type would cut short.
    """
    copy = LoopedTransformer(model.shape).to(model.head.weight.device)
    copy.load_state_dict(model.state_dict())
    for name, parameter in copy.named_parameters():
        if group_of(copy, name) in ("matrix", "head"):
            parameter.data = parameter.data.to(dtype)
    return copy
