"""A run small enough to be trained in a second."""

import pytest

from loopworth.study import parse_spec

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
