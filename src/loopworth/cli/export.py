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

    from loopworth.corpus import open_corpus
    from loopworth.errors import BadInput
    from loopworth.ledger.folder import RunFolder
    from loopworth.model.export import export

    folder = RunFolder(Path(run))
    record, spec = folder.record(), folder.read("spec") or {}
    tokenizer, why = None, "tokens are bytes"
    try:
        corpus = open_corpus(spec.get("pack", "words"))
        if corpus.manifest.tokenizer != "bytes":
            tokenizer = Path(spec["pack"]).expanduser() / "tokenizer.json"
        if record is None or corpus.manifest.hash != record.corpus:
            tokenizer, why = None, f"{spec.get('pack')} is not the pack that the run was trained on any more"
    except BadInput as error:
        why = str(error)
    export(run, to, tokenizer)
    click.echo(f"{to}: AutoModelForCausalLM.from_pretrained({str(to)!r}, trust_remote_code=True)")
    click.echo(f"{to}: {'with its tokenizer' if tokenizer else f'without a tokenizer: {why}'}")
