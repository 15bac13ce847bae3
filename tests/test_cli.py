"""The commands as a user meets them: a process, its output, its exit code."""

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import loopworth as lw
from loopworth.cli import main
from loopworth.laws.published import JOINT

COLUMNS = ("n_once", "n_rec", "n_injection", "n_head", "r", "tokens", "budget", "loss")
KEYS = {
    "law", "status", "params", "interval", "interval_method", "level", "objective", "starts_agreeing", "r2", "rmse",
    "n_runs", "convention", "restricted", "halves", "warnings",
}  # fmt: skip


def write_csv(path, runs, columns=COLUMNS):
    rows = zip(*(runs[name].tolist() for name in columns), strict=True)
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def grid():
    return lw.simulate(lw.paper_grid(), lw.LAWS["joint"], JOINT, noise=0.003, seed=1)


@pytest.fixture
def csv(tmp_path, grid):
    return write_csv(tmp_path / "runs.csv", grid)


def run(*args):
    result = CliRunner().invoke(main, [str(a) for a in args])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def fitted(*args):
    result = run("fit", *args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_fit_prints_one_json_object_with_every_promised_key(csv):
    found = fitted(csv)
    assert set(found) >= KEYS
    assert found["law"] == "joint"
    assert found["status"] == "ok"
    assert found["convention"] == "once"
    assert found["n_runs"] == 116
    assert set(found["params"]) == set(JOINT)
    low, high = found["interval"]["phi"]
    assert low < JOINT["phi"] < high
    assert low < found["params"]["phi"] < high
    assert set(found["restricted"]) == {"phi=0", "phi=1"}
    assert (found["halves"]["low"]["n_runs"], found["halves"]["high"]["n_runs"]) == (56, 60)


def test_the_command_and_the_function_agree(csv, grid):
    assert fitted(csv)["params"] == pytest.approx(dict(lw.fit(grid).params), rel=1e-9)


def test_fit_for_people_says_phi_and_what_it_means(csv):
    text = run("fit", csv).stdout
    assert "phi = 0.465 [" in text
    assert "4^phi = 1.9" in text
    assert "phi = 0 " in text
    assert "up to 2.15e+18 FLOPs" in text


def test_units_names_and_filters_change_only_what_they_say(tmp_path, csv, grid):
    plain = fitted(csv, "--where", "r != 2")
    bent = grid.with_columns(loss=grid["loss"] / np.log(2), tokens=grid["tokens"] / 1e9)
    theirs = write_csv(tmp_path / "theirs.csv", bent)
    theirs.write_text(theirs.read_text().replace("n_once", "prelude", 1).replace("loss", "val_bits", 1))
    found = fitted(
        theirs, "--map", "prelude=n_once", "--map", "val_bits=loss", "--where", "r <> 2", "--loss-unit", "bits",
        "--token-unit", "B",
    )  # fmt: skip
    assert found["n_runs"] == 87
    assert found["params"] == pytest.approx(plain["params"], rel=1e-6)
    assert any("left out 29 of 116" in note for note in found["notes"])


@pytest.mark.parametrize("method", ["jackknife", "bootstrap", "profile", "delta"])
def test_every_interval_method_brackets_phi(csv, method):
    found = fitted(csv, "--interval", method, "--resamples", 50)
    low, high = found["interval"]["phi"]
    assert found["interval_method"] == method
    assert low < found["params"]["phi"] < high
    assert high - low < 0.1


def test_a_fixed_parameter_stays(csv):
    found = fitted(csv, "--fix", "phi=0.25")
    assert found["params"]["phi"] == 0.25
    assert found["interval"]["phi"] is None


def test_level_widens_the_interval(csv):
    narrow, wide = (fitted(csv, "--level", level)["interval"]["phi"] for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize(
    ("where", "word"), [("r = 4", "one r"), ("budget = 1e18", "one budget"), ("n_rec > 8e8", "too few runs")]
)
def test_what_is_not_identified_is_null_with_exit_code_0(csv, where, word):
    found = fitted(csv, "--where", where)
    assert word in found["status"]
    assert found["params"]["phi"] is None
    assert found["interval"]["phi"] is None
    text = run("fit", csv, "--where", where)
    assert text.exit_code == 0
    assert word in text.stdout


MISTAKES = {
    "a missing column": (lambda t: t.replace("loss", "lose", 1), ["loss", "--map"]),
    "text for a number": (lambda t: _cell(t, 5, "abc"), ["row 5", "loss", "abc"]),
    "a blank": (lambda t: _cell(t, 5, ""), ["row 5", "loss", "blank"]),
    "not finite": (lambda t: _cell(t, 7, "inf"), ["row 7", "loss", "inf"]),
    "a loss of nothing": (lambda t: _cell(t, 7, "0"), ["row 7", "loss", "above 0"]),
    "a row twice": (lambda t: t + t.splitlines()[3] + "\n", ["rows 3 and 117"]),
    "an empty file": (lambda t: "", ["empty"]),  # noqa: ARG005
    "r below 1": (lambda t: t.replace(",1.0,", ",0.5,", 1), ["row 1", "r 0.5", "below 1"]),
}


def _cell(text, row, value):
    lines = text.splitlines()
    lines[row] = ",".join([*lines[row].split(",")[:-1], value])
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("command", ["fit", "compare"])
def test_malformed_input_gets_one_message_and_exit_code_2(csv, mistake, command):
    bend, words = MISTAKES[mistake]
    csv.write_text(bend(csv.read_text()))
    result = run(command, csv)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("loopworth: ")
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--law", "jiont"], "joint"),
        (["--interval", "bayes"], "jackknife"),
        (["--fix", "phi"], "name=value"),
        (["--fix", "phi=x"], "number"),
        (["--fix", "psi=1"], "phi"),
        (["--fix", "phi=9"], "-3 to 3"),
        (["--map", "loss"], "theirs=ours"),
        (["--delta", "0"], "above 0"),
        (["--delta", "nan"], "above 0"),
        (["--level", "95"], "between 0 and 1"),
        (["--resamples", "1"], "at least 2"),
        (["--protocol", "mine"], "paper"),
        (["--convention", "all"], "once+head"),
        (["--loss-unit", "bytes"], "bits"),
        (["--token-unit", "Q"], "K, M, B, T"),
        (["--where", "r !! 2"], "--where"),
    ],
)
def test_a_bad_option_names_what_is_allowed(csv, options, word):
    result = run("fit", csv, *options)
    assert result.exit_code == 2
    assert word in result.stderr


