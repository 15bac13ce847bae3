"""`python -m loopworth`, for torchrun."""

from loopworth.cli import run

run()
