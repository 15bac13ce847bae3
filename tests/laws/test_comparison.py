"""Two recipes are told apart when they differ, and are not when they do not."""

import numpy as np
import pytest

import loopworth as lw
from loopworth.laws.compare import compare
from loopworth.laws.published import JOINT
from loopworth.ledger import as_runs


@pytest.fixture(scope="module")
def recipes(grid):
    """The r = 1 runs of the grid, shared, and its looped runs once per recipe with that recipe's phi."""

    def drawn(phis, noise=0.002, seed=0, budgets=None, own_baselines=False):
        lower = grid.select(grid["budget"] < 5e18)
        plain, looped = lower.select(lower["r"] == 1), lower.select(lower["r"] > 1)
        law, parts = lw.LAWS["joint"], []
        if not own_baselines:
            parts.append((lw.simulate(plain, law, JOINT, noise, seed=1000 + seed), ""))
        for k, (name, phi) in enumerate(phis.items()):
            some = lower if own_baselines else looped
            if budgets and name in budgets:
                some = some.select(np.isin(some["budget"], budgets[name]))
            parts.append((lw.simulate(some, law, {**JOINT, "phi": phi}, noise, seed=10 * seed + k), name))
        columns = {n: np.concatenate([runs[n] for runs, _ in parts]) for n in parts[0][0].columns}
        recipe = [name for runs, name in parts for _ in range(len(runs))]
        return as_runs({**columns, "recipe": recipe})

    return drawn


def test_a_real_difference_in_phi_is_covered_and_named(recipes):
    covered = 0
    for seed in range(8):
        found = compare(recipes({"plain": 0.46, "lanes": 0.65}, seed=seed))
        assert found.status == "ok"
        assert found.reference == "plain"
        (lanes,) = found.differences
        assert lanes.phi == pytest.approx(found.fits["lanes"].phi - found.fits["plain"].phi, rel=1e-9)
        low, high = lanes.phi_interval
        covered += low <= 0.19 <= high
        assert low > 0
        assert lanes.loss < 0
        assert "worth more" in lanes.verdict
        assert "better loops" in lanes.verdict
    assert covered >= 7


@pytest.mark.parametrize("seed", range(4))
def test_equal_recipes_cannot_be_told_apart(recipes, seed):
    (other,) = compare(recipes({"plain": 0.46, "other": 0.46}, seed=seed)).differences
    assert other.phi_interval[0] <= 0 <= other.phi_interval[1]
    assert "cannot be told apart" in other.verdict


def test_the_interval_on_a_difference_is_narrower_than_that_of_unpaired_fits(recipes):
    """What the shared r = 1 runs do to both recipes cancels."""
    found = compare(recipes({"plain": 0.46, "other": 0.46}, seed=2))
    (other,) = found.differences
    half = {name: np.ptp(found.fits[name].interval["phi"]) / 2 for name in ("plain", "other")}
    assert np.ptp(other.phi_interval) / 2 < np.hypot(half["plain"], half["other"])


def test_each_fit_is_that_of_its_runs_and_the_shared_ones(recipes, quick):
    runs = recipes({"plain": 0.46, "lanes": 0.65})
    found = compare(runs)
    assert found.shared_runs == 20
    assert list(found.fits) == ["plain", "lanes"]
    recipe = runs.label("recipe")
    for name in ("plain", "lanes"):
        own = quick(runs.select((recipe == "") | (recipe == name)))
        assert found.fits[name].phi == pytest.approx(own.phi, abs=1e-6)
        assert found.fits[name].n_runs == 80


def test_the_difference_in_loss_is_the_mean_over_cells_of_pairs(recipes):
    runs = recipes({"plain": 0.46, "lanes": 0.65})
    (lanes,) = compare(runs).differences
    recipe = runs.label("recipe")
    plain, other = runs.select(recipe == "plain"), runs.select(recipe == "lanes")
    gap = other["loss"] - plain["loss"]
    cells = [
        gap[(plain["budget"] == c) & (plain["r"] == r)].mean() for c in np.unique(plain["budget"]) for r in (2, 4, 8)
    ]
    assert lanes.pairs == 60
    assert lanes.loss == pytest.approx(np.mean(cells), rel=1e-9)
    assert lanes.loss_interval[0] < lanes.loss < lanes.loss_interval[1] < 0


def test_a_recipe_that_wins_by_tokens_alone_is_called_that(recipes):
    runs = recipes({"plain": 0.46, "cut": 0.36}, noise=0.001)
    cheaper = np.where(runs.label("recipe") == "cut", 0.97, 1.0)
    (cut,) = compare(runs.with_columns(loss=runs["loss"] * cheaper), level=0.9).differences
    if cut.phi_interval[1] < 0:
        assert "bought with tokens, not with better loops" in cut.verdict
    else:
        assert "cannot be told apart" in cut.verdict or "worth more" in cut.verdict
    assert "lower loss at matched budget" in cut.verdict


