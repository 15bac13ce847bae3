"""The looped transformer of SCIENCE, section 2: prelude, a loop of layers run r times, coda."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from loopworth.model.injections import Injection, injection
from loopworth.model.layers import Layer, Norm, rotations
from loopworth.shape import Shape

SOFTCAP = 15.0


class LoopedTransformer(nn.Module):
    """Decoder-only; `Shape` says everything about it. At r = 1 there is no injection and it is a plain stack.

    `state_dict()` names are stable: docs/model.md lists them.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        shape.buildable()
        self.shape = shape
        d = int(shape.width)
        self.embedding = nn.Embedding(shape.vocabulary, d)
        self.norm_embedding = Norm(d)
        self.prelude = nn.ModuleList(Layer(shape) for _ in range(shape.prelude))
        self.injection = injection(shape)
        self.loop = nn.ModuleList(Layer(shape) for _ in range(shape.loop))
        self.norm_loop = Norm(d)
        self.coda = nn.ModuleList(Layer(shape) for _ in range(shape.coda))
        self.norm_head = Norm(d)
        self.head = nn.Linear(d, shape.vocabulary, bias=False)
        # Compiled code takes this place; a layer's own forward serves every r.
        self.run_layer = run_layer

    def forward(self, tokens_bt: Tensor, passes: int | None = None) -> Tensor:
        """Logits (b, t, vocabulary) in float32; `passes` other than r runs the loop that often."""
        return self.read_out(self.hidden(tokens_bt, passes))

    def losses(self, rows_bt: Tensor, passes: int | None = None) -> Tensor:
        """Nats of each token but the first of rows of t + 1 tokens: (b, t)."""
        return nats(self(rows_bt[:, :-1], passes), rows_bt[:, 1:])

    def hidden(self, tokens_bt: Tensor, passes: int | None = None) -> Tensor:
        """The stream before the last norm, (b, t, d)."""
        passes = self.shape.r if passes is None else passes
        if passes < 1:
            raise ValueError(f"passes is {passes}; the loop runs once or more")
        rotation = rotations(tokens_bt.shape[1], self.shape.attention_size, tokens_bt.device)
        x_btd = self.norm_embedding(self.embedding(tokens_bt)).to(self.dtype)
        for layer in self.prelude:
            x_btd = self.run_layer(layer, x_btd, rotation)

        e = self.injection.prepare(x_btd)
        state = self.injection.start(e)
        for i in range(passes):
            # Early passes of truncated backpropagation build no graph: nothing of them is computed backwards.
            silent = i < passes - self.shape.passes_with_gradient
            with torch.set_grad_enabled(torch.is_grad_enabled() and not silent):
                u = self.injection.enter(state, e, i)
                for layer in self.loop:
                    u = self.run_layer(layer, u, rotation)
                state = self.injection.leave(state, self.norm_loop(u), i)

        x_btd = self.injection.read(state)
        for layer in self.coda:
            x_btd = self.run_layer(layer, x_btd, rotation)
        return x_btd

    def read_out(self, x_btd: Tensor) -> Tensor:
        """Logits of a stream, softly capped, in float32."""
        return SOFTCAP * torch.tanh(self.head(self.norm_head(x_btd)).float() / SOFTCAP)

    @property
    def dtype(self) -> torch.dtype:
        """What the stream is computed in: that of the matrices."""
        return self.head.weight.dtype

    @torch.no_grad()
    def reset(self, seed: int) -> LoopedTransformer:
        """Start values, the same on every device: drawn on the CPU, matrix by matrix in the order of the modules."""
        generator = torch.Generator().manual_seed(seed)
        for name, module in self.named_modules():
            if isinstance(module, nn.Embedding):
                module.weight.copy_(torch.randn(module.weight.shape, generator=generator))
            elif isinstance(module, nn.Linear) and name == "head":
                module.weight.copy_(0.001 * torch.randn(module.weight.shape, generator=generator))
            elif isinstance(module, nn.Linear):
                # Uniform with standard deviation fan_in^-1/2; for queries to feed-forward that is d^-1/2 or (4d)^-1/2.
                fan_in = self.shape.d_feed if name.endswith("down") else self.shape.width
                bound = (3 / fan_in) ** 0.5
                module.weight.copy_(bound * (2 * torch.rand(module.weight.shape, generator=generator) - 1))
            elif isinstance(module, Norm):
                nn.init.ones_(module.weight)
            elif isinstance(module, Injection):
                module.reset()
        return self


def run_layer(layer: nn.Module, x_btd: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """One layer, as it stands."""
    return layer(x_btd, rotation)


def nats(logits_btv: Tensor, targets_bt: Tensor) -> Tensor:
    """Nats of each target, (b, t)."""
    loss = F.cross_entropy(logits_btv.flatten(0, 1), targets_bt.flatten(), reduction="none")
    return loss.view(targets_bt.shape)
