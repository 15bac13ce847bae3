"""The recipe of section 4: rates and how they transfer, schedules, MuonH on its sphere."""

import numpy as np
import pytest
import torch

from loopworth.model import LoopedTransformer, Weights, group_of
from loopworth.recipe import Optimizer, fork_step, orthogonalised, rates, schedule
from loopworth.shape import Shape
from loopworth.study import Recipe, RunSpec

SHAPE = {"depth": 8, "context": 16, "vocabulary": 64}
REFERENCE = {"tokens": 9.8e8, "batch": 2**18}


def spec(width=640, recipe=None, shape=None, **run):
    return RunSpec(shape=Shape(width=width, **{**SHAPE, **(shape or {})}), recipe=recipe or Recipe(), **run)


def test_at_the_reference_the_rates_are_the_published_ones():
    found = rates(spec(**REFERENCE))
    assert found["embedding"] == pytest.approx(0.3)
    assert found["head"] == pytest.approx(0.004)
    assert found["norm"] == pytest.approx(0.005)
    assert found["lane"] == pytest.approx(0.01)
    assert found["matrix"] == pytest.approx(0.014, rel=1e-4)  # whole steps: a little less data


def test_small_widths_have_the_rates_of_their_own_sweep():
    small, wide = (rates(spec(width=width, **REFERENCE)) for width in (192, 256))
    assert small["matrix"] == pytest.approx(2 * wide["matrix"])
    assert small["head"] / wide["head"] == pytest.approx(2 * (256 / 192) ** 0.5)
    assert small["norm"] / wide["norm"] == pytest.approx((256 / 192) ** 0.5)
    named = rates(spec(width=64, recipe=Recipe(matrix_rate=0.02), **REFERENCE))
    assert named["matrix"] == pytest.approx(0.02, rel=1e-4)


def test_rates_transfer_with_width_batch_and_data():
    base = rates(spec(**REFERENCE))
    wide = rates(spec(width=2560, **REFERENCE))
    assert wide["head"] / base["head"] == pytest.approx(0.5)
    assert wide["matrix"] == pytest.approx(base["matrix"])
    batch = rates(spec(tokens=9.8e8, batch=2**16))
    for group in base:
        assert batch[group] / base[group] == pytest.approx(0.25**0.558, rel=1e-3)
    data = rates(spec(tokens=9.8e9, batch=2**18))
    assert data["matrix"] / base["matrix"] == pytest.approx(10**-0.32, rel=1e-4)
    assert data["embedding"] == base["embedding"]


@pytest.mark.parametrize(("optimizer", "power"), [("muonh", 0.0), ("muon", 0.0), ("adamw", -0.5)])
def test_matrices_on_adamw_have_its_width_rule(optimizer, power):
    recipe = Recipe(optimizer=optimizer, matrix_rate=0.01)
    near, far = (rates(spec(width=width, recipe=recipe, **REFERENCE)) for width in (640, 160))
    assert far["matrix"] / near["matrix"] == pytest.approx(0.25**power)


def test_a_trunk_has_the_rates_of_its_longest_branch():
    wsd = Recipe(schedule="wsd", reference_tokens=1e6)
    trunk = spec(recipe=wsd, kind="trunk", forks=(1e6, 4e6), batch=1024)
    longest = spec(recipe=wsd, tokens=4e6, batch=1024)
    assert rates(trunk)["matrix"] == pytest.approx(rates(longest)["matrix"], rel=1e-3)
    assert rates(longest, rule_tokens=8e6)["matrix"] < rates(longest)["matrix"]


def test_linear_decay_ends_near_a_tenth_of_the_peak():
    share = [schedule(Recipe(), step, 100) for step in range(100)]
    assert share[0] == 1.0
    assert share[-1] == pytest.approx(0.1 + 0.9 / 100)
    assert np.diff(share) == pytest.approx(-0.9 / 100)


