"""The looped transformer against its shape, against itself with other code, and against section 2 written out."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from loopworth.model import LoopedTransformer, Weights, group_of
from loopworth.shape import INJECTIONS, Shape

SMALL = {"width": 32, "depth": 12, "context": 16, "vocabulary": 64}


def shapes():
    for injection in INJECTIONS:
        for r in (1, 2, 4):
            yield Shape(r=r, injection=injection, **SMALL)
            if r == 4 and injection not in ("passthrough", "hyperconnections"):
                yield Shape(r=r, r_bwd=2, injection=injection, **SMALL)
    yield Shape(r=4, **{**SMALL, "prelude": 0, "coda": 0})
    yield Shape(r=3, depth=12, prelude=0, coda=0, injection="passthrough", width=24, context=16, vocabulary=64)
    yield Shape(r=2, heads=4, kv_heads=2, head_size=16, d_ff=80, **SMALL)


SHAPES = list(shapes())


@pytest.fixture
def rows():
    return torch.randint(0, 64, (3, 17), generator=torch.Generator().manual_seed(1))


def stirred(model):
    """Start values say too little: the injection begins as if the state did not matter."""
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))


def words(shape):
    return f"{shape.injection}-r{shape.r}-bwd{shape.r_bwd}-{shape.prelude}+{shape.coda}-kv{shape.kv_heads}"


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_every_group_has_as_many_parameters_as_the_shape_counts(shape):
    model = LoopedTransformer(shape)
    found = dict.fromkeys(shape.groups, 0)
    place = {"embedding": "embedding", "head": "head", "norm": "norms", "lane": "lanes"}
    for name, parameter in model.named_parameters():
        group = group_of(model, name)
        found[place.get(group, name.split(".")[0])] += parameter.numel()
    assert found == shape.groups
    assert sum(shape.groups.values()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_flops_are_those_that_torch_counts(shape, rows):
    """torch counts products of matrices: all of ours but the lanes, which are products of scalars here."""
    model = LoopedTransformer(shape).reset(0)
    tokens = rows[:, :-1].numel()
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(rows[:, :-1])
    with FlopCounterMode(display=False) as training:
        model.losses(rows).mean().backward()
    ours, theirs = dict(shape.flops_forward), dict(shape.flops_training)
    for counted in (ours, theirs):
        counted.pop("lanes")
    assert forward.get_total_flops() / tokens == pytest.approx(sum(ours.values()), rel=0.01)
    assert training.get_total_flops() / tokens == pytest.approx(sum(theirs.values()), rel=0.01)


@pytest.mark.parametrize("shape", SHAPES, ids=words)
def test_a_model_sees_no_future_and_every_parameter_learns(shape, rows):
    model = LoopedTransformer(shape).reset(0)
    changed = rows.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 64
    before, after = model(rows[:, :-1]), model(changed[:, :-1])
    assert torch.equal(before[:, :10], after[:, :10])
    assert not torch.equal(before[:, 10], after[:, 10])
    model.losses(rows).mean().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert still == []


def test_at_the_start_every_token_costs_the_logarithm_of_the_vocabulary(rows):
    loss = LoopedTransformer(Shape(r=4, **SMALL)).reset(0).losses(rows)
    assert loss.shape == (3, 16)
    assert loss.mean().item() == pytest.approx(np.log(64), abs=0.01)


def test_start_values_have_the_published_spread():
    model = LoopedTransformer(Shape(r=4, width=128, depth=12, vocabulary=512, context=16)).reset(0)
    for name, parameter in model.named_parameters():
        group = group_of(model, name)
        if group == "matrix" and not name.startswith("injection"):
            fan_in = 512 if name.endswith("down.weight") else 128
            assert parameter.std().item() == pytest.approx(fan_in**-0.5, rel=0.02), name
            assert parameter.abs().max().item() <= (3 / fan_in) ** 0.5
    assert model.embedding.weight.std().item() == pytest.approx(1, rel=0.02)
    assert model.head.weight.std().item() == pytest.approx(0.001, rel=0.02)
    np.testing.assert_array_equal(
        model.injection.weight.detach().numpy(), np.concatenate([np.eye(128), np.zeros((128, 128))], 1)
    )


def test_r_1_is_a_plain_stack_whatever_the_injection(rows):
    plain = [LoopedTransformer(Shape(r=1, injection=i, **SMALL)).reset(3)(rows[:, :-1]) for i in INJECTIONS]
    assert all(torch.equal(plain[0], other) for other in plain)


def reference(model, tokens, passes):
    """Section 2 written out in float64, from the state dict alone."""
    w = {k: v.double().numpy() for k, v in model.state_dict().items()}
    shape = model.shape
    d_head = shape.attention_size
    heads, kv_heads = shape.n_heads, shape.kv_heads or shape.n_heads

    def rms(x):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    t = tokens.shape[1]
    rate = 10_000.0 ** (-np.arange(0, d_head, 2) / d_head)
    cos, sin = np.cos(np.outer(np.arange(t), rate)), np.sin(np.outer(np.arange(t), rate))

    def layer(x, at):
        h = rms(x) * w[f"{at}.norm_attention.weight"]
        b = len(h)

        def project(name, count, rotate):
            y = (h @ w[f"{at}.attention.{name}.weight"].T).reshape(b, t, count, d_head).transpose(0, 2, 1, 3)
            if not rotate:
                return y
            one, two = y[..., : d_head // 2], y[..., d_head // 2 :]
            return rms(np.concatenate([one * cos + two * sin, two * cos - one * sin], -1))

        q = project("query", heads, rotate=True)
        k = project("key", kv_heads, rotate=True).repeat(heads // kv_heads, 1)
        v = project("value", kv_heads, rotate=False).repeat(heads // kv_heads, 1)
        score = q @ k.transpose(0, 1, 3, 2) / np.sqrt(d_head)
        score = np.where(np.tril(np.ones((t, t), bool)), score, -np.inf)
        p = np.exp(score - score.max(-1, keepdims=True))
        mixed = (p / p.sum(-1, keepdims=True)) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(b, t, -1) @ w[f"{at}.attention.output.weight"].T
        h = rms(x) * w[f"{at}.norm_feed.weight"]
        return x + np.maximum(h @ w[f"{at}.feed.up.weight"].T, 0) ** 2 @ w[f"{at}.feed.down.weight"].T

    x = rms(w["embedding.weight"][tokens]) * w["norm_embedding.weight"]
    for k in range(shape.prelude):
        x = layer(x, f"prelude.{k}")
    e, kind = x, shape.injection if shape.r > 1 else "passthrough"
    h = np.zeros_like(e) if kind in ("additive", "diagonal") else e
    lanes = np.stack([e] * shape.lanes)
    for i in range(passes):
        if kind == "linear":
            u = np.concatenate([e, h], -1) @ w["injection.weight"].T
        elif kind == "additive":
            u = h + e
        elif kind == "passthrough":
            u = h
        elif kind == "diagonal":
            dt, a = np.log1p(np.exp(w["injection.delta"])), np.exp(w["injection.log_a"])
            u = np.exp(-dt * a) * h + dt * (e @ w["injection.weight"].T)
        else:
            u = np.einsum("l,lbtd->btd", w["injection.alpha"][i % shape.r], lanes)
        for k in range(shape.loop):
            u = layer(u, f"loop.{k}")
        h = rms(u) * w["norm_loop.weight"]
        if kind == "hyperconnections":
            mixed = np.einsum("ml,lbtd->mbtd", w["injection.mix"][i % shape.r], lanes)
            lanes = mixed + w["injection.beta"][i % shape.r][:, None, None, None] * h
    x = lanes.sum(0) if kind == "hyperconnections" else h
    for k in range(shape.coda):
        x = layer(x, f"coda.{k}")
    z = (rms(x) * w["norm_head.weight"]) @ w["head.weight"].T
    return 15 * np.tanh(z / 15)


@pytest.mark.parametrize("shape", SHAPES, ids=words)
@pytest.mark.parametrize("deeper", [0, 3])
def test_logits_are_those_of_section_2_written_out(shape, rows, deeper):
    model = LoopedTransformer(shape).reset(0)
    stirred(model)
    passes = shape.r + deeper
    found = model(rows[:, :-1], passes).detach().numpy()
    np.testing.assert_allclose(found, reference(model, rows[:, :-1].numpy(), passes), atol=1e-4)


def test_long_rows_take_the_fused_attention_and_say_the_same():
    shape = Shape(r=2, heads=4, kv_heads=2, head_size=8, **{**SMALL, "context": 640})
    model = LoopedTransformer(shape).reset(0)
    rows = torch.randint(0, 64, (1, 640), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        np.testing.assert_allclose(model(rows)[:, :16], model(rows[:, :16]), atol=1e-5)


def test_truncation_leaves_the_loss_and_cuts_the_gradient(rows):
    whole, cut = (LoopedTransformer(Shape(r=4, r_bwd=b, **SMALL)).reset(0) for b in (None, 2))
    for model in (whole, cut):
        stirred(model)
    losses = [model.losses(rows).mean() for model in (whole, cut)]
    assert torch.equal(*losses)
    for loss in losses:
        loss.backward()
    assert not torch.allclose(whole.loop[0].feed.up.weight.grad, cut.loop[0].feed.up.weight.grad)


def test_truncated_backpropagation_stops_at_the_state_and_not_at_the_injection(rows):
    """The same as running the early passes first and starting from their state."""
    shape = Shape(r=4, r_bwd=2, **SMALL)
    model = LoopedTransformer(shape).reset(0)
    stirred(model)
    model.losses(rows).mean().backward()
    got = model.prelude[0].feed.up.weight.grad.clone()
    model.zero_grad()
    states, leave = [], model.injection.leave

    def cut(state, out, i):
        states.append(i)
        found = leave(state, out, i)
        return found.detach() if i < 2 else found

    model.injection.leave = cut
    model.shape = Shape(r=4, **SMALL)
    model.losses(rows).mean().backward()
    assert states == [0, 1, 2, 3]
    torch.testing.assert_close(model.prelude[0].feed.up.weight.grad, got, rtol=1e-5, atol=1e-9)


def test_weights_take_over_a_model_without_changing_it(rows):
    model = LoopedTransformer(Shape(r=4, injection="hyperconnections", **SMALL)).reset(0)
    before = model.losses(rows).mean()
    before.backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    weights = Weights(model)
    for _ in range(2):
        weights.compute.losses(rows).mean().backward()
        weights.gather()
    assert torch.equal(model.losses(rows).mean(), before)
    at = dict(
        zip([n for s in weights.stacks for n in s.names], [g for s in weights.stacks for g in s.gradients], strict=True)
    )
    for name, grad in grads.items():
        torch.testing.assert_close(at[name], 2 * grad)
    weights.values.mul_(0.5)
    assert torch.equal(model.head.weight, weights.named()["head.weight"])


def test_a_narrow_copy_computes_and_the_wide_values_learn(rows):
    weights = Weights(LoopedTransformer(Shape(r=4, **SMALL)).reset(0), torch.bfloat16)
    assert weights.compute.head.weight.dtype == torch.bfloat16
    assert weights.compute.norm_head.weight.dtype == torch.float32
    loss = weights.compute.losses(rows).mean()
    assert loss.item() == pytest.approx(weights.model.losses(rows).mean().item(), abs=0.01)
    loss.backward()
    weights.gather()
    assert weights.gradients.dtype == torch.float32
    assert weights.gradients.abs().sum() > 0
    weights.values.mul_(2.0)
    weights.spread()
    torch.testing.assert_close(weights.compute.head.weight.float(), weights.model.head.weight, rtol=0.01, atol=1e-3)
