"""Mistakes that leave a table well formed: units that differ between rows, tokens in billions, parts counted twice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loopworth.laws.design import architectures, executed_parameters
from loopworth.laws.law import Array
from loopworth.ledger import Runs

_BITS = float(np.log(1 / np.log(2)))
_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def suspicions(runs: Runs, recipes_apart: bool = False) -> list[str]:
    """One sentence per thing that looks wrong and would bend the fit; nothing is changed."""
    checks = [_mixed_loss_units, _token_units, _counted_twice, _budget_disagrees]
    if not recipes_apart:
        checks.append(_mixed_recipes)
    return [message for check in checks if (message := check(runs))]


def _mixed_loss_units(runs: Runs) -> str | None:
    """Some losses in bits among nats: a step of 1/ln 2 that no smooth function of size and tokens has."""
    size = executed_parameters(runs)
    if size is None or "tokens" not in runs or not len(runs) >= 12:
        return None
    some = np.linspace(0, len(runs) - 1, min(len(runs), 2000)).astype(int)
    x, y = np.log(np.stack([size, runs["tokens"]])[:, some]), np.log(runs["loss"][some])
    x = (x - x.mean(1, keepdims=True)) / np.maximum(x.std(1, keepdims=True), 1e-12)
    smooth = np.stack([np.ones_like(y), *x, *x**2, x[0] * x[1]], axis=1)

    def misfit(in_bits: NDArray[np.bool_]) -> Array:
        shifted = y - _BITS * in_bits
        return shifted - smooth @ np.linalg.lstsq(smooth, shifted, rcond=None)[0]

    plain = misfit(np.zeros(len(y), bool))
    compute = x.sum(0)
    kinds = [architectures(runs)[some], *([runs.label("recipe")[some]] if "recipe" in runs else [])]
    guesses = [plain > 0, *(kind == k for kind in kinds for k in list(dict.fromkeys(kind))[:20])]
    guesses += [compute < c for c in np.quantile(compute, np.linspace(0.1, 0.9, 9))]
    guesses += [~g for g in guesses]
    for in_bits in guesses:
        for _ in range(10):
            # A run is in bits if the smooth function through the others says so.
            again = misfit(in_bits) + _BITS * in_bits > _BITS / 2
            if (again == in_bits).all():
                break
            in_bits = again
        share = in_bits.mean()
        if 0.1 <= share <= 0.9 and misfit(in_bits).std() < 0.25 * plain.std() and misfit(in_bits).std() < 0.06:
            first = runs.rows[some][in_bits][:3]
            return (
                f"about {share:.0%} of the losses look 1/ln 2 = 1.44 times too high (rows {', '.join(map(str, first))}"
                ", ...): bits among nats? Bring them to one unit first (--loss-unit converts a whole column)."
            )
    return None


def _token_units(runs: Runs) -> str | None:
    if "tokens" not in runs:
        return None
    tokens, size = runs["tokens"], executed_parameters(runs)
    order = np.sort(np.log10(tokens / (1.0 if size is None else size)))
    jump = np.diff(order).max(initial=0.0)
    if jump > 2.5:
        return (
            f"tokens fall into two groups a factor {10**jump:.1g} apart: are some rows in thousands, millions or "
            "billions?"
        )
    middle = float(order[len(order) // 2])
    # A hundredth to a hundred thousand tokens per parameter may be meant; fewer than ten thousand of either is a unit.
    few = np.median(tokens) < 1e4
    if size is None:
        return f"tokens are about {10**middle:.3g}: in another unit? (--token-unit M or B)" if few else None
    small = np.median(size) < 1e4
    if small and few:
        return (
            f"sizes are about {np.median(size):.3g} and tokens {np.median(tokens):.3g}: in millions and billions? Phi "
            "does not mind, A, B and budgets do"
        )
    if middle < -2:
        unit = min(_UNITS, key=lambda u: abs(middle + np.log10(_UNITS[u]) - 1.3))
        return f"there are {10**middle:.1g} tokens per parameter: are tokens in another unit? (--token-unit {unit})"
    if middle > 5:
        what = "are parameters in millions or billions?" if small else "are tokens counted in too large a unit?"
        return f"there are {10**middle:.1g} tokens per parameter: {what}"
    return None


def _counted_twice(runs: Runs) -> str | None:
    """n_once should hold no injection when n_injection has a column: then looped and plain runs share its values."""
    if not {"n_once", "n_injection", "r"} <= set(runs.columns):
        return None
    plain, looped = runs["r"] == 1, (runs["r"] > 1) & (runs["n_injection"] > 0)
    if not plain.any() or not looped.any():
        return None
    once, injection = runs["n_once"][looped], runs["n_injection"][looped]
    known = np.unique(runs["n_once"][plain])
    if np.isin(once - injection, known).mean() > 0.9 and np.isin(once, known).mean() < 0.1:
        return "n_once looks as if it already held n_injection (it does at r > 1, not at r = 1): take it out of n_once."
    return None


def _budget_disagrees(runs: Runs) -> str | None:
    if not {"budget", "flops_per_token", "tokens"} <= set(runs.columns):
        return None
    ratio = runs["flops_per_token"] * runs["tokens"] / runs["budget"]
    off = int(np.argmax(np.abs(np.log(ratio))))
    if abs(np.log(ratio[off])) < 0.1:
        return None
    return f"flops_per_token x tokens is {ratio[off]:.2f} times the budget in row {runs.rows[off]}"


def _mixed_recipes(runs: Runs) -> str | None:
    recipes = sorted(set(runs.label("recipe")) - {""}) if "recipe" in runs else []
    if len(recipes) < 2:
        return None
    return f"runs of {len(recipes)} recipes ({', '.join(recipes[:4])}) in one fit: 'loopworth compare' fits each."
