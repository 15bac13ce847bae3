"""Rows of T + 1 tokens: which row a place in a run gets, and nothing about files."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loopworth.errors import BadInput
from loopworth.worlds import Words, permuted


class Rows(ABC):
    """Training and held-out rows at one context. `count` is infinite for a generated world.

    Row of step s, place j has index s x rows per step + j; which ranks there are makes no difference.
    """

    context: int
    count: float
    start_token: int

    @abstractmethod
    def take(self, index: ArrayLike, data_seed: int) -> NDArray[Any]:
        """Training rows by their place in the run, (n, T + 1); no two places of a run hold the same row."""

    @abstractmethod
    def held_out(self, count: int) -> NDArray[Any]:
        """`count` held-out rows, or all where there are fewer: the same for every run, from all over the text."""

    def need(self, tokens: float) -> None:
        """Refuse a run over more tokens than there are; each row gives T of them."""
        if tokens > self.count * self.context:
            raise BadInput(
                f"{tokens:,.0f} training tokens are needed, the corpus has {self.count * self.context:,.0f} in rows of "
                f"{self.context}, and no row is used twice. Lower tokens (or budget), or pack more text."
            )

    def document_starts(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Where in these rows a document begins: the start token occurs nowhere else."""
        return rows == self.start_token

    def _inside(self, index: ArrayLike) -> NDArray[np.int64]:
        found = np.array(index, np.int64, ndmin=1)
        if found.size:
            if found.min() < 0:
                raise BadInput(f"row {found.min()} is asked for: places in a run are counted from 0.")
            self.need((int(found.max()) + 1) * self.context)
        return found


_HELD_OUT = 0  # the seed that orders held-out rows, whatever a run's seeds


class PackedRows(Rows):
    """Rows cut from two flat streams, one after the other; the last, shorter piece is left over."""

    def __init__(self, train: NDArray[Any], held_out: NDArray[Any], context: int, start_token: int):
        self.context = context
        self.start_token = start_token
        self._train, self._held_out = (_cut(stream, context + 1) for stream in (train, held_out))
        self.count = len(self._train)

    def take(self, index: ArrayLike, data_seed: int) -> NDArray[Any]:
        """Training rows by their place in the run, (n, T + 1), through a permutation keyed by the seed."""
        return np.array(self._train[permuted(self._inside(index), int(self.count), data_seed)])

    def held_out(self, count: int) -> NDArray[Any]:
        """A sample of the held-out rows: the first of them may be of one source, or of one long document."""
        rows = len(self._held_out)
        return (
            np.array(self._held_out[permuted(np.arange(min(count, rows)), rows, _HELD_OUT)]) if rows else self._held_out
        )


class GeneratedRows(Rows):
    """Rows that are each a document of a generated language; a seed has a stream of its own, held-out rows another."""

    count = math.inf

    def __init__(self, words: Words, context: int, start_token: int):
        self.context = context
        self.start_token = start_token
        self._words = words

    def take(self, index: ArrayLike, data_seed: int) -> NDArray[Any]:
        """Training rows by their place in the run, (n, T + 1)."""
        return self._words.rows(self._inside(index), self.context, 1 + data_seed)

    def held_out(self, count: int) -> NDArray[Any]:
        """The first `count` held-out rows."""
        return self._words.rows(np.arange(count), self.context, 0)


def _cut(stream: NDArray[Any], width: int) -> NDArray[Any]:
    count = len(stream) // width
    return stream[: count * width].reshape(count, width)
