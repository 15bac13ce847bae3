"""Recipes that share their r = 1 runs: the difference in phi, and in loss at matched budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from loopworth.errors import BadInput
from loopworth.laws.catalogue import get_law
from loopworth.laws.design import budgets, cells, needed_columns
from loopworth.laws.diagnostics import problem_of
from loopworth.laws.fit import OPTIONAL, Fit, fit
from loopworth.laws.intervals import effective_cells, influence, leave_out
from loopworth.laws.law import Array, Frozen, Law
from loopworth.laws.suspicion import suspicions
from loopworth.ledger import Runs, as_runs, check_runs

# Runs of two recipes are a pair when their sizes differ by less than this factor (an injection more or less).
_SAME_SIZE = 1.05


@dataclass(frozen=True)
class Difference:
    """One recipe less the reference. `loss` is the mean over `pairs` of runs of equal budget, r and size, in nats.

    `verdict` is a sentence; "cannot be told apart" is an answer. None: not to be had from these runs.
    """

    recipe: str
    reference: str
    phi: float | None
    phi_interval: tuple[float, float] | None
    loss: float | None
    loss_interval: tuple[float, float] | None
    pairs: int
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """A fit per recipe, all under one convention and over the budgets that every recipe has."""

    by: str
    reference: str
    fits: Mapping[str, Fit]
    differences: tuple[Difference, ...]
    level: float
    convention: str
    shared_runs: int
    status: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def compare(
    runs: object,
    by: str = "recipe",
    *,
    law: str | Law = "joint",
    reference: str | None = None,
    delta: float = 1e-3,
    level: float = 0.95,
    convention: str = "once",
) -> Comparison:
    """Fit every group of `by` with the r = 1 runs that carry no label, and difference them from `reference`.

    The interval on a difference leaves out one cell at a time from both fits at once, so what the shared runs do to
    both cancels as it should. Other runs without a label are a group of their own, "(none)".
    """
    law = get_law(law)
    if "phi" not in law.names:
        raise BadInput(f"compare is about phi, and law {law.name} has none: take joint or looped.")
    table = as_runs(runs)
    table = check_runs(table, needed_columns(law, table), OPTIONAL)
    if by not in table:
        raise BadInput(f"There is no column {by!r} to compare by. There are: {', '.join(table.columns)}.")
    label = table.label(by).astype(object)
    shared = (label == "") & (table["r"] == 1)
    label[(label == "") & ~shared] = "(none)"
    names = list(dict.fromkeys(label[~shared]))
    if len(names) < 2:
        raise BadInput(
            f"Column {by!r} holds {len(names)} group(s) ({', '.join(names) or 'none'}); comparing takes two."
        )
    reference = _reference(reference, names)
    if by != "recipe":
        table = table.with_columns(recipe=label.astype(str))

    notes = list(table.notes)
    mixed = suspicions(table, recipes_apart=True)
    keep, note = _common_budgets(table, label, names)
    if note:
        notes.append(note)
        table, label, shared = table.select(keep), label[keep], shared[keep]
    member, _ = cells(table, law.columns)
    parts = {name: shared | (label == name) for name in names}
    fits = {
        name: fit(table.select(part), law, delta=delta, level=level, convention=convention, diagnostics=False)
        for name, part in parts.items()
    }
    differences = tuple(
        _difference(law, table, member, parts, fits, name, reference, delta, level, convention)
        for name in names
        if name != reference
    )
    problems = [f"{name}: {f.status}" for name, f in fits.items() if f.status != "ok"]
    return Comparison(
        by,
        reference,
        Frozen(fits),
        differences,
        level,
        convention,
        int(shared.sum()),
        "; ".join(problems) or "ok",
        tuple(notes),
        (*mixed, *_baseline_warnings(table, label, shared, names), *_fit_warnings(fits)),
    )


def _reference(wanted: str | None, names: list[str]) -> str:
    if wanted is None:
        return next((n for n in names if n in ("(none)", "plain", "baseline")), names[0])
    if wanted not in names:
        raise BadInput(f"There is no group {wanted!r} to compare with. There are: {', '.join(names)}.")
    return wanted


def _common_budgets(table: Runs, label: NDArray, names: list[str]) -> tuple[NDArray[np.bool_], str | None]:
    """Fits over different budgets differ for that reason alone, so only budgets that all recipes have are kept."""
    budget = budgets(table)
    if budget is None:
        return np.ones(len(table), bool), None
    common = set.intersection(*(set(budget[label == name]) for name in names))
    keep = np.isin(budget, list(common))
    if not common:
        return np.ones(len(table), bool), "no budget is common to all groups: their fits are over different budgets"
    if keep.all():
        return np.ones(len(table), bool), None
    without = ", ".join(f"{c:.3g}" for c in np.unique(budget[~keep]))
    return keep, f"{int((~keep).sum())} runs left out: not every group has runs at {without} FLOPs"


def _difference(
    law: Law,
    table: Runs,
    member: NDArray[np.int_],
    parts: Mapping[str, NDArray[np.bool_]],
    fits: Mapping[str, Fit],
    name: str,
    reference: str,
    delta: float,
    level: float,
    convention: str,
) -> Difference:
    loss, loss_interval, pairs = _loss_difference(table, member, parts[name], parts[reference], level)
    ours, theirs = fits[name], fits[reference]
    if ours.phi is None or theirs.phi is None:
        verdict = (
            f"phi of {name if ours.phi is None else reference} is not identified, so there is no difference to give"
        )
        return Difference(name, reference, None, None, loss, loss_interval, pairs, verdict)
    union = parts[name] | parts[reference]
    _, cell = np.unique(member[union], return_inverse=True)
    count = int(cell.max()) + 1
    without, pull = np.zeros(count), np.zeros(int(union.sum()))
    for group, sign in ((name, 1.0), (reference, -1.0)):
        phi_without, phi_pull = _phi_without(law, table, parts[group], union, cell, fits[group], delta, convention)
        without += sign * phi_without
        pull += sign * phi_pull
    error = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    degrees = effective_cells(pull[None], cell)[0]
    reach = float(error * stdtrit(degrees, (1 + level) / 2))
    apart = ours.phi - theirs.phi
    interval = (apart - reach, apart + reach)
    return Difference(
        name,
        reference,
        apart,
        interval,
        loss,
        loss_interval,
        pairs,
        _verdict(name, reference, apart, interval, loss, loss_interval),
    )


def _phi_without(
    law: Law,
    table: Runs,
    part: NDArray[np.bool_],
    union: NDArray[np.bool_],
    cell: NDArray[np.int_],
    fitted: Fit,
    delta: float,
    convention: str,
) -> tuple[Array, Array]:
    """Phi of one group with each cell of the union left out, and the pull of each run of the union on it.

    A cell that the group does not have leaves its phi as it is.
    """
    theta, phi = fitted.theta, law.names.index("phi")
    assert theta is not None
    problem = problem_of(law, table.select(part), delta, convention, {})
    present, own = np.unique(cell[part[union]], return_inverse=True)
    refits, _ = leave_out(problem, theta, own)
    found = np.full(int(cell.max()) + 1, theta[phi])
    found[present] = refits[:, phi]
    pull = np.zeros(int(union.sum()))
    pull[part[union]] = influence(problem, theta)[phi]
    return found, pull


def _loss_difference(
    table: Runs, member: NDArray[np.int_], ours: NDArray[np.bool_], theirs: NDArray[np.bool_], level: float
) -> tuple[float | None, tuple[float, float] | None, int]:
    """Mean over cells of the mean over pairs, with Student's t over cells."""
    budget = budgets(table)
    if budget is None or "n_once" not in table or "n_rec" not in table:
        return None, None, 0
    log_n, r = np.log(table["n_once"] + table["n_rec"]), table["r"]
    by_cell: dict[int, list[float]] = {}
    for k in np.flatnonzero(ours & ~theirs):
        like = np.flatnonzero(theirs & ~ours & (budget == budget[k]) & (r == r[k]))
        if len(like) == 0:
            continue
        gap = np.abs(log_n[like] - log_n[k])
        nearest = like[gap <= gap.min() + 1e-9]
        if gap.min() < np.log(_SAME_SIZE):
            by_cell.setdefault(int(member[k]), []).append(float(table["loss"][k] - table["loss"][nearest].mean()))
    means = np.array([np.mean(found) for found in by_cell.values()])
    pairs = sum(map(len, by_cell.values()))
    if not len(means):
        return None, None, 0
    centre = float(means.mean())
    if len(means) < 3:
        return centre, None, pairs
    reach = float(means.std(ddof=1) / np.sqrt(len(means)) * stdtrit(len(means) - 1, (1 + level) / 2))
    return centre, (centre - reach, centre + reach), pairs


