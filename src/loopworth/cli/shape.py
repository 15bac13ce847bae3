"""The command shape: what a run of a spec would be made of and cost."""

from __future__ import annotations

import json
from typing import Any

import click

from loopworth.cli.common import friendly

_OF_A_RUN = ("budget", "steps", "tokens", "tokens_of_budget", "flops")


@click.command("shape")
@click.argument("spec", type=click.Path())
@click.option("--budget", type=float, help="Training FLOPs, in place of the spec's budget or tokens.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@friendly
def shape_command(spec: str, budget: float | None, as_json: bool) -> None:
    """Count SPEC, a run's TOML or spec.json: parameters by group, FLOPs by part, tokens, steps, memory."""
    from loopworth.study import RunSpec, parse_spec, read_toml

    raw = read_toml(spec)
    if budget is not None:
        raw = {**raw, "budget": budget, "tokens": None}
    # A spec that asks for no tokens can be counted all the same: as one step, of which nothing is told.
    bare = not any(raw.get(name) for name in ("tokens", "budget", "forks"))
    if bare:
        raw["tokens"] = raw.get("batch", RunSpec.model_fields["batch"].default)
    counts = parse_spec(raw, spec).counts()
    if bare:
        for name in _OF_A_RUN:
            del counts[name]
    if as_json:
        click.echo(json.dumps(counts, indent=2))
    else:
        _show(counts)


def _show(counts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from loopworth.cli.show import console

    out: Console = console()
    parameters = Table("parameters", "count", title=counts["architecture"], title_justify="left")
    for name, count in counts["parameters"].items():
        parameters.add_row(name, f"{count:,}")
    parameters.add_section()
    parameters.add_row("all", f"{counts['total_parameters']:,}")
    out.print(parameters, highlight=False)
    flops = Table("FLOPs per token", "forward", "training")
    for name, count in counts["flops_forward"].items():
        flops.add_row(name, f"{count:,}", f"{counts['flops_training'][name]:,}")
    flops.add_section()
    flops.add_row("all", f"{sum(counts['flops_forward'].values()):,}", f"{counts['flops_per_token']:,}")
    out.print(flops, highlight=False)
    memory = sum(counts["memory_bytes"].values())
    run = "give --budget, or tokens in the spec, for steps and FLOPs"
    if "tokens" in counts:
        run = f"{counts['tokens']:,} in {counts['steps']:,} steps of {counts['batch']:,}: {counts['flops']:.4g} FLOPs"
    for line in (
        f"tokens  {run}",
        f"memory  {memory / 2**20:,.0f} MiB in training, {counts['memory_tokens']:,} tokens in flight (an estimate)",
        "attention is counted as the full context x context square, causality not discounted",
    ):
        out.print(line, highlight=False, soft_wrap=True, markup=False)