def test_compare_tells_recipes_apart(tmp_path, grid):
    better = lw.simulate(lw.paper_grid(), lw.LAWS["joint"], {**JOINT, "phi": 0.65}, noise=0.003, seed=2)
    better = better.select(better["r"] > 1)
    lines = [",".join([*COLUMNS, "recipe"])]
    for table, recipe in ((grid, "plain"), (better, "hyper")):
        for k in range(len(table)):
            values = [repr(float(table[name][k])) for name in COLUMNS]
            lines.append(",".join([*values, "" if table["r"][k] == 1 else recipe]))
    path = tmp_path / "recipes.csv"
    path.write_text("\n".join(lines) + "\n")
    found = json.loads(run("compare", path, "--json").stdout)
    assert found["reference"] == "plain"
    assert found["shared_runs"] == 29
    (difference,) = found["differences"]
    assert difference["recipe"] == "hyper"
    low, high = difference["phi_interval"]
    assert low < 0.191 < high
    assert low > 0
    assert difference["loss"] < 0
    assert "hyper - plain" in run("compare", path).stdout


def test_laws_lists_every_law_with_its_columns():
    text = run("laws").stdout
    listed = json.loads(run("laws", "--json").stdout)
    assert set(listed) == set(lw.LAWS)
    for name, law in lw.LAWS.items():
        assert name in text
        assert listed[name]["columns"] == [*law.columns, "loss"]


def test_a_fit_needs_neither_torch_nor_a_slow_start(csv):
    """What must not be imported is what makes a start slow; times themselves are for benchmarks."""
    code = (
        "import sys; from loopworth.cli import main\n"
        f"try: main(['fit', {str(csv)!r}, '--json'])\n"
        "except SystemExit: pass\n"
        "bad = {'torch', 'matplotlib', 'pandas', 'pyarrow', 'scipy.optimize', 'scipy.stats'} & set(sys.modules)\n"
        "print(sorted(bad), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert json.loads(done.stdout)["status"] == "ok"


def test_help_and_version_need_no_numpy():
    code = (
        "import sys; from loopworth.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print('numpy' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "fit" in done.stdout
    assert done.stderr.strip() == "False"


def test_every_where_must_hold(csv):
    twice = fitted(csv, "--where", "r != 2 -- a comment", "--where", "budget < 1e19")
    assert twice["params"] == fitted(csv, "--where", "r != 2 and budget < 1e19")["params"]
    assert twice["n_runs"] < 87