def _verdict(
    name: str,
    reference: str,
    phi: float,
    interval: tuple[float, float],
    loss: float | None,
    loss_interval: tuple[float, float] | None,
) -> str:
    better = loss_interval is not None and loss_interval[1] < 0
    worse = loss_interval is not None and loss_interval[0] > 0
    loss_words = (
        f"{'lower' if better else 'higher'} loss at matched budget ({loss:+.3f} nats)"
        if better or worse
        else "no clear difference in loss at matched budget"
        if loss is not None
        else "no runs of equal budget, r and size to compare losses at"
    )
    if interval[0] <= 0 <= interval[1]:
        return f"phi of {name} and {reference} cannot be told apart; {loss_words}"
    if phi < 0 and better:
        return (
            f"{name} makes each recurrence worth less, yet has {loss_words}: bought with tokens, not with better loops"
        )
    if phi > 0 and better:
        return f"{name} makes each recurrence worth more, with {loss_words}: better loops"
    return f"{name} makes each recurrence worth {'more' if phi > 0 else 'less'}, with {loss_words}"


def _baseline_warnings(table: Runs, label: NDArray, shared: NDArray[np.bool_], names: list[str]) -> list[str]:
    own = [name for name in names if (table["r"][label == name] == 1).any()]
    found = []
    if own:
        found.append(
            f"{', '.join(own)} brought r = 1 runs of their own: phi measured against different r = 1 baselines "
            "does not compare; leave the label of shared r = 1 runs blank"
        )
    bare = [name for name in names if name not in own]
    if bare and not shared.any():
        found.append(f"{', '.join(bare)} has no r = 1 runs: label shared ones with a blank")
    return found


def _fit_warnings(fits: Mapping[str, Fit]) -> list[str]:
    return [f"{name}: {message}" for name, f in fits.items() for message in f.warnings]
