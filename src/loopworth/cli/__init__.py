"""The command `loopworth`: parse, call one public function, print. Imports wait until a command needs them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from loopworth.errors import BadInput


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """A user's mistake ends in its message and exit code 2, without a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BadInput as error:
            click.echo(f"loopworth: {error}", err=True)
            raise SystemExit(2) from None

    return run


def pairs(values: tuple[str, ...], option: str, form: str) -> dict[str, str]:
    """`theirs=ours` options as a mapping."""
    found = {}
    for value in values:
        left, sign, right = value.partition("=")
        if not sign or not left.strip() or not right.strip():
            raise BadInput(f"{option} {value!r} is not of the form {form}.")
        if left.strip() in found:
            raise BadInput(f"{option} names {left.strip()!r} twice.")
        found[left.strip()] = right.strip()
    return found


def reading(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that reads a table of runs."""
    options = (
        click.argument("runs"),
        click.option("--map", "renamed", multiple=True, metavar="THEIRS=OURS", help="Rename a column; repeatable."),
        click.option("--where", metavar="EXPRESSION", help="Keep the rows where it is true, e.g. 'r != 2'."),
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


def _read(runs: str, renamed: tuple[str, ...], where: str | None, loss_unit: str, token_unit: str):
    from loopworth.ledger import read_runs

    rename = pairs(renamed, "--map", "theirs=ours")
    return read_runs(runs, rename=rename, where=where, loss_unit=loss_unit, token_unit=token_unit)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="loopworth")
def main() -> None:
    """What is one recurrence worth? Scaling laws with honest intervals for looped language models."""


@main.command("fit")
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


@main.command("compare")
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


@main.command("laws")
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
