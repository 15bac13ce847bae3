"""Coordinate check: the size of the stream after every layer, against width. Rates that transfer keep it level."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from loopworth.corpus import open_corpus
from loopworth.errors import BadInput
from loopworth.model import LoopedTransformer, Weights
from loopworth.recipe import Optimizer, schedule
from loopworth.study import RunSpec, parse_spec
from loopworth.train.run import check_corpus


@dataclass(frozen=True)
class Coordinates:
    """`scale[place][k]` is the RMS at `widths[k]` after training; `slope[place]` its power of the width."""

    widths: tuple[int, ...]
    steps: int
    scale: dict[str, tuple[float, ...]]
    slope: dict[str, float]


def check_coordinates(spec: RunSpec, widths: Iterable[int], steps: int = 10) -> Coordinates:
    """Train a few steps at each width and measure the root mean square of what each layer, pass and the head give.

    Slopes near 0 are what the transfer rules promise; one of 0.5 says that a rate grows too fast with width.
    """
    widths = tuple(dict.fromkeys(widths))
    if len(widths) < 2:
        raise BadInput("a coordinate check compares widths: give at least two.")
    specs = [_at(spec, width, steps) for width in widths]
    if len({tuple(one.base_rates.items()) for one in specs}) > 1:
        raise BadInput("widths on both sides of 256 have base rates of their own: name matrix_rate and head_rate.")
    found = [_scales(one, steps) for one in specs]
    places = found[0]
    scale = {place: tuple(one[place] for one in found) for place in places}
    slope = {place: float(np.polyfit(np.log(widths), np.log(v), 1)[0]) for place, v in scale.items()}
    return Coordinates(widths, steps, scale, slope)


def _at(spec: RunSpec, width: int, steps: int) -> RunSpec:
    raw = spec.as_json()
    raw["shape"]["width"] = width
    raw["tokens"], raw["budget"] = max(spec.wanted_tokens, steps * spec.batch), None
    return parse_spec(raw, f"width {width}")


def _scales(run: RunSpec, steps: int) -> dict[str, float]:
    corpus = open_corpus(run.pack)
    check_corpus(run, corpus)
    rows = corpus.rows(run.shape.context)
    model = LoopedTransformer(run.shape).reset(run.init_seed)
    weights = Weights(model)
    optimizer = Optimizer(weights, run)
    for step in range(steps):
        index = np.arange(step * run.rows_per_step, (step + 1) * run.rows_per_step)
        batch = torch.as_tensor(rows.take(index, run.data_seed).astype(np.int64))
        weights.gradients.zero_()
        for piece in batch.split(run.tokens_at_once("cpu") // run.shape.context):
            (model.losses(piece).sum() / run.batch).backward()
            weights.gather()
        optimizer.step(schedule(run.recipe, step, run.whole_steps))
    return _measured(model, torch.as_tensor(rows.held_out(run.rows_per_step).astype(np.int64))[:, :-1])


@torch.no_grad()
def _measured(model: LoopedTransformer, tokens_bt: torch.Tensor) -> dict[str, float]:
    found: dict[str, float] = {}
    names = {layer: name for name, layer in model.named_modules()}

    def run_layer(
        layer: torch.nn.Module, x_btd: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        out = layer(x_btd, rotation)
        passes = sum(key.startswith(f"{names[layer]} ") for key in found)
        found[f"{names[layer]} pass {passes + 1}" if names[layer].startswith("loop") else names[layer]] = _rms(out)
        return out

    plain, model.run_layer = model.run_layer, run_layer
    logits = model(tokens_bt)
    model.run_layer = plain
    return {**found, "logits": _rms(logits)}


def _rms(x: torch.Tensor) -> float:
    return float(x.float().square().mean().sqrt())
