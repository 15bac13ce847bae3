"""transformers loads an exported run and says what the model itself says."""

import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner

import loopworth as lw
from loopworth.cli import main
from loopworth.model.export import export, generate
from loopworth.train import train

SHAPES = {
    "linear": {"r": 2},
    "hyperconnections": {"r": 4, "injection": "hyperconnections"},
    "grouped": {"r": 2, "heads": 2, "kv_heads": 1, "head_size": 8},
}


def test_greedy_generation_takes_the_likeliest_token(small, tmp_path):
    record = train(small(), tmp_path, threads=1, compiled=False)
    model = lw.load(tmp_path / record.run_id)
    begun = torch.tensor([[255, 97, 98]])
    row = generate(model, begun, 5)
    assert row.shape == (1, 8)
    for at in range(3, 8):
        assert row[0, at] == model(row[:, :at])[0, -1].argmax()


@pytest.mark.full
@pytest.mark.parametrize("name", SHAPES)
def test_transformers_loads_an_export_and_generates_the_same(small, tmp_path, name):
    """In a process that cannot import loopworth."""
    pytest.importorskip("transformers")
    record = train(small(shape=SHAPES[name]), tmp_path / "runs", threads=1, compiled=False)
    run = tmp_path / "runs" / record.run_id
    result = CliRunner().invoke(main, ["export", str(run), "--to", str(tmp_path / "out")], catch_exceptions=False)
    assert result.exit_code == 0
    model = lw.load(run)
    begun = torch.tensor([[255, 97, 98, 99], [255, 116, 104, 101]])
    torch.save({"logits": model(begun), "row": generate(model, begun, 20)}, tmp_path / "ours.pt")
    code = f"""
import sys, torch
sys.modules["loopworth"] = None
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({str(tmp_path / "out")!r}, trust_remote_code=True)
ours = torch.load({str(tmp_path / "ours.pt")!r})
begun = torch.tensor([[255, 97, 98, 99], [255, 116, 104, 101]])
assert torch.equal(model(begun).logits, ours["logits"])
row = model.generate(begun, max_new_tokens=20, do_sample=False, pad_token_id=0)
assert torch.equal(row, ours["row"]), (row, ours["row"])
labels = begun.clone()
labels[:, :2] = -100
wanted = torch.nn.functional.cross_entropy(model(begun).logits[:, 1:-1].flatten(0, 1), begun[:, 2:].flatten())
assert torch.allclose(model(begun, labels=labels).loss, wanted)
assert model.get_input_embeddings().weight.shape == model.get_output_embeddings().weight.shape
print("the same")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PATH": ""},
    )  # fmt: skip
    assert done.stdout.strip() == "the same", done.stderr


def test_an_export_overwrites_nothing(small, tmp_path):
    record = train(small(), tmp_path / "runs", threads=1, compiled=False)
    export(tmp_path / "runs" / record.run_id, tmp_path / "out")
    with pytest.raises(lw.BadInput, match="never overwrites"):
        export(tmp_path / "runs" / record.run_id, tmp_path / "out")
    with pytest.raises(lw.BadInput, match="spec"):
        export(tmp_path, tmp_path / "other")
