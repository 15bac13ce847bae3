"""Sweeps of a rate, and the coordinate check, on runs of a second."""

import json

import pytest
from click.testing import CliRunner

from loopworth.cli import main
from loopworth.errors import BadInput
from loopworth.lab import check_coordinates, tune
from loopworth.lab.tune import _lowest
from loopworth.train import train


def test_the_best_factor_is_the_vertex_of_the_lowest_three():
    factors = (0.25, 0.5, 1.0, 2.0, 4.0)
    best, lowest = _lowest(factors, [3.0 + 0.1 * (k - 2.3) ** 2 for k in range(5)])
    assert best == pytest.approx(2**0.3)
    assert lowest == pytest.approx(3.0)
    assert _lowest(factors, [1.0, 2.0, 3.0, 4.0, 5.0]) == (None, None)
    assert _lowest(factors, [5.0, 4.0, 3.0, None, None]) == (None, None)


def test_a_sweep_names_the_best_rate_and_what_one_for_all_costs(small, tmp_path):
    seen = []
    spec = small(recipe={"matrix_rate": 0.003})
    found = tune(spec, tmp_path, factors=(1, 4, 16, 64), widths=(16, 24), threads=1, watch=seen.append)
    assert len(seen) == 8
    assert [cell.width for cell in found.cells] == [16, 24]
    for cell in found.cells:
        assert cell.losses[0] > min(x for x in cell.losses if x is not None)  # too small a rate learns too little
    assert found.common > 1
    assert found.worst_regret is not None
    assert 0 <= found.worst_regret < 0.5
    again = []
    assert tune(spec, tmp_path, factors=(1, 4, 16, 64), widths=(16, 24), threads=1, watch=again.append) == found
    assert [r.run_id for r in again] == [r.run_id for r in seen]


def test_workers_give_the_same_losses_and_ratios_count_executed_parameters(small, tmp_path):
    asked = {"factors": (0.5, 1, 2), "widths": (16, 24), "ratios": (0.05, 0.1)}
    alone = tune(small(), tmp_path / "alone", threads=1, **asked)
    together = tune(small(), tmp_path / "together", workers=2, **asked)
    assert together == alone
    executed = [small(shape={"width": width}).shape.n_executed for width in (16, 16, 24, 24)]
    wanted = [share * count for share, count in zip((0.05, 0.1) * 2, executed, strict=True)]
    assert [cell.tokens for cell in alone.cells] == [int(tokens // 512) * 512 for tokens in wanted]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rate": "speed"}, "matrix, embedding"),
        ({"factors": (1,)}, "three"),
        ({"rate": "lane"}, "moves nothing"),
        ({"rate": "head", "widths": (128, 512)}, "both sides of 256"),
    ],
)
def test_a_sweep_that_says_nothing_is_refused(small, tmp_path, options, word):
    with pytest.raises(BadInput, match=word):
        tune(small(), tmp_path, **options)


def test_what_is_there_is_not_done_again_and_no_design_twice(small, tmp_path):
    spec = small(recipe={"matrix_rate": None})
    usual = train(spec, tmp_path, threads=1)
    found = tune(spec, tmp_path, factors=(0.5, 1, 2), widths=(16, 16), threads=1)
    assert found.base == 0.028
    assert len(found.cells) == 1
    assert found.cells[0].losses[1] == usual.loss
    assert len(list(tmp_path.iterdir())) == 3


def test_a_sweep_that_brackets_no_optimum_says_so(small, tmp_path):
    low = tune(small(recipe={"matrix_rate": 1e-4}), tmp_path, factors=(0.5, 1, 2), threads=1)
    assert not low.bracketed
    (tmp_path / "spec.json").write_text(json.dumps(small(recipe={"matrix_rate": 1e-4}).as_json()))
    call = ["tune", str(tmp_path / "spec.json"), "--to", str(tmp_path), "--threads", "1", "--factors", "0.5,1,2"]
    assert "nats or more" in CliRunner().invoke(main, call, catch_exceptions=False).stdout


@pytest.mark.parametrize(
    "options", ["--widths nan", "--widths 16.7", "--widths -16", "--r 0", "--r 1.5", "--ratios inf", "--factors 0,1,2"]
)
def test_numbers_that_are_none_are_refused(small, tmp_path, options):
    (tmp_path / "spec.json").write_text(json.dumps(small().as_json()))
    answer = CliRunner().invoke(main, ["tune", str(tmp_path / "spec.json"), *options.split()])
    assert answer.exit_code == 2
    assert options.split()[0] in answer.stderr


def test_the_stream_keeps_its_size_as_models_get_wider(small):
    found = check_coordinates(small(shape={"r": 2}), (16, 32, 64), steps=3)
    assert {"prelude.0", "loop.0 pass 1", "loop.0 pass 2", "coda.1", "logits"} <= set(found.scale)
    assert all(len(scales) == 3 for scales in found.scale.values())
    layers = [slope for place, slope in found.slope.items() if place != "logits"]
    assert max(map(abs, layers)) < 0.25
    with pytest.raises(BadInput, match="at least two"):
        check_coordinates(small(), (16, 16))
    # Rates that do not fall with width, for AdamW's groups, move wide models further.
    level = {"reference_width": 1.0, "embedding_rate": 1e-9, "norm_rate": 1e-9, "matrix_rate": 1e-9}
    gentle, wild = (
        check_coordinates(small(recipe={**level, "head_rate": rate}), (16, 64), steps=3) for rate in (0.01, 1.0)
    )
    assert wild.slope["logits"] > 0.2
    assert max(wild.scale["logits"]) > 10 * max(gentle.scale["logits"])
    with pytest.raises(BadInput, match="both sides of 256"):
        check_coordinates(small(), (128, 256))


def test_the_command_prints_the_sweep_and_the_check(small, tmp_path):
    (tmp_path / "spec.json").write_text(json.dumps(small(tokens=2048).as_json()))
    call = ["tune", str(tmp_path / "spec.json"), "--to", str(tmp_path / "runs"), "--threads", "1"]
    swept = CliRunner().invoke(main, [*call, "--factors", "0.5,1,2"], catch_exceptions=False)
    assert swept.exit_code == 0
    assert "one factor for all" in swept.stdout
    checked = CliRunner().invoke(main, [*call, "--coordinates", "--widths", "16,32", "--json"], catch_exceptions=False)
    assert json.loads(checked.stdout)["widths"] == [16, 32]
    wrong = CliRunner().invoke(main, [*call, "--factors", "a,b"])
    assert wrong.exit_code == 2