def test_warmup_stable_decay_is_flat_until_its_fork():
    recipe = Recipe(schedule="wsd", decay=0.2, warmup=0.1)
    share = [schedule(recipe, step, 100) for step in range(100)]
    assert share[:10] == pytest.approx([(k + 1) / 10 for k in range(10)])
    assert fork_step(100, 0.2) == 80
    assert share[10:81] == [1.0] * 71
    assert share[99] == pytest.approx(0.1 + 0.9 / 20)
    assert [schedule(recipe, step, 100, "trunk") for step in range(80)] == share[:80]


@pytest.mark.parametrize("size", [(3, 24, 24), (2, 16, 64), (2, 64, 16)])
def test_singular_values_are_brought_near_1(size):
    x = torch.randn(size, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalised(x))
    # A square random matrix has a few values near 0, which five steps do not bring all the way.
    assert 0.6 < values.quantile(0.1) < values.max() < 1.3
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    cosine = (orthogonalised(x) * (u @ v)).sum((-2, -1)) / values.norm(dim=-1) / min(size[1:]) ** 0.5
    assert cosine.min() > 0.98


def trained(optimizer, steps=3, **shape):
    run = spec(
        width=32,
        recipe=Recipe(optimizer=optimizer, matrix_rate=0.014),
        tokens=64_000,
        batch=64,
        shape={"r": 2, **shape},
    )
    model = LoopedTransformer(run.shape).reset(0)
    weights = Weights(model)
    before = {name: p.clone() for name, p in model.named_parameters()}
    moving = Optimizer(weights, run)
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps):
        weights.gradients.copy_(torch.randn(len(weights.gradients), generator=draw))
        moving.step(1.0)
    return model, before, moving


def test_muonh_keeps_every_matrix_on_its_sphere_and_moves_it_by_its_rate():
    model, before, optimizer = trained("muonh", steps=1)
    for name, parameter in model.named_parameters():
        if group_of(model, name) == "matrix":
            radius = before[name].norm()
            assert parameter.norm().item() == pytest.approx(radius.item(), rel=1e-5)
            moved = (parameter - before[name]).norm() / radius
            assert moved.item() == pytest.approx(optimizer.rates["matrix"], rel=0.1), name


def test_muonh_of_a_stack_is_muonh_of_each():
    model, before, optimizer = trained("muonh", steps=2)
    weights = Weights(LoopedTransformer(model.shape).reset(0))
    names = [n for s in weights.stacks for n in s.names]
    draw = torch.Generator().manual_seed(1)
    momentum = {n: torch.zeros_like(before[n]) for n in names}
    alone = dict(before)
    for _ in range(2):
        flat = torch.randn(len(weights.gradients), generator=draw)
        weights.gradients.copy_(flat)
        gradients = dict(zip(names, [g for s in weights.stacks for g in s.gradients], strict=True))
        for name in names:
            if group_of(model, name) != "matrix":
                continue
            momentum[name] = 0.95 * momentum[name] + 0.05 * gradients[name]
            update = orthogonalised((0.05 * gradients[name] + 0.95 * momentum[name])[None])[0]
            radius = before[name].norm()
            stepped = alone[name] - optimizer.rates["matrix"] * radius * update / update.norm()
            alone[name] = stepped * radius / stepped.norm()
    for name, parameter in model.named_parameters():
        if group_of(model, name) == "matrix":
            torch.testing.assert_close(parameter.detach(), alone[name].detach(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("optimizer", ["muonh", "muon", "adamw"])
@pytest.mark.parametrize("injection", ["linear", "hyperconnections", "diagonal"])
def test_every_optimiser_moves_every_parameter(optimizer, injection):
    model, before, _ = trained(optimizer, injection=injection)
    for name, parameter in model.named_parameters():
        assert not torch.equal(parameter, before[name]), name
        assert parameter.isfinite().all()


def test_adamw_is_torchs_with_the_published_constants():
    model, before, optimizer = trained("adamw", steps=1)
    # The first AdamW step moves every parameter by its rate against the gradient's sign.
    for name, group in (("head.weight", "head"), ("norm_head.weight", "norm"), ("loop.0.feed.up.weight", "matrix")):
        moved = (dict(model.named_parameters())[name] - before[name]).abs()
        assert moved.median().item() == pytest.approx(optimizer.rates[group], rel=1e-2)
