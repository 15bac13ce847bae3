"""What a looped transformer is made of: norms, rotary positions, attention, feed-forward, one layer.

Shape suffixes: b rows, t positions, d width, h heads, k channels of a head, f hidden channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from loopworth.shape import Shape

EPS = 1e-6
ROTARY_BASE = 10_000.0

# Up to this many positions a plain softmax beats the fused kernels on a CPU (benchmarks/train.py).
_SHORT = 512


class Norm(nn.Module):
    """RMSNorm with a learnt scale per channel, computed in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return (unit_rms(x.float()) * self.weight).to(x.dtype)


class Attention(nn.Module):
    """Causal attention over the whole row; queries and keys rotated, then brought to unit RMS without weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.size = int(shape.attention_size)
        d, d_attn, d_kv = int(shape.width), int(shape.d_attn), int(shape.d_kv)
        self.query = nn.Linear(d, d_attn, bias=False)
        self.key = nn.Linear(d, d_kv, bias=False)
        self.value = nn.Linear(d, d_kv, bias=False)
        self.output = nn.Linear(d_attn, d, bias=False)

    def forward(self, x_btd: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        # One product for the three: small ones leave a processor idle.
        matrices = [self.query.weight, self.key.weight, self.value.weight]
        together = F.linear(x_btd, torch.cat(matrices))
        q_bhtk, k_bhtk, v_bhtk = (_heads(y, self.size) for y in together.split([len(m) for m in matrices], -1))
        mixed_bhtk = causal_attention(_prepared(q_bhtk, rotation), _prepared(k_bhtk, rotation), v_bhtk)
        return self.output(mixed_bhtk.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Squared ReLU between two matrices."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(int(shape.width), int(shape.d_feed), bias=False)
        self.down = nn.Linear(int(shape.d_feed), int(shape.width), bias=False)

    def forward(self, x_btd: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x_btd)).square())


class Layer(nn.Module):
    """x + Attention(Norm(x)), then + FeedForward(Norm(.))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm_attention = Norm(int(shape.width))
        self.attention = Attention(shape)
        self.norm_feed = Norm(int(shape.width))
        self.feed = FeedForward(shape)

    def forward(self, x_btd: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        x_btd = x_btd + self.attention(self.norm_attention(x_btd), rotation)
        return x_btd + self.feed(self.norm_feed(x_btd))


def unit_rms(x: Tensor) -> Tensor:
    """Scaled to a root mean square of 1 over the last dimension."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def rotations(positions: int, size: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Cosine and sine per position and pair of channels, each (t, size / 2)."""
    rates = ROTARY_BASE ** (-torch.arange(0, size, 2, dtype=torch.float32, device=device) / size)
    angle_tk = torch.outer(torch.arange(positions, dtype=torch.float32, device=device), rates)
    return angle_tk.cos(), angle_tk.sin()


def causal_attention(q_bhtk: Tensor, k_bhtk: Tensor, v_bhtk: Tensor) -> Tensor:
    """Softmax attention over the present and the past; key and value heads may be fewer than query heads."""
    t, size = q_bhtk.shape[-2:]
    if q_bhtk.device.type != "cpu" or t > _SHORT:
        return F.scaled_dot_product_attention(
            q_bhtk, k_bhtk, v_bhtk, is_causal=True, enable_gqa=q_bhtk.shape[1] != k_bhtk.shape[1]
        )
    share = q_bhtk.shape[1] // k_bhtk.shape[1]
    if share > 1:
        k_bhtk, v_bhtk = k_bhtk.repeat_interleave(share, 1), v_bhtk.repeat_interleave(share, 1)
    # Queries and keys have unit RMS, so that scores lie within the root of the head size: no maximum is needed.
    score_bhts = (q_bhtk @ k_bhtk.mT).float() * size**-0.5
    weight_bhts = torch.exp(score_bhts).tril()
    total_bht = weight_bhts.sum(-1, keepdim=True)
    return ((weight_bhts.to(v_bhtk.dtype) @ v_bhtk).float() / total_bht).to(v_bhtk.dtype)


def _heads(x_btd: Tensor, size: int) -> Tensor:
    return x_btd.unflatten(-1, (-1, size)).transpose(1, 2)


def _prepared(x_bhtk: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotated by position (the first half of the channels paired with the second), then unit RMS."""
    cos, sin = rotation
    first, second = x_bhtk.float().chunk(2, -1)
    rotated = torch.cat([first * cos + second * sin, second * cos - first * sin], -1)
    return unit_rms(rotated).to(x_bhtk.dtype)
