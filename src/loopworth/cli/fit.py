"""The commands that read a table of runs: fit, compare, laws."""

from __future__ import annotations

from collections.abc import Callable

import click

from loopworth.cli.common import friendly, pairs
from loopworth.errors import BadInput


def reading(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that reads a table of runs."""
    options = (
        click.argument("runs"),
        click.option("--map", "renamed", multiple=True, metavar="THEIRS=OURS", help="Rename a column; repeatable."),
        click.option("--where", multiple=True, metavar="EXPRESSION", help="Keep such rows: 'r != 2'; repeatable."),
        click.option("--loss-unit", default="nats", show_default=True, help="nats or bits, per token."),
        click.option("--token-unit", default="1", show_default=True, help="A number, or K, M, B, T."),
        click.option("--law", default="joint", show_default=True, help="A name from 'loopworth laws'."),
        click.option(
            "--delta", type=float, default=1e-3, show_default=True, help="Huber threshold; inf: least squares."
        ),
        click.option("--level", type=float, default=0.95, show_default=True, help="Level of the intervals."),
        click.option("--convention", default="once", show_default=True, help="once, loop, dropped or once+head."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _read(runs: str, renamed: tuple[str, ...], where: tuple[str, ...], loss_unit: str, token_unit: str):
    from loopworth.ledger import read_runs

    rename = pairs(renamed, "--map", "theirs=ours")
    both = " and ".join(f"(\n{one}\n)" for one in where) if len(where) > 1 else "".join(where)
    return read_runs(runs, rename=rename, where=both or None, loss_unit=loss_unit, token_unit=token_unit)


@click.command("fit")
@reading
@click.option("--interval", metavar="METHOD", help="jackknife (default), bootstrap, profile, delta or none.")
@click.option("--resamples", type=int, help="Of the bootstrap; 1000, or the published 200 with --protocol paper.")
@click.option("--protocol", default="default", show_default=True, help="default, or paper: 500 uniform starts.")
@click.option("--fix", "fixed", multiple=True, metavar="NAME=VALUE", help="Hold a parameter, e.g. phi=0; repeatable.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap's resamples.")
@friendly
def fit_command(
    runs,
    renamed,
    where,
    loss_unit,
    token_unit,
    law,
    delta,
    level,
    convention,
    as_json,
    interval,
    resamples,
    protocol,
    fixed,
    seed,
) -> None:
    """Fit a law to RUNS: a CSV, Parquet or JSON-lines file, a ledger folder, or - for CSV on standard input.

    Columns: n_once, n_rec, r, tokens, loss (nats per token); optional budget, architecture, recipe, n_injection,
    n_head, flops_per_token, seed, group. Laws without a loop take n in place of the first three.
    """
    table = _read(runs, renamed, where, loss_unit, token_unit)
    from loopworth.cli.objects import fit_as_json
    from loopworth.cli.show import show_fit
    from loopworth.laws.fit import fit

    fitted = fit(
        table,
        law,
        fix=_numbers(pairs(fixed, "--fix", "name=value"), "--fix"),
        delta=delta,
        interval=interval,
        resamples=resamples,
        level=level,
        protocol=protocol,
        convention=convention,
        seed=seed,
    )
    if as_json:
        click.echo(fit_as_json(fitted))
    else:
        show_fit(fitted)


@click.command("compare")
@reading
@click.option("--by", default="recipe", show_default=True, help="The column that tells the groups apart.")
@click.option("--reference", help="The group that the others are held against.")
@friendly
def compare_command(
    runs, renamed, where, loss_unit, token_unit, law, delta, level, convention, as_json, by, reference
) -> None:
    """Difference in phi, and in loss at matched budget, between groups of RUNS that share their r = 1 runs.

    r = 1 runs with a blank label belong to every group.
    """
    table = _read(runs, renamed, where, loss_unit, token_unit)
    from loopworth.cli.objects import comparison_as_json
    from loopworth.cli.show import show_comparison
    from loopworth.laws.compare import compare

    found = compare(table, by, law=law, reference=reference, delta=delta, level=level, convention=convention)
    if as_json:
        click.echo(comparison_as_json(found))
    else:
        show_comparison(found)


@click.command("laws")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def laws_command(as_json: bool) -> None:
    """List the laws: formula, the columns each needs, its parameters with their box."""
    from loopworth.cli.objects import laws_as_json
    from loopworth.cli.show import show_laws

    if as_json:
        click.echo(laws_as_json())
    else:
        show_laws()


def _numbers(named: dict[str, str], option: str) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in named.items()}
    except ValueError:
        bad = ", ".join(f"{n}={v}" for n, v in named.items())
        raise BadInput(f"{option} {bad}: the value must be a number, as in phi=0.5.") from None
