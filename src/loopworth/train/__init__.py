"""One training run."""

from loopworth.train.run import Progress, train

__all__ = ["Progress", "train"]
