"""Runs as a table: read from a file or a folder, taken from memory, and checked."""

from loopworth.ledger.read import read_runs
from loopworth.ledger.runs import Runs, as_runs
from loopworth.ledger.validate import check_runs

__all__ = ["Runs", "as_runs", "check_runs", "read_runs"]
