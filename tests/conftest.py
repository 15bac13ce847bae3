"""What the tests share: shared measurements, the paper's grid with drawn losses, short ways to fit."""

import csv
import os
import sys
from pathlib import Path

# Tests run in as many processes as there are cores: one thread each, set before numpy and torch load.
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"

import numpy as np
import pytest
from hypothesis import settings

import loopworth as lw
from loopworth.laws.diagnostics import problem_of
from loopworth.laws.published import JOINT
from loopworth.study import parse_spec

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "benchmarks"))

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def shared_laws():
    """The folder of published measurements that the machines of this project share."""
    folder = REPOSITORY.parent / "shared" / "data" / "laws"
    if not folder.is_dir():
        pytest.skip(f"no shared measurements at {folder}")
    return folder


@pytest.fixture(scope="session")
def measured(shared_laws):
    """Columns of a shared CSV: arrays of numbers, of text where a cell is none."""

    def columns(name):
        with (shared_laws / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        found = {}
        for key in rows[0]:
            try:
                found[key] = np.array([float(row[key]) for row in rows])
            except ValueError:
                found[key] = np.array([row[key] for row in rows])
        return found

    return columns


@pytest.fixture(scope="session")
def grid():
    """The design of the paper's 116 runs."""
    return lw.paper_grid()


@pytest.fixture(scope="session")
def draw(grid):
    """The paper's grid with losses drawn from the joint law."""

    def drawn(noise, cell_noise=0.0, tails=np.inf, seed=0, **changed):
        return lw.simulate(grid, lw.LAWS["joint"], {**JOINT, **changed}, noise, cell_noise, tails, seed=seed)

    return drawn


@pytest.fixture(scope="session")
def quick():
    """A fit of the optimum alone."""

    def fitted(runs, law="joint", **options):
        return lw.fit(runs, law, interval="none", diagnostics=False, **options)

    return fitted


@pytest.fixture(scope="session")
def problem():
    """The minimisation that a fit is."""

    def posed(runs, law="joint", delta=1e-3, **fixed):
        return problem_of(lw.LAWS[law], runs, delta, "once", fixed)

    return posed


# A run small enough to be trained in a second.
SMALL = {
    "tokens": 8192,
    "batch": 512,
    "pack": "words",
    "validation_tokens": 2048,
    "precision": "float32",
    "shape": {"width": 16, "r": 2, "depth": 8, "context": 32, "vocabulary": 256},
    "recipe": {
        "matrix_rate": 0.03, "embedding_rate": 0.2, "reference_width": 16, "reference_batch": 512,
        "reference_tokens": 8192,
    },
}  # fmt: skip


@pytest.fixture
def small():
    """The spec, with some fields of it, its shape or its recipe changed."""

    def spec(shape=None, recipe=None, **changed):
        raw = {**SMALL, **changed}
        raw["shape"] = {**SMALL["shape"], **(shape or {})}
        raw["recipe"] = {**SMALL["recipe"], **(recipe or {})}
        return parse_spec(raw)

    return spec
