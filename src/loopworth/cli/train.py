"""The command train: one run, with progress."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from loopworth.cli.common import friendly


@click.command("train")
@click.argument("spec", type=click.Path())
@click.option("--to", "root", default="runs", show_default=True, type=click.Path(), help="Folder of run folders.")
@click.option("--device", help="cpu, cuda or cuda:1; cuda where there is one.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads; all cores unless told otherwise.")
@click.option("--compile/--no-compile", "compiled", default=None, help="torch.compile; by default where it pays.")
@click.option("--rows-at-once", type=click.IntRange(1), help="Fewer take less memory.")
@click.option("--checkpoint-seconds", type=float, default=60.0, show_default=True, help="Time between checkpoints.")
@click.option("--track", multiple=True, metavar="NAME", help="tensorboard, wandb, mlflow or trackio; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, and nothing else on standard output.")
@friendly
def train_command(
    spec: str,
    root: str,
    device: str | None,
    threads: int | None,
    compiled: bool | None,
    rows_at_once: int | None,
    checkpoint_seconds: float,
    track: tuple[str, ...],
    as_json: bool,
) -> None:
    """Train the run of SPEC (TOML, or the spec.json of a run) to its token budget; go on if it has begun.

    Under torchrun one run is shared by all processes: torchrun --nproc-per-node 2 -m loopworth train SPEC
    """
    from loopworth.study import parse_spec, read_toml

    run = parse_spec(read_toml(spec), spec)
    from loopworth.train import train
    from loopworth.train.trackers import tracker

    first = os.environ.get("RANK", "0") == "0"
    trackers = [tracker(name, run, root) for name in track] if first else []
    record = train(
        run,
        root,
        device=device,
        threads=threads,
        compiled=compiled,
        rows_at_once=rows_at_once,
        checkpoint_seconds=checkpoint_seconds,
        observers=[*trackers, _progress()] if first else [],
    )
    for one in trackers:
        one.finish(record)
    if not first:
        return
    if as_json:
        click.echo(record.model_dump_json(indent=2))
    else:
        _show(record, root)


def _show(record: Any, root: str) -> None:
    click.echo(f"run {record.run_id} ({record.architecture}) in {root}/{record.run_id}: {record.status}")
    if record.loss is None:
        click.echo(record.reason)
        return
    error = "" if record.loss_standard_error is None else f" +- {record.loss_standard_error:.4f}"
    click.echo(
        f"loss {record.loss:.4f}{error} nats per token, {record.bits_per_byte:.4f} bits per byte, over "
        f"{record.validation_tokens:,} held-out tokens"
    )
    click.echo(f"{record.tokens:,} tokens, {record.flops:.4g} FLOPs, {record.seconds:.0f} s")


def _progress():
    """A bar on a terminal, a line every ten seconds elsewhere; both on standard error."""
    import time

    from loopworth.train import Progress
    from loopworth.train.compute import peak_flops

    last = 0.0

    def observe(p: Progress) -> None:
        nonlocal last
        terminal = sys.stderr.isatty()
        if not terminal and time.monotonic() - last < 10 and p.step < p.steps:
            return
        last = time.monotonic()
        share = p.flops_per_second / peak_flops(p.compute.device, p.compute.precision) / p.compute.processes
        speed = f"{p.tokens_per_second:,.0f} tokens/s, {share:.0%} of peak"
        line = f"step {p.step:,} of {p.steps:,}  loss {p.loss:.4f}  {speed}  {_duration(p.seconds_left)} left"
        click.echo(f"\r\033[K{line}" if terminal else line, err=True, nl=not terminal or p.step == p.steps)

    return observe


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
