"""The architecture as data, and all counting: parameters by group, FLOPs by part, memory, budget to tokens and steps.

SCIENCE, sections 2 and 3. Attention is counted as a full context x context square, causality not discounted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

INJECTIONS = ("linear", "additive", "passthrough", "hyperconnections", "diagonal")

# Injection parameters in units of width^2.
_INJECTION = {"linear": 2, "diagonal": 1, "additive": 0, "passthrough": 0, "hyperconnections": 0}


@dataclass(frozen=True)
class Shape:
    """A looped transformer: prelude, a block of layers run r times, coda.

    `depth` is the executed depth, prelude + r x loop + coda. `heads` None: as many heads of `head_size` as fill the
    width. `kv_heads` None: one per head (fewer is grouped-query attention). `d_ff` None: 4 width. `r_bwd` None: every
    pass carries gradients. At r = 1 there is no injection of any kind.
    """

    width: int
    r: int = 1
    depth: int = 20
    prelude: int = 2
    coda: int = 2
    injection: str = "linear"
    context: int = 2048
    vocabulary: int = 32_064
    head_size: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    d_ff: int | None = None
    lanes: int = 2
    r_bwd: int | None = None

    # For pydantic, which this part does not import: a misspelt field of a spec is refused.
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        for name in ("width", "r", "context", "vocabulary", "head_size", "heads", "kv_heads", "d_ff", "lanes", "r_bwd"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be 1 or more")
        for name in ("prelude", "coda"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        looped = self.depth - self.prelude - self.coda
        if looped < self.r or looped % self.r:
            raise ValueError(f"{looped} looped layers cannot be run as {self.r} equal passes")
        if self.injection not in _INJECTION:
            raise ValueError(f"injection {self.injection!r} is none of {', '.join(_INJECTION)}")
        if self.head_size and not self.heads and self.width % self.head_size:
            raise ValueError(f"width {self.width} is no whole number of heads of {self.head_size}: give heads too")
        if self.kv_heads and self.n_heads % self.kv_heads:
            raise ValueError(f"{self.n_heads:g} heads cannot share {self.kv_heads} key and value heads evenly")
        if self.attention_size % 2:
            raise ValueError(f"head size {self.attention_size:g} is odd: rotary positions turn pairs of channels")
        if self.truncated:
            if self.passes_with_gradient > self.r:
                raise ValueError(f"r_bwd = {self.r_bwd} is more than the r = {self.r} passes there are")
            if self.injection in ("passthrough", "hyperconnections"):
                raise ValueError(
                    f"r_bwd = {self.r_bwd} < r = {self.r} would cut the prelude off from every gradient: "
                    f"{self.injection} reads the prelude's output at the first pass only"
                )

    # Sizes

    @property
    def loop(self) -> int:
        """Layers in the loop, counted once."""
        return (self.depth - self.prelude - self.coda) // self.r

    @property
    def attention_size(self) -> int:
        """Channels of one attention head: the largest even divisor of the width up to 128."""
        if self.head_size:
            return self.head_size
        if self.heads:
            return max(2, int(self.width // self.heads))
        if self.width != int(self.width):
            return 128
        width = int(self.width)
        return next((size for size in range(min(width, 128), 1, -1) if width % size == size % 2 == 0), width)

    @property
    def n_heads(self) -> float:
        """Attention heads; whole for a model that can be built."""
        heads = self.heads or self.width / self.attention_size
        return int(heads) if heads == int(heads) else heads

    @property
    def d_attn(self) -> float:
        """Channels of all heads together."""
        return self.n_heads * self.attention_size

    @property
    def d_kv(self) -> float:
        """Channels of all key (or value) heads together."""
        return (self.kv_heads or self.n_heads) * self.attention_size

    @property
    def d_feed(self) -> float:
        """Hidden channels of the feed-forward part."""
        return self.d_ff or 4 * self.width

    @property
    def passes_with_gradient(self) -> int:
        """The last passes, those that backpropagation goes through."""
        return self.r_bwd or self.r

    @property
    def truncated(self) -> bool:
        """Whether some passes carry no gradient."""
        return self.passes_with_gradient != self.r

    @property
    def injects(self) -> bool:
        """Whether there is an injection at all."""
        return self.r > 1

    def buildable(self) -> None:
        """Refuse sizes that count well enough but make no model: fractions of channels, heads or layers."""
        sizes = {"width": self.width, "heads": self.n_heads, "key and value channels": self.d_kv, "d_ff": self.d_feed}
        for name, value in sizes.items():
            if value != int(value):
                raise ValueError(f"a model needs whole {name}, not {value:g}")

    # Parameters

    @property
    def n_layer(self) -> int:
        """Matrix parameters of one layer; 12 width^2 with full-width heads and d_ff = 4 width."""
        return int(2 * self.width * (self.d_attn + self.d_kv + self.d_feed))

    @property
    def n_once(self) -> int:
        """Parameters used once: prelude and coda."""
        return (self.prelude + self.coda) * self.n_layer

    @property
    def n_rec(self) -> int:
        """Parameters in the loop, the injection not counted."""
        return self.loop * self.n_layer

    @property
    def n_injection(self) -> int:
        """Matrix parameters of the injection layer."""
        return int(_INJECTION[self.injection] * self.width**2) if self.injects else 0

    @property
    def n_executed(self) -> int:
        """Matrix parameters as often as they are used, the injection among them: what tokens per parameter count."""
        injections = 1 if self.injection == "diagonal" else self.r  # what diagonal injection adds is computed once
        return self.n_once + self.r * self.n_rec + injections * self.n_injection

    @property
    def n_lanes(self) -> int:
        """What steers the loop's state: lane scalars of hyperconnections, decay and step of diagonal injection."""
        if not self.injects:
            return 0
        per = {"hyperconnections": self.r * (self.lanes**2 + 2 * self.lanes), "diagonal": 2 * self.width}
        return per.get(self.injection, 0)

    @property
    def n_norms(self) -> int:
        """Weights of the norms: two a layer, three on the stream."""
        return (2 * (self.prelude + self.loop + self.coda) + 3) * self.width

    @property
    def n_head(self) -> int:
        """Parameters of the head, and of the embedding."""
        return self.vocabulary * self.width

    @property
    def groups(self) -> dict[str, int]:
        """Parameters by group; they add up to all that the model has."""
        return {
            "embedding": self.n_head,
            "head": self.n_head,
            "prelude": self.prelude * self.n_layer,
            "loop": self.n_rec,
            "coda": self.coda * self.n_layer,
            "injection": self.n_injection,
            "lanes": self.n_lanes,
            "norms": self.n_norms,
        }

    # Cost

    @property
    def flops_forward(self) -> dict[str, int]:
        """Forward FLOPs per token by part."""
        return self._flops(2, 2)

    @property
    def flops_training(self) -> dict[str, int]:
        """Training FLOPs per token by part: passes without gradient cost their forward share."""
        return self._flops(6, 2)

    @property
    def flops_per_token(self) -> int:
        """Training FLOPs per token."""
        return sum(self.flops_training.values())

    def _flops(self, full: int, cut: int) -> dict[str, int]:
        """By part; a pass that carries gradients costs `full` per multiply-add pair, one without costs `cut`."""
        passes = full * self.passes_with_gradient + cut * (self.r - self.passes_with_gradient)
        # What a diagonal injection adds is the same in every pass and computed once.
        injecting = full if self.injection == "diagonal" else passes
        square = 2 * self.d_attn * self.context
        return {
            "prelude": full * self.prelude * self.n_layer,
            "loop": passes * self.n_rec,
            "coda": full * self.coda * self.n_layer,
            "injection": injecting * self.n_injection,
            "lanes": int(passes * (self.lanes**2 + 2 * self.lanes) * self.width) if self._hyper else 0,
            "attention": int(square * (full * (self.prelude + self.coda) + passes * self.loop)),
            "head": full * self.n_head,
        }

    @property
    def _hyper(self) -> bool:
        return self.injects and self.injection == "hyperconnections"

    def tokens(self, budget: float) -> float:
        """Tokens that a budget of training FLOPs buys."""
        return budget / self.flops_per_token

    def steps(self, tokens: float, batch: int) -> int:
        """Whole steps of `batch` tokens within `tokens`."""
        return int(tokens // batch)

    def memory(self, tokens_at_once: int, optimiser_values: int = 1, value_bytes: int = 2) -> dict[str, int]:
        """Bytes by part while training: an estimate within a factor of two, for planning.

        Weights, gradients and optimiser values are float32 (`optimiser_values` per parameter), with a copy of the
        weights in the computing precision where that is narrower. Activations: what backpropagation keeps of
        `tokens_at_once` in flight.
        """
        total = sum(self.groups.values())
        copy = value_bytes * total if value_bytes < 4 else 0
        # Kept a layer: two stream states, their norms, q, k, v, the heads' output, the hidden channels twice.
        layer = 4 * self.width + 2 * self.d_attn + 2 * self.d_kv + 2 * self.d_feed + self.n_heads * self.context
        kept = self.prelude + self.coda + self.passes_with_gradient * self.loop
        return {
            "weights": 4 * total + copy,
            "gradients": 4 * total + copy,
            "optimiser": 4 * optimiser_values * total,
            "activations": ceil(tokens_at_once * (value_bytes * kept * layer + 4 * 3 * self.vocabulary)),
        }
