"""Losses of 50 steps in float32, step by step: a change of arithmetic shows here before it moves a study.

Written anew by `python tests/train/test_golden.py`, which is a decision to be explained in the change that makes it.
"""

import json
import tempfile
from pathlib import Path

import pytest

from loopworth.study import parse_spec
from loopworth.train import train

GOLDEN = Path(__file__).with_name("golden.json")
SHAPES = {
    "plain": {"r": 1},
    "linear": {"r": 4},
    "truncated": {"r": 4, "r_bwd": 2},
    "additive": {"r": 4, "injection": "additive"},
    "hyperconnections": {"r": 4, "injection": "hyperconnections"},
    "diagonal": {"r": 4, "injection": "diagonal"},
}


def fifty_losses(shape, root):
    recipe = {
        "matrix_rate": 0.03, "embedding_rate": 0.2, "head_rate": 0.004, "reference_width": 24, "reference_batch": 512,
        "reference_tokens": 25600,
    }  # fmt: skip
    spec = parse_spec(
        {
            "tokens": 25600, "batch": 512, "validation_tokens": 1024, "precision": "float32", "recipe": recipe,
            "shape": {"width": 24, "depth": 8, "context": 32, "vocabulary": 256, **shape},
        }
    )  # fmt: skip
    losses = []
    train(spec, root, threads=1, compiled=False, log_steps=1, observers=[lambda p: losses.append(p.loss)])
    return losses


@pytest.mark.parametrize("name", SHAPES)
def test_fifty_steps_are_the_stored_ones(name, tmp_path):
    stored = json.loads(GOLDEN.read_text())[name]
    found = fifty_losses(SHAPES[name], tmp_path)
    assert len(found) == 50
    # Rounding differs between processors and grows along the run; a wrong sign or rate is a hundred times this.
    assert found[:10] == pytest.approx(stored[:10], abs=1e-4)
    assert found == pytest.approx(stored, abs=5e-3)
    assert found[-1] < found[0] - 1.5


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        content = {name: [round(x, 6) for x in fifty_losses(shape, folder)] for name, shape in SHAPES.items()}
    GOLDEN.write_text(json.dumps(content) + "\n")
