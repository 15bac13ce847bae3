"""The command tune: a sweep of one base rate, or the coordinate check."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import click

from loopworth.cli.common import friendly
from loopworth.errors import BadInput


@click.command("tune")
@click.argument("spec", type=click.Path())
@click.option("--rate", default="matrix", show_default=True, help="matrix, embedding, head, norm or lane.")
@click.option("--factors", default="0.25,0.5,1,2,4", show_default=True, help="Of the spec's base rate.")
@click.option("--widths", default="", help="The spec's, unless told otherwise: 32,64,128.")
@click.option("--r", "passes", default="", help="The spec's, unless told otherwise: 1,4.")
@click.option("--ratios", default="", help="Tokens per executed parameter, instead of the spec's tokens: 10,40.")
@click.option("--to", "root", default="runs", show_default=True, type=click.Path(), help="Folder of run folders.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads; all cores unless told otherwise.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Runs at once, a thread each.")
@click.option("--coordinates", is_flag=True, help="Check the scale of activations against width instead.")
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True, help="Of the coordinate check.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else on standard output.")
@friendly
def tune_command(
    spec: str,
    rate: str,
    factors: str,
    widths: str,
    passes: str,
    ratios: str,
    root: str,
    threads: int | None,
    workers: int,
    coordinates: bool,
    steps: int,
    as_json: bool,
) -> None:
    """Sweep one base rate of SPEC over widths, r and token counts, and print what one rate for all costs."""
    from loopworth.study import parse_spec, read_toml

    run = parse_spec(read_toml(spec), spec)
    sizes = _whole(widths, "--widths")
    if coordinates:
        from loopworth.lab import check_coordinates

        found: Any = check_coordinates(run, sizes or [int(run.shape.width) * k for k in (1, 2, 4)], steps)
        click.echo(json.dumps(asdict(found), indent=2)) if as_json else _show_coordinates(found)
        return
    from loopworth.lab import tune

    found = tune(
        run,
        root,
        rate=rate,
        factors=_numbers(factors, "--factors"),
        widths=sizes,
        r=_whole(passes, "--r"),
        ratios=_numbers(ratios, "--ratios"),
        threads=threads,
        workers=workers,
        watch=lambda record: click.echo(f"{record.run_id} {record.architecture} {record.loss}", err=True),
    )
    click.echo(json.dumps(asdict(found), indent=2)) if as_json else _show(found)


def _numbers(text: str, option: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = [math.nan]
    if not all(math.isfinite(number) and number > 0 for number in found):
        raise BadInput(f"{option} {text!r} must be numbers above 0 with commas between, as in 0.5,1,2.")
    return found


def _whole(text: str, option: str) -> list[int]:
    found = _numbers(text, option)
    if any(number != int(number) for number in found):
        raise BadInput(f"{option} {text!r} must be whole numbers.")
    return [int(number) for number in found]


def _show(found: Any) -> None:
    from rich.table import Table

    from loopworth.cli.show import console

    title = f"loss by factor of {found.rate}_rate = {found.base:g}"
    table = Table("width", "r", "tokens", *(f"x {f:g}" for f in found.factors), "best", "regret", title=title)
    for cell in found.cells:
        losses = ("diverged" if loss is None else f"{loss:.4f}" for loss in cell.losses)
        best = "outside" if cell.best is None else f"x {cell.best:.2f}"
        regret = "-" if cell.regret is None else f"{cell.regret:.4f}"
        table.add_row(str(cell.width), str(cell.r), f"{cell.tokens:,}", *losses, best, regret)
    console().print(table, highlight=False)
    worst = "a divergence" if found.worst_regret is None else f"{found.worst_regret:.4f} nats at most"
    if found.worst_regret is not None and not found.bracketed:
        worst = f"{found.worst_regret:.4f} nats or more: where it says outside, try further factors"
    click.echo(
        f"one factor for all: x {found.common:g}, {found.rate}_rate = {found.base * found.common:g}; costs {worst}"
    )


def _show_coordinates(found: Any) -> None:
    from rich.table import Table

    from loopworth.cli.show import console

    title = f"root mean square after {found.steps} steps"
    table = Table("place", *(f"width {w}" for w in found.widths), "power of width", title=title, title_justify="left")
    for place, scales in found.scale.items():
        table.add_row(place, *(f"{s:.3f}" for s in scales), f"{found.slope[place]:+.2f}")
    console().print(table, highlight=False)
