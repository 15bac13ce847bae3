"""The command `loopworth`: parse, call one public function, print. Imports wait until a command needs them."""

from __future__ import annotations

import os
import sys

import click

from loopworth.cli.export import export_command
from loopworth.cli.fit import compare_command, fit_command, laws_command
from loopworth.cli.pack import pack_command
from loopworth.cli.shape import shape_command
from loopworth.cli.train import train_command
from loopworth.cli.tune import tune_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="loopworth")
def main() -> None:
    """What is one recurrence worth? Scaling laws with honest intervals for looped language models."""


for command in (
    fit_command,
    compare_command,
    laws_command,
    shape_command,
    pack_command,
    train_command,
    tune_command,
    export_command,
):
    main.add_command(command)


def run() -> None:
    """The program. On Linux a training process starts itself once more with large pages: 2 to 12 % faster on a CPU."""
    wanted = {"train", "tune"} & set(sys.argv[1:2])
    if wanted and sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    main()
