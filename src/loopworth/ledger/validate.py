"""What must hold of a table of runs before any law sees it."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

import numpy as np

from loopworth.errors import BadInput
from loopworth.ledger.runs import AMOUNTS, COUNTS, NUMBERS, Runs, number

ALL_OR_NONE = frozenset(("n_injection", "n_head", "budget", "flops_per_token"))
FINISHED = ("done", "ok", "finished", "")


def check_runs(runs: Runs, needs: Sequence[str], optional: Sequence[str] = ()) -> Runs:
    """Return runs whose columns `needs` and `optional` hold what their names promise; BadInput names the first trouble.

    An optional column may be absent or have blanks, but one of ALL_OR_NONE is dropped if all blank, refused if partly.
    """
    if not len(runs):
        raise BadInput(f"{runs.source} has no rows. Give at least one run.")
    absent = [name for name in needs if name not in runs]
    if absent:
        raise BadInput(_missing(runs, absent))
    for name in dict.fromkeys((*needs, *(name for name in optional if name in runs))):
        values = runs[name]
        blank = np.isnan(values) if values.dtype == np.float64 else values == ""
        if name in ALL_OR_NONE and name not in needs and blank.all():
            runs = replace(runs, columns={key: kept for key, kept in runs.columns.items() if key != name})
            continue
        if name in needs or name in ALL_OR_NONE:
            fill = "Fill it in" if name in needs else "Fill it in or empty the whole column"
            advice = f"{fill}, or leave such rows out: --where '{name} is not null'."
            _refuse(runs, blank, name, f"is {runs.blank}", advice)
        if name in NUMBERS:
            _check_numbers(runs, name, blank)
    if {"n_once", "n_rec"} <= {*needs, *optional} & runs.columns.keys():
        both = runs["n_once"] + runs["n_rec"] <= 0
        _refuse(runs, both, "n_once", "and n_rec are both 0", "A model has parameters: give them as plain numbers.")
    _refuse_repeats(runs)
    return runs


def _missing(runs: Runs, names: list[str]) -> str:
    by_lower = {key.lower(): key for key in runs.columns}
    near = get_close_matches(names[0].lower(), by_lower, 1, 0.5)
    meant = f"nearest to {names[0]} is {by_lower[near[0]]}: " if near else ""
    return (
        f"{runs.source} has no column {' and no '.join(names)}. It has: {', '.join(runs.columns)}. "
        f"To rename one, {meant}--map {by_lower[near[0]] if near else 'theirs'}={names[0]}."
    )


def _check_numbers(runs: Runs, name: str, blank: np.ndarray) -> None:
    values = runs[name]
    text = np.zeros(len(runs), bool)
    if values.dtype == object:
        parsed = np.full(len(runs), np.nan)
        for row in np.flatnonzero(~blank):
            try:
                parsed[row] = number(values[row])
            except ValueError:
                text[row] = True
        _refuse(runs, text, name, "is not a number", "Write it like 2.79 or 1e18.")
        values = parsed
    _refuse(runs, ~blank & ~np.isfinite(values), name, "is not finite", "A run without a result belongs left out.")
    if name in AMOUNTS:
        _refuse(runs, values <= 0, name, "is not above 0", "Correct it or leave the row out.")
    elif name in COUNTS:
        _refuse(runs, values < 0, name, "is below 0", "Parameter counts are 0 or more.")
    elif name == "r":
        _refuse(runs, values < 1, name, "is below 1", "r is how often the loop runs; a model without a loop has r = 1.")


def _refuse(runs: Runs, bad: np.ndarray, name: str, what: str, advice: str) -> None:
    at = np.flatnonzero(bad)
    if not len(at):
        return
    shown = runs.label(name)[at[0]]
    value = f" {shown!r}" if runs[name].dtype == object and shown else f" {shown}" if shown else ""
    status = runs.label("status") if "status" in runs else np.full(len(runs), "", object)
    ended = next((status[row] for row in at if status[row].lower() not in FINISHED), None)
    if ended is not None:
        good = next((word for word in status if word and word.lower() in FINISHED), "done")
        advice += f" Runs with status {ended!r} are left out by an explicit rule: --where \"status = '{good}'\"."
    raise BadInput(f"{runs.source}, row {runs.rows[at[0]]}: {name}{value} {what}{_more(len(at) - 1)}. {advice}")


def _more(count: int) -> str:
    return f" (and {count:,} more row{'s' * (count > 1)})" if count else ""


def _refuse_repeats(runs: Runs) -> None:
    """Compare 64-bit hashes of whole rows, and the cells only where hashes agree: ten million rows take seconds."""
    key = np.zeros(len(runs), np.uint64)
    for values in runs.columns.values():
        if values.dtype == np.float64:
            bits = (np.where(np.isnan(values), np.nan, values) + 0.0).view(np.uint64)  # one nan, one zero
        else:
            bits = np.fromiter(map(hash, values), np.int64, len(values)).view(np.uint64)
        key = (key ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    ordered = np.sort(key)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    order = np.argsort(key, kind="stable")
    first, again = order[:-1], order[1:]
    same = key[first] == key[again]
    first, again = first[same], again[same]
    for values in runs.columns.values():
        same = values[first] == values[again]
        if values.dtype == np.float64:
            same |= np.isnan(values[first]) & np.isnan(values[again])
        first, again = first[same], again[same]
    if len(again):
        at = again.argmin()
        raise BadInput(
            f"{runs.source}: rows {runs.rows[first[at]]} and {runs.rows[again[at]]} are the same in every column"
            f"{_more(len(again) - 1)}. Leave one out; if it is a real repeat, give it a seed column."
        )
