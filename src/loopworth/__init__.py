"""What is one recurrence worth? Scaling laws with honest intervals for looped language models."""

from loopworth.errors import BadInput
from loopworth.laws.catalogue import LAWS
from loopworth.laws.fit import ExtrapolationWarning, Fit, fit
from loopworth.laws.law import Law, Param, log_sum_exp
from loopworth.laws.published import paper_grid
from loopworth.laws.simulate import simulate
from loopworth.ledger import Runs, read_runs

__version__ = "0.1.0"
__all__ = [
    "LAWS",
    "BadInput",
    "ExtrapolationWarning",
    "Fit",
    "Law",
    "Param",
    "Runs",
    "fit",
    "log_sum_exp",
    "paper_grid",
    "read_runs",
    "simulate",
]
