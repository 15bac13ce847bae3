"""What combines parts: tuning rates, checking coordinates."""

from loopworth.lab.coordinates import Coordinates, check_coordinates
from loopworth.lab.tune import Cell, Tuning, tune

__all__ = ["Cell", "Coordinates", "Tuning", "check_coordinates", "tune"]
