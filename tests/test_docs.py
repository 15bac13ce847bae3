"""What the documentation shows must work: its Python runs, its commands run, its links lead somewhere."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import loopworth as lw
from loopworth.cli import main
from loopworth.laws.published import JOINT

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def names(pages):
    return [str(page.relative_to(REPOSITORY)) for page in pages]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that the documentation speaks of."""
    monkeypatch.chdir(tmp_path)
    grid = lw.simulate(lw.paper_grid(), lw.LAWS["joint"], JOINT, noise=0.003)
    plain = ["n_once", "n_rec", "r", "tokens", "budget", "loss"]
    lines = [",".join([*plain, "recipe"])]
    for recipe, factor in (("", 1.0), ("plain", 1.0), ("new", 0.99)):
        for k in range(len(grid)):
            if (grid["r"][k] == 1) == (recipe == ""):
                cells = [*(grid[name][k] for name in plain[:-1]), grid["loss"][k] * factor]
                lines.append(",".join([*(repr(float(c)) for c in cells), recipe]))
    Path("runs.csv").write_text("\n".join(lines) + "\n")
    theirs = ["n_once,n_rec,r,D,val_loss,status"]
    theirs += [
        f"{a!r},{b!r},{r!r},{d / 1e9!r},{loss!r},finished"
        for a, b, r, d, loss in zip(
            *(grid[n].tolist() for n in ("n_once", "n_rec", "r", "tokens", "loss")), strict=True
        )
    ]
    readme = blocks(REPOSITORY / "README.md", "toml")
    Path("spec.toml").write_text(next(block for block in readme if block.startswith("# spec.toml")))
    Path("wandb.csv").write_text("\n".join([*theirs, "1e7,1e7,4.0,1.0,,crashed"]) + "\n")


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_in_the_documentation_runs(page):
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), {"__name__": "documentation"})


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=lambda p: p.name)
def test_commands_in_the_documentation_run(page):
    lines = [line for code in blocks(page, "sh") for line in code.splitlines() if line.startswith("loopworth ")]
    for line in lines:
        result = CliRunner().invoke(main, shlex.split(line, comments=True)[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{line}\n{result.stderr}"
    makes = {line.split()[1] for code in blocks(page, "sh") for line in code.splitlines() if line.startswith("make ")}
    assert lines or makes
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert makes <= targets


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.usefixtures("desk")
def test_the_documented_columns_and_json_keys_are_the_real_ones():
    page = (REPOSITORY / "docs" / "fit.md").read_text()
    result = CliRunner().invoke(main, ["fit", "runs.csv", "--where", "recipe is null or recipe = 'plain'", "--json"])
    for key in json.loads(result.stdout):
        assert f"`{key}`" in page, key


def test_the_law_page_lists_every_law_with_its_formula():
    page = (REPOSITORY / "docs" / "laws.md").read_text()
    for law in lw.LAWS.values():
        assert f"| `{law.name}` | {law.formula} |" in page
