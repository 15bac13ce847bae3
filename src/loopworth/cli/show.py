"""Fits and comparisons as tables and sentences for people; computes nothing but r^phi."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from loopworth.laws.catalogue import LAWS
from loopworth.laws.compare import Comparison
from loopworth.laws.diagnostics import Diagnostics, Refit
from loopworth.laws.fit import Fit


def show_laws() -> None:
    """The laws as a table."""
    table = Table("law", "formula", "columns", "what it is for", title="Laws", title_justify="left")
    for law in LAWS.values():
        table.add_row(law.name, law.formula, ", ".join([*law.columns, "loss"]), law.about)
    console().print(table, highlight=False)


def show_fit(fit: Fit) -> None:
    """The fit as the paper prints it, what stands beside it, and what it means in a sentence."""
    out = console()
    _say(out, f"{fit.law.name}: {fit.law.formula}", "bold")
    for note in fit.notes:
        _say(out, note)
    _say(
        out,
        f"{fit.n_runs:,} runs in {fit.n_cells:,} cells, convention {fit.convention}, "
        f"{'least squares' if math.isinf(fit.delta) else f'Huber delta {fit.delta:g}'}, protocol {fit.protocol}: "
        + (f"{fit.starts_agreeing} of {fit.starts} starts agree" if fit.starts else "not fitted"),
    )
    _say(out, "")
    out.print(_parameters(fit), highlight=False)
    if fit.diagnostics:
        if fit.diagnostics.architectures:
            out.print(_architectures(fit.diagnostics), highlight=False)
        for line in _beside(fit, fit.diagnostics):
            _say(out, line)
    _say(out, "")
    _say(out, meaning(fit), "bold")
    for message in fit.warnings:
        _say(out, f"warning: {message}", "yellow")


def show_comparison(found: Comparison) -> None:
    """One row per group, one sentence per difference."""
    out = console()
    for note in found.notes:
        _say(out, note)
    names = next(iter(found.fits.values())).law.names
    table = Table(
        "group", "runs", *names, "R2", title=f"By {found.by}, convention {found.convention}", title_justify="left"
    )
    for name, fit in found.fits.items():
        cells = [
            f"{_number(fit.params[n])} {_range(fit.interval[n])}" if n == "phi" else _number(fit.params[n])
            for n in names
        ]
        table.add_row(name, str(fit.n_runs), *cells, _number(fit.quality.r2 if fit.quality else None, 5))
    out.print(table, highlight=False)
    for d in found.differences:
        share = f"{found.level:.0%}"
        lines = [f"{d.recipe} - {d.reference}: {d.verdict}."]
        if d.phi is not None:
            lines.append(f"  delta phi  {d.phi:+.3f} {_range(d.phi_interval)} ({share}, jackknife over shared cells)")
        if d.loss is not None:
            lines.append(
                f"  delta loss {d.loss:+.4f} {_range(d.loss_interval)} nats over {d.pairs} pairs of equal budget, "
                "r and size"
            )
        for line in lines:
            _say(out, line)
    for message in found.warnings:
        _say(out, f"warning: {message}", "yellow")


def meaning(fit: Fit) -> str:
    """The fit in a sentence."""
    if "phi" not in fit.law.names or "phi" in fit.fixed:
        known = [
            f"{n} = {_number(v)} {_range(fit.interval[n], 4)}".rstrip() for n, v in fit.params.items() if v is not None
        ]
        status = "" if fit.status == "ok" else f" Status: {fit.status}."
        return f"{', '.join(known) or 'Nothing is determined'} ({_method(fit)}).{status}"
    if fit.phi is None:
        return f"What one recurrence is worth cannot be said from these runs: {fit.status}."
    bounds = fit.interval["phi"]
    r = min(4.0, fit.reach["r"][1])  # any number of passes that was run would do; four is the usual one
    worth = f"{r**fit.phi:.2f}"
    if bounds and bounds[0] is not None and bounds[1] is not None:
        worth += f" [{r ** bounds[0]:.2f}, {r ** bounds[1]:.2f}]"
    status = "" if fit.status == "ok" else f" Status: {fit.status}."
    return (
        f"phi = {fit.phi:.3f} {_range(bounds)} ({_method(fit)}, convention {fit.convention}): running a block {r:g} "
        f"times is worth {r:g}^phi = {worth} fresh blocks.{status}"
    )


def _method(fit: Fit) -> str:
    if fit.interval_method == "none" or not any(fit.interval.values()):
        return "no interval"
    return f"{fit.level:.0%}, {fit.interval_method}"


def _parameters(fit: Fit) -> Table:
    names = fit.law.names
    table = Table("fit", "runs", *names, "R2", "RMSE", "objective")
    good = fit.quality
    table.add_row(
        "all", f"{fit.n_runs:,}", *(_number(fit.params[n]) for n in names),
        _number(good.r2 if good else None, 5), _number(good.rmse if good else None, 3), _number(fit.objective, 6),
    )  # fmt: skip
    for side, name in enumerate((f"{fit.level:.0%} low", f"{fit.level:.0%} high")):
        ends = [bounds[side] if (bounds := fit.interval[n]) else None for n in names]
        table.add_row(name, "", *(_number(end) for end in ends), "", "", "", end_section=side == 1)
    if fit.diagnostics:
        halves = fit.diagnostics.halves
        for refit in (*fit.diagnostics.restricted, *(() if isinstance(halves, str) else halves)):
            _add(table, refit, names)
    return table


def _architectures(checks: Diagnostics) -> Table:
    names = tuple(checks.architectures[0].params)
    table = Table("chinchilla alone", "runs", *names, "R2", "RMSE", "objective")
    for refit in checks.architectures:
        _add(table, refit, names)
    return table


def _add(table: Table, refit: Refit, names: Iterable[str]) -> None:
    if all(refit.params[n] is None for n in names):
        table.add_row(refit.what, str(refit.n_runs), refit.status.split(":")[0], style="dim")
        return
    table.add_row(
        refit.what, str(refit.n_runs), *(_number(refit.params[n]) for n in names),
        _number(refit.r2, 5), _number(refit.rmse, 3), _number(refit.objective, 6),
    )  # fmt: skip


def _beside(fit: Fit, checks: Diagnostics) -> list[str]:
    lines = []
    if fit.quality:
        lines.append(f"worst residual   {fit.quality.worst:+.4f} nats (row {fit.quality.worst_row})")
    if len(checks.residuals) > 1:
        each = ", ".join(f"{r.architecture} {r.mean:+.4f} / {r.rmse:.4f}" for r in checks.residuals[:8])
        lines.append(f"residuals        mean / RMSE in nats: {each}")
    if isinstance(checks.halves, str):
        lines.append(f"halves           {checks.halves}")
    moving = [n for n in fit.law.names if fit.params[n] is not None and n not in fit.fixed]
    key = "phi" if "phi" in moving else next(iter(moving), fit.law.names[0])
    lines += [
        f"left out         one of {out.count} {out.what}: {key} {_number(out.low[key])} to {_number(out.high[key])} "
        f"({out.farthest[key]} moves it most)"
        for out in checks.left_out
    ]
    if checks.conventions:
        each = "; ".join(
            f"{n} {_number(v) if isinstance(v, float) else v or 'not identified'}"
            for n, v in checks.conventions.items()
        )
        lines.append(f"phi by counting  {each}")
    lines += [
        f"held out         fitted below {blind.budget:.3g} FLOPs, the {blind.n_predicted} runs above are missed by "
        f"{blind.mean_error:+.4f} nats on average (RMSE {blind.rmse:.4f}, below {blind.rmse_fitted:.4f})"
        for blind in checks.blind[-1:]
    ]
    lines += [
        f"frontier         {f.architecture}: best size grows as C^{f.n_exponent:.2f}, tokens as "
        f"C^{f.tokens_exponent:.2f} ({f.n_budgets} parabolas)"
        for f in fit.frontiers
    ]
    return lines


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _range(bounds: tuple[float | None, float | None] | None, digits: int | None = None) -> str:
    if bounds is None:
        return ""
    low, high = ("open" if b is None else _number(b, digits) if digits else f"{b:.3f}" for b in bounds)
    return f"[{low}, {high}]"


def console() -> Console:
    """Standard output; lines are cut to a terminal, never elsewhere."""
    return Console(width=None if sys.stdout.isatty() else 140)


def _say(out: Console, text: str, style: str | None = None) -> None:
    out.print(text, style=style, highlight=False, soft_wrap=True, markup=False)
