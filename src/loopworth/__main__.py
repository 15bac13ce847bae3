"""`python -m loopworth`, for torchrun."""

from loopworth.cli import main

main()
