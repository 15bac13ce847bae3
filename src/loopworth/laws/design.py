"""What a law reads of a table of runs: columns under a counting convention, budgets, architectures, cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loopworth.errors import BadInput
from loopworth.laws.law import Array, Law
from loopworth.ledger import Runs

# Where the injection's parameters go. n_once and n_rec hold none of them when there is a column n_injection.
CONVENTIONS = ("once", "loop", "dropped", "once+head")

# Budgets closer than this are one budget; a group that spans more than the second factor is no budget at all.
_SAME_BUDGET = 1.03
_ONE_BUDGET_SPAN = 1.25
_ONE_COMPUTED_SPAN = 1.01

# What makes two runs the same but for their seeds.
_DESIGN = ("n_once", "n_rec", "n", "r", "tokens", "position", "passes")


def needed_columns(law: Law, runs: Runs) -> tuple[str, ...]:
    """The columns that the law needs of these runs: `n` may come as `n_once` and `n_rec`."""
    derived = "n" in law.columns and "n" not in runs and "n_once" in runs and "n_rec" in runs
    names = [c for c in law.columns if c != "n"] + ["n_once", "n_rec"] if derived else list(law.columns)
    return (*names, "loss")


def law_columns(law: Law, runs: Runs, convention: str = "once") -> dict[str, Array]:
    """The law's columns, with n_once, n_rec and n counted by the convention."""
    once_and_loop = _count(runs, convention)
    found = {}
    for name in law.columns:
        if name == "n" and "n" not in runs:
            found["n"] = once_and_loop["n_once"] + once_and_loop["n_rec"]
        else:
            found[name] = once_and_loop[name] if name in once_and_loop else runs[name]
    return found


def convention_problem(law: Law, runs: Runs, convention: str) -> str | None:
    """Why the law's sizes cannot be counted so from these columns, or None."""
    if convention not in CONVENTIONS:
        raise BadInput(f"There is no counting convention {convention!r}. There are: {', '.join(CONVENTIONS)}.")
    if not {"n_once", "n_rec"} <= set(runs.columns) or not {"n_once", "n", "r"} & set(law.columns):
        return None if convention == "once" else "not computable from these columns"
    missing = [] if "n_injection" in runs or convention == "once" else ["n_injection"]
    if convention == "once+head" and "n_head" not in runs:
        missing.append("n_head")
    return f"not computable from these columns (no {', no '.join(missing)})" if missing else None


def _count(runs: Runs, convention: str) -> dict[str, Array]:
    if not {"n_once", "n_rec"} <= set(runs.columns):
        return {}
    once, loop = runs["n_once"], runs["n_rec"]
    injection = runs["n_injection"] if "n_injection" in runs else np.zeros(len(runs))
    if convention == "loop":
        return {"n_once": once, "n_rec": loop + injection}
    if convention == "dropped":
        return {"n_once": once, "n_rec": loop}
    return {"n_once": once + injection + (runs["n_head"] if convention == "once+head" else 0.0), "n_rec": loop}


def architectures(runs: Runs) -> NDArray[np.object_]:
    """A label per run: the column `architecture`, else `r=...`, else one for all."""
    if "architecture" in runs:
        return runs.label("architecture")
    if "r" in runs:
        distinct, place = np.unique(runs["r"], return_inverse=True)
        return np.array([f"r={r:g}" for r in distinct], dtype=object)[place]
    return np.full(len(runs), "all", dtype=object)


def budgets(runs: Runs) -> Array | None:
    """Each run's budget in FLOPs, one value per group of near-equal ones; None where there are no such groups.

    From the column `budget`, else from flops_per_token x tokens, else from 6 x executed parameters x tokens; those that
    are computed must be near equal indeed, and shared by several designs.
    """
    span = _ONE_BUDGET_SPAN if "budget" in runs else _ONE_COMPUTED_SPAN
    if "budget" in runs:
        compute = runs["budget"]
    elif "tokens" not in runs:
        return None
    elif "flops_per_token" in runs:
        compute = runs["flops_per_token"] * runs["tokens"]
    else:
        executed = executed_parameters(runs)
        if executed is None:
            return None
        compute = 6 * executed * runs["tokens"]
    order = np.argsort(compute)
    jumps = np.diff(np.log(compute[order])) > np.log(_SAME_BUDGET)
    group = np.empty(len(runs), int)
    group[order] = np.concatenate([[0], np.cumsum(jumps)])
    count = np.bincount(group)
    low, high = np.full(len(count), np.inf), np.zeros(len(count))
    np.minimum.at(low, group, compute)
    np.maximum.at(high, group, compute)
    if (high > low * span).any():
        return None
    if "budget" not in runs and _by_chance(runs, group):
        return None
    return np.sqrt(low * high)[group]


def _by_chance(runs: Runs, group: NDArray[np.int_]) -> bool:
    """Computed budgets are none if hardly any two sizes of an architecture share one; repeats count once."""
    shared = _codes(_codes(architectures(runs)) * (int(group.max()) + 1) + group)
    tokens = _codes(runs["tokens"])
    designs = len(np.unique(shared * (int(tokens.max()) + 1) + tokens))
    return int(shared.max()) + 1 > designs / 2


def derived_budget(runs: Runs) -> str:
    """In words, what budgets come from where there is no column of that name."""
    return "flops_per_token x tokens" if "flops_per_token" in runs else "6 x executed parameters x tokens"


def executed_parameters(runs: Runs) -> Array | None:
    """n_once + r n_rec, or n; None without either."""
    if {"n_once", "n_rec", "r"} <= set(runs.columns):
        injection = runs["n_injection"] if "n_injection" in runs else 0.0
        return runs["n_once"] + runs["r"] * (runs["n_rec"] + injection)
    return runs["n"] if "n" in runs else None


def cells(runs: Runs, columns: Sequence[str] = ()) -> tuple[NDArray[np.int_], str]:
    """The unit that intervals leave out together, as a number per run, and what it is in words.

    A `group` (runs that share a trunk, say) goes first; then (budget, architecture, recipe); without budgets, runs of
    the same design (repeats with other seeds) stay together. `columns`: what a law reads, for laws of one's own.
    """
    if "group" in runs and (runs.label("group") != "").all():
        return _codes(runs.label("group")), "groups"
    by: list[NDArray] = [architectures(runs)]
    if "recipe" in runs:
        by.append(runs.label("recipe"))
    budget = budgets(runs)
    if budget is not None:
        by.append(budget)
        words = "(budget, architecture) cells"
    else:
        by += [runs[c] for c in dict.fromkeys((*_DESIGN, *columns)) if c in runs]
        words = "designs (no budgets to group them by: noise that runs of a budget share is not seen)"
    if "group" in runs:
        by.append(runs.label("group"))
    member = np.zeros(len(runs), np.int64)
    for column in by:
        code = _codes(column)
        member = _codes(member * (int(code.max()) + 1) + code)
    return member, words


def gathered(member: NDArray[np.int_], most: int, seed: int = 0) -> NDArray[np.int_]:
    """Where there are more than `most` cells, gather them into that many at random: as honest, and cheaper."""
    count = int(member.max()) + 1
    if count <= most:
        return member
    return (np.random.default_rng(seed).permutation(count) % most)[member]


def _codes(values: NDArray) -> NDArray[np.int_]:
    """Equal values, equal numbers from 0; labels in order of appearance (sorting millions of strings is slow)."""
    if values.dtype == object:
        number: dict[str, int] = {}
        return np.fromiter((number.setdefault(v, len(number)) for v in values), np.int64, len(values))
    return np.unique(values, return_inverse=True)[1].ravel()
