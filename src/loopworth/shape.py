"""Counting for a looped transformer: parameters by group and training FLOPs per token (SCIENCE, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

# Injection parameters in units of width^2.
_INJECTION = {"linear": 2, "diagonal": 1, "additive": 0, "passthrough": 0}


@dataclass(frozen=True)
class Shape:
    """An iso-depth looped transformer with full-width heads and d_ff = 4 width.

    `depth` is the executed depth, prelude + r x loop + coda. At r = 1 there is no injection of any kind.
    """

    width: int
    r: int = 1
    depth: int = 20
    prelude: int = 2
    coda: int = 2
    injection: str = "linear"
    context: int = 2048
    vocabulary: int = 32_064

    def __post_init__(self) -> None:
        looped = self.depth - self.prelude - self.coda
        if looped < self.r or looped % self.r:
            raise ValueError(f"{looped} looped layers cannot be run as {self.r} equal passes")
        if self.injection not in _INJECTION:
            raise ValueError(f"injection {self.injection!r} is none of {', '.join(_INJECTION)}")

    @property
    def n_layer(self) -> int:
        """Parameters of one layer: 4 width^2 of attention, 8 width^2 of feed-forward."""
        return 12 * self.width**2

    @property
    def n_once(self) -> int:
        """Parameters used once: prelude and coda."""
        return (self.prelude + self.coda) * self.n_layer

    @property
    def n_rec(self) -> int:
        """Parameters in the loop, the injection not counted."""
        return (self.depth - self.prelude - self.coda) // self.r * self.n_layer

    @property
    def n_injection(self) -> int:
        """Parameters of the injection layer."""
        return _INJECTION[self.injection] * self.width**2 if self.r > 1 else 0

    @property
    def n_head(self) -> int:
        """Parameters of the head."""
        return self.vocabulary * self.width

    @property
    def flops_per_token(self) -> int:
        """Training FLOPs per token, attention counted as a full context x context square."""
        executed = self.n_once + self.r * (self.n_rec + self.n_injection)
        return 6 * (executed + self.n_head) + 12 * self.depth * self.width * self.context

    def tokens(self, budget: float) -> float:
        """Tokens that a budget of training FLOPs buys."""
        return budget / self.flops_per_token
