"""A law as data: what it reads of a run, its parameters with their box, its prediction and gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Columns = Mapping[str, Array]
Theta = Sequence[Array]
Prediction = tuple[Array, Sequence[Array]]


class Frozen(dict):
    """A dict that does not change, and unlike MappingProxyType can be pickled."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("results do not change: make a dict of it first")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore

    def __reduce__(self) -> tuple[type, tuple[dict]]:
        return Frozen, (dict(self),)


@dataclass(frozen=True)
class Param:
    """One parameter and the box it is sought in.

    `log`: the fit and the box are on its natural logarithm. `amplitude`: it is the log of a factor of one term of the
    loss; when every term has one, starting values of the amplitudes are solved for instead of searched.
    """

    name: str
    low: float
    high: float
    log: bool = False
    amplitude: bool = False

    def value(self, fitted: float) -> float:
        """The parameter as people write it (A, not ln A)."""
        return float(np.exp(fitted)) if self.log else float(fitted)

    def fitted(self, value: float) -> float:
        """The parameter as the engine moves it."""
        if not self.log:
            return float(value)
        return float(np.log(value)) if value > 0 else float("-inf")


@dataclass(frozen=True)
class Law:
    """A scaling law.

    `log_loss(theta, x)` gets one array of shape (batch, 1) per parameter and the needed columns, each of shape (runs,);
    it returns ln of the predicted loss, shape (batch, runs), and its derivative by each parameter (0 will do for none).
    """

    name: str
    formula: str
    columns: tuple[str, ...]
    params: tuple[Param, ...]
    log_loss: Callable[[Theta, Columns], Prediction]
    about: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in the order of theta."""
        return tuple(p.name for p in self.params)

    @property
    def low(self) -> Array:
        """Lower edge of the box, as fitted."""
        return np.array([p.low for p in self.params], dtype=float)

    @property
    def high(self) -> Array:
        """Upper edge of the box, as fitted."""
        return np.array([p.high for p in self.params], dtype=float)

    def predict(self, params: Mapping[str, float], columns: Mapping[str, object]) -> Array:
        """Loss in nats per token for parameters as people write them, e.g. `{"A": 28.0, "alpha": 0.2, ...}`."""
        theta = [np.array([[p.fitted(params[p.name])]]) for p in self.params]
        x = {name: np.atleast_1d(np.asarray(columns[name], dtype=float)) for name in self.columns}
        return np.exp(self.log_loss(theta, x)[0])[0]


def log_sum_exp(*terms: Array) -> tuple[Array, list[Array]]:
    """ln of a sum of terms given by their logarithms, and each term's share of the sum (the derivatives)."""
    top = terms[0]
    for term in terms[1:]:
        top = np.maximum(top, term)
    shares = [np.exp(term - top) for term in terms]
    total = shares[0]
    for share in shares[1:]:
        total = total + share
    return top + np.log(total), [share / total for share in shares]
