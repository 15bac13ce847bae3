"""The command export."""

from __future__ import annotations

import click

from loopworth.cli.common import friendly


@click.command("export")
@click.argument("run", type=click.Path())
@click.option("--to", required=True, type=click.Path(), help="The new folder.")
@friendly
def export_command(run: str, to: str) -> None:
    """Write the model of RUN, a run's folder, as one that transformers loads (trust_remote_code)."""
    from pathlib import Path

    from loopworth.ledger.folder import RunFolder
    from loopworth.model.export import export

    spec = RunFolder(Path(run)).read("spec") or {}
    tokenizer = Path(spec.get("pack", ""), "tokenizer.json")
    export(run, to, tokenizer if tokenizer.is_file() else None)
    click.echo(f"{to}: AutoModelForCausalLM.from_pretrained({str(to)!r}, trust_remote_code=True)")
