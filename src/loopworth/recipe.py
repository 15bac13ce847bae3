"""Optimisers, rates and how they transfer, schedules; SCIENCE, section 4."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from loopworth.model import Weights
from loopworth.model.weights import Stack
from loopworth.study import Recipe, RunSpec, fork_step

MOMENTUM = 0.95
BETAS, EPS = (0.8, 0.95), 1e-10

# Polar Express (arXiv 2505.16932): five quintic steps that bring singular values between 0.001 and 1 near 1.
_POLAR = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def rates(spec: RunSpec, rule_tokens: float | None = None) -> dict[str, float]:
    """Peak rate of each group at this width, batch and data; `rule_tokens`: of a trunk's longest branch."""
    recipe = spec.recipe
    tokens = spec.rule_tokens if rule_tokens is None else rule_tokens
    width = (spec.shape.width / recipe.reference_width) ** -0.5
    batch = (spec.batch / recipe.reference_batch) ** 0.558
    data = (tokens / recipe.reference_tokens) ** -0.32
    matrix = {"muonh": data, "adamw": width, "muon": 1.0}[recipe.optimizer]
    return {group: rate * batch * (matrix if group == "matrix" else width) for group, rate in spec.base_rates.items()}


def schedule(recipe: Recipe, step: int, steps: int, kind: str = "run") -> float:
    """The share of the peak rate at a step (from 0). A trunk never decays; its branches do."""
    begin = min(1.0, (step + 1) / max(1.0, recipe.warmup * steps))
    if kind == "trunk":
        return begin
    share = 1.0 if recipe.schedule == "linear" else recipe.decay
    left = min(1.0, (steps - step) / max(1.0, steps - fork_step(steps, share)))
    return begin * (left + (1 - left) * recipe.final_rate)


class MuonH:
    """Muon on a sphere: momentum, orthogonalised, scaled to the start's Frobenius norm; weights go back onto it."""

    def __init__(self, stack: Stack, dtype: torch.dtype) -> None:
        self.stack = stack
        self.dtype = dtype
        self.momentum = torch.zeros_like(stack.values)
        self.radius = torch.linalg.matrix_norm(stack.values, keepdim=True)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update of every matrix of the stack."""
        values, gradients = self.stack.values, self.stack.gradients
        self.momentum.lerp_(gradients, 1 - MOMENTUM)
        update = orthogonalised(gradients.lerp(self.momentum, MOMENTUM).to(self.dtype)).float()
        length = torch.linalg.matrix_norm(update, keepdim=True).clamp_min(1e-10)
        values.sub_(update * (rate * self.radius / length))
        values.mul_(self.radius / torch.linalg.matrix_norm(values, keepdim=True).clamp_min(1e-10))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs."""
        return {"momentum": self.momentum, "radius": self.radius}


def orthogonalised(x: Tensor) -> Tensor:
    """Nearly the orthogonal factor of each matrix of a stack."""
    wide = x.mT if x.shape[-2] > x.shape[-1] else x
    wide = wide / (torch.linalg.matrix_norm(wide, keepdim=True) * 1.02 + 1e-6)
    for a, b, c in _POLAR:
        gram = wide @ wide.mT
        wide = a * wide + (b * gram + c * (gram @ gram)) @ wide
    return wide.mT if x.shape[-2] > x.shape[-1] else wide


class Optimizer:
    """Every group's optimiser. The rates are peaks; `step(share)` takes the schedule's share of them."""

    def __init__(self, weights: Weights, spec: RunSpec, rule_tokens: float | None = None) -> None:
        self.rates = rates(spec, rule_tokens)
        kind = spec.recipe.optimizer
        matrices = [s for s in weights.stacks if s.group == "matrix"]
        others = [s for s in weights.stacks if s.group != "matrix"]
        self._spheres = [MuonH(s, _orthogonalising(s, weights)) for s in matrices] if kind == "muonh" else []
        plain = others + (matrices if kind == "adamw" else [])
        self._torch: list[tuple[str, torch.optim.Optimizer]] = []
        if plain:
            groups = [{"params": [_leaf(s)], "group": s.group} for s in plain]
            fused = torch.optim.AdamW(groups, lr=1.0, betas=BETAS, eps=EPS, weight_decay=0.0, fused=True)
            self._torch.append(("adamw", fused))
        if kind == "muon":
            leaves = [{"params": [_leaf(s, k) for k in range(len(s.names))], "group": s.group} for s in matrices]
            self._torch.append(("muon", torch.optim.Muon(leaves, lr=1.0, momentum=MOMENTUM, weight_decay=0.0)))

    def step(self, share: float) -> None:
        """Move every parameter against its gradient."""
        for sphere in self._spheres:
            sphere.step(share * self.rates["matrix"])
        for _, optimizer in self._torch:
            for group in optimizer.param_groups:
                group["lr"] = share * self.rates[group["group"]]
            optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs, by name."""
        found = {f"sphere.{k}.{n}": t for k, s in enumerate(self._spheres) for n, t in s.state().items()}
        for name, optimizer in self._torch:
            for k, one in optimizer.state_dict()["state"].items():
                found |= {f"{name}.{k}.{key}": torch.as_tensor(value) for key, value in one.items()}
        return found

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state()`."""
        for k, sphere in enumerate(self._spheres):
            for name, tensor in sphere.state().items():
                tensor.copy_(state[f"sphere.{k}.{name}"])
        for name, optimizer in self._torch:
            found: dict[int, dict[str, Tensor]] = {}
            for key, tensor in state.items():
                if key.startswith(f"{name}."):
                    _, place, field = key.split(".")
                    found.setdefault(int(place), {})[field] = tensor
            optimizer.load_state_dict({"state": found, "param_groups": optimizer.state_dict()["param_groups"]})


def _orthogonalising(stack: Stack, weights: Weights) -> torch.dtype:
    """The computing precision, where matrices are large enough for that to be faster."""
    return weights.dtype if min(stack.values.shape[-2:]) >= 128 else torch.float32


def _leaf(stack: Stack, place: int | None = None) -> Tensor:
    """A stack, or one of it, as a parameter that shares its memory and has its gradient."""
    values, gradients = (
        (stack.values, stack.gradients)
        if place is None
        else (
            stack.values[place],
            stack.gradients[place],
        )
    )
    leaf = torch.nn.Parameter(values)
    leaf.grad = gradients
    return leaf
