"""A run as data: what is refused, what its id stands for, what its words say."""

import json

import pytest

from loopworth import study
from loopworth.errors import BadInput
from loopworth.study import parse_spec, read_toml

TRUNK = {"kind": "trunk", "tokens": None, "forks": [4096.0, 8192.0]}
WSD = {"schedule": "wsd", "decay": 0.25}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"tokens": None}, "tokens or budget"),
        ({"budget": 1e9}, "one of the two"),
        ({"tokens": "8192"}, "tokens"),
        ({"tokens": 100}, "less than one step"),
        ({"tokens": float("nan")}, "tokens"),
        ({"batch": 0}, "batch"),
        ({"batch": 500}, "whole number of rows"),
        ({"init_seed": -1}, "init_seed"),
        ({"data_seed": -1}, "data_seed"),
        ({"data_seed": 2**63}, "data_seed"),
        ({"validation_tokens": 1 << 40}, "validation_tokens"),
        ({"shape": {"r": 0}}, "r is 0"),
        ({"shape": {"r": 5}}, "equal passes"),
        ({"shape": {"width": "16"}}, "without quotes"),
        ({"shape": {"widht": 16}}, "there is no such field"),
        ({"recipe": {"matrix_rate": -1.0}}, "matrix_rate"),
        ({"recipe": {"optimiser": "adamw"}}, "there is no such field"),
        ({"recipe": {"optimizer": "adamw", "matrix_rate": None}}, "matrix_rate of its own"),
        ({"kind": "trunk"}, "names the forks"),
        ({"kind": "branch"}, "names its trunk"),
        ({**TRUNK, "tokens": 8192.0, "recipe": WSD}, "leave tokens and budget out"),
        ({**TRUNK, "forks": [100.0, 8192.0], "recipe": WSD}, "before the first step"),
        ({**TRUNK, "recipe": {**WSD, "warmup": 0.9}}, "before the warmup ends"),
        (TRUNK, "schedule = 'wsd'"),
    ],
    ids=lambda x: "" if isinstance(x, dict) else x,
)
def test_a_spec_that_makes_no_sense_is_refused(small, changed, word):
    with pytest.raises(BadInput, match=word):
        small(**changed)


@pytest.mark.parametrize("content", ["[1, 2]", '"spec"', "null"])
def test_json_that_is_no_spec_is_refused(tmp_path, content):
    (tmp_path / "spec.json").write_text(content)
    with pytest.raises(BadInput, match="holds no fields"):
        read_toml(tmp_path / "spec.json")


def test_a_spec_of_another_version_is_refused(small):
    with pytest.raises(BadInput, match="schema 99"):
        parse_spec({**small().as_json(), "schema": 99})


def test_an_id_is_of_what_defines_the_run(small, monkeypatch):
    usual = small(recipe={"matrix_rate": None, "embedding_rate": None})
    same = [
        small(recipe={"matrix_rate": 0.028, "embedding_rate": None}),  # the default, named
        small(recipe={"matrix_rate": None, "embedding_rate": None}, labels={"note": "again"}),
        parse_spec(json.loads(json.dumps(usual.as_json()))),
    ]
    assert {spec.run_id("corpus") for spec in same} == {usual.run_id("corpus")}
    changes = [{"init_seed": 1}, {"data_seed": 1}, {"precision": "bfloat16"}, {"shape": {"r": 1}}, {"tokens": 4096}]
    ids = {small(**change).run_id("corpus") for change in changes} | {small().run_id("corpus"), small().run_id("other")}
    assert len(ids) == len(changes) + 2
    before = usual.run_id("corpus")
    monkeypatch.setattr(study, "SMALL", {**study.SMALL, "head": 0.01})
    assert usual.run_id("corpus") != before  # another default is another run


def test_a_trunk_is_as_long_as_its_longest_branch_stays(small):
    trunk = small(**TRUNK, recipe=WSD)
    assert trunk.fork_steps == (6, 12)
    assert trunk.steps == 12
    assert trunk.counts()["tokens"] == 12 * 512
    assert trunk.rule_tokens == 8192


def test_words_tell_architectures_and_recipes_apart():
    usual = {"width": 16, "depth": 20, "context": 32, "vocabulary": 256, "r": 4}
    shapes = {
        "r=4": {},
        "r=4 injection=additive": {"injection": "additive"},
        "r=4 r_bwd=2": {"r_bwd": 2},
        "r=4 heads=4 kv_heads=2": {"heads": 4, "kv_heads": 2},
        "r=4 d_ff=32": {"d_ff": 32},
        "r=4 injection=hyperconnections": {"injection": "hyperconnections"},
        "r=4 injection=hyperconnections lanes=5": {"injection": "hyperconnections", "lanes": 5},
    }
    for words, change in shapes.items():
        assert parse_spec({"tokens": 8192, "batch": 512, "shape": {**usual, **change}}).architecture == words
    recipes = {
        "": {},
        "optimizer=adamw matrix_rate=0.001": {"optimizer": "adamw", "matrix_rate": 0.001},
        "schedule=wsd": {"schedule": "wsd"},
        "matrix_rate=0.02": {"matrix_rate": 0.02},
    }
    for words, recipe in {**recipes, "": {"matrix_rate": 0.028}}.items():
        spec = parse_spec({"tokens": 8192, "batch": 512, "shape": usual, "recipe": recipe})
        assert spec.recipe_in_words == words
