"""What is one recurrence worth? Scaling laws with honest intervals for looped language models."""

from importlib import import_module
from typing import TYPE_CHECKING

from loopworth.errors import BadInput, RunStopped

if TYPE_CHECKING:
    from loopworth.laws.catalogue import LAWS
    from loopworth.laws.compare import Comparison, compare
    from loopworth.laws.fit import ExtrapolationWarning, Fit, fit
    from loopworth.laws.isoflop import Frontier, Parabola, frontiers, parabolas
    from loopworth.laws.law import Law, Param, log_sum_exp
    from loopworth.laws.published import paper_grid
    from loopworth.laws.simulate import simulate
    from loopworth.ledger import Runs, read_runs
    from loopworth.model.load import load
    from loopworth.shape import Shape
    from loopworth.study import RunRecord, RunSpec
    from loopworth.train.run import train

__version__ = "0.1.0"
__all__ = [
    "LAWS",
    "BadInput",
    "Comparison",
    "ExtrapolationWarning",
    "Fit",
    "Frontier",
    "Law",
    "Parabola",
    "Param",
    "RunRecord",
    "RunSpec",
    "RunStopped",
    "Runs",
    "Shape",
    "compare",
    "fit",
    "frontiers",
    "load",
    "log_sum_exp",
    "paper_grid",
    "parabolas",
    "read_runs",
    "simulate",
    "train",
]

# Names are fetched when first used: `loopworth --help` should not wait for numpy.
_HOME = {
    "loopworth.laws.catalogue": ("LAWS",),
    "loopworth.laws.compare": ("Comparison", "compare"),
    "loopworth.laws.fit": ("ExtrapolationWarning", "Fit", "fit"),
    "loopworth.laws.isoflop": ("Frontier", "Parabola", "frontiers", "parabolas"),
    "loopworth.laws.law": ("Law", "Param", "log_sum_exp"),
    "loopworth.laws.published": ("paper_grid",),
    "loopworth.laws.simulate": ("simulate",),
    "loopworth.ledger": ("Runs", "read_runs"),
    "loopworth.model.load": ("load",),
    "loopworth.shape": ("Shape",),
    "loopworth.study": ("RunRecord", "RunSpec"),
    "loopworth.train.run": ("train",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'loopworth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