def test_the_reference_can_be_chosen_and_turns_the_sign(recipes):
    runs = recipes({"plain": 0.46, "lanes": 0.65})
    (one,) = compare(runs).differences
    (other,) = compare(runs, reference="lanes").differences
    assert (other.recipe, other.reference) == ("plain", "lanes")
    assert other.phi == pytest.approx(-one.phi, rel=1e-9)
    assert other.phi_interval == pytest.approx((-one.phi_interval[1], -one.phi_interval[0]), rel=1e-6)
    assert other.loss == pytest.approx(-one.loss, rel=1e-9)


def test_three_recipes_are_each_differenced_from_the_reference(recipes):
    found = compare(recipes({"a": 0.46, "plain": 0.46, "b": 0.6}))
    assert [d.recipe for d in found.differences] == ["a", "b"]
    assert {d.reference for d in found.differences} == {"plain"}


def test_budgets_that_not_every_recipe_has_are_left_out_with_a_note(recipes):
    runs = recipes({"plain": 0.46, "lanes": 0.65}, budgets={"lanes": [4.64e17, 1e18, 2.15e18]})
    found = compare(runs)
    left = int((runs["budget"] == 4.64e18).sum())
    assert any(f"{left} runs left out" in n and "4.64e+18" in n for n in found.notes)
    assert {f.n_runs for f in found.fits.values()} == {56}


def test_recipes_with_r_1_runs_of_their_own_are_warned_about(recipes):
    found = compare(recipes({"plain": 0.46, "lanes": 0.65}, own_baselines=True))
    assert found.shared_runs == 0
    assert any("different r = 1 baselines" in w for w in found.warnings)
    shared = compare(recipes({"plain": 0.46, "lanes": 0.65}))
    assert not any("baselines" in w for w in shared.warnings)


def test_recipes_without_any_r_1_runs_are_warned_about(recipes):
    runs = recipes({"plain": 0.46, "lanes": 0.65})
    found = compare(runs.select(runs["r"] > 1))
    assert any("has no r = 1 runs" in w for w in found.warnings)


def test_looped_runs_without_a_label_are_a_group_of_their_own(recipes):
    found = compare(recipes({"": 0.46, "lanes": 0.65}))
    assert found.reference == "(none)"
    assert found.differences[0].phi > 0.1


def test_any_column_can_be_compared_by(recipes):
    runs = recipes({"plain": 0.46, "lanes": 0.65})
    columns = {n: c for n, c in runs.columns.items() if n != "recipe"}
    (lanes,) = compare({**columns, "injection": runs.label("recipe")}, by="injection").differences
    assert lanes.phi == pytest.approx(compare(runs).differences[0].phi, abs=1e-9)


def test_a_recipe_at_one_r_has_no_phi_and_so_no_difference(grid):
    plain = grid.with_columns(recipe=np.where(grid["r"] == 1, "", np.where(grid["r"] == 4, "four", "rest")))
    runs = lw.simulate(plain, lw.LAWS["joint"], JOINT, 0.002)
    alone = runs.select((runs["r"] == 4) | np.isin(runs["r"], [2, 8]))
    (difference,) = compare(alone, reference="rest").differences
    assert difference.phi is None
    assert difference.phi_interval is None
    assert "phi of four is not identified" in difference.verdict


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "optimizer"}, "no column 'optimizer'"),
        ({"law": "chinchilla"}, "about phi"),
        ({"reference": "nobody"}, "no group 'nobody'"),
        ({"level": 1.5}, "level"),
        ({"delta": -1.0}, "delta"),
    ],
)
def test_what_cannot_be_compared_is_refused(recipes, options, words):
    with pytest.raises(lw.BadInput, match=words):
        compare(recipes({"plain": 0.46, "lanes": 0.65}), **options)


def test_one_group_is_refused(recipes):
    with pytest.raises(lw.BadInput, match=r"1 group\(s\) \(plain\); comparing takes two"):
        compare(recipes({"plain": 0.46}))


def test_without_a_common_budget_it_is_said_and_no_losses_are_compared(draw):
    plain, other = draw(0.003, seed=1), draw(0.003, seed=2, phi=0.65)
    parts = [
        (plain.select(plain["r"] == 1), ""),
        (plain.select((plain["r"] > 1) & (plain["budget"] < 4e18)), "plain"),
        (other.select((other["r"] > 1) & (other["budget"] > 4e18)), "hyper"),
    ]
    columns = {name: np.concatenate([part[name] for part, _ in parts]) for name in plain.columns}
    labels = np.concatenate([[label] * len(part) for part, label in parts])
    found = lw.compare(lw.Runs(columns).with_columns(recipe=labels))
    assert any("no budget is common" in note for note in found.notes)
    (difference,) = found.differences
    assert difference.loss is None
    assert "no runs of equal budget" in difference.verdict


def test_a_recipe_in_bits_is_suspected(draw):
    plain, other = draw(0.003, seed=1), draw(0.003, seed=2)
    columns = {name: np.concatenate([plain[name], other[name]]) for name in plain.columns}
    columns["loss"][116:] /= np.log(2)
    table = lw.Runs(columns).with_columns(recipe=["a"] * 116 + ["b"] * 116)
    assert any("bits among nats" in warning for warning in lw.compare(table).warnings)
