"""One run: exact, resumable, honest about how it ended."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import loopworth as lw
from loopworth.corpus import open_corpus, pack
from loopworth.errors import BadInput, RunStopped
from loopworth.evals import Validation, validate
from loopworth.ledger.folder import RunFolder
from loopworth.model import LoopedTransformer
from loopworth.train import train
from loopworth.train.checkpoint import TornCheckpoint, newest_checkpoint, write_checkpoint


class Killed(Exception):  # noqa: N818
    """Stands for a kill between two steps."""


def kill_at(step):
    def observe(progress):
        if progress.step == step:
            raise Killed

    return observe


def run(spec, root, **options):
    return train(spec, root, threads=1, compiled=False, log_steps=1, **options)


def raising(error):
    def called(*_):
        raise error

    return called


def lines(root, record):
    text = (root / record.run_id / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def weights_of(root, record):
    (path,) = (root / record.run_id / "checkpoints").glob("final-*.safetensors")
    return path


def test_a_run_learns_and_leaves_its_record(small, tmp_path):
    spec = small()
    seen = []
    record = run(spec, tmp_path, observers=[seen.append])
    assert record.status == "done"
    assert record.steps == 16 == len(seen) == len(lines(tmp_path, record))
    assert record.tokens == 16 * 512
    assert record.flops == record.flops_per_token * record.tokens == spec.shape.flops_per_token * 8192
    assert record.loss < math.log(256) - 0.5
    assert 0 < record.loss_standard_error < 0.1
    assert record.bits_per_byte == pytest.approx(record.loss / math.log(2))  # a byte is a token
    assert record.parameters == spec.shape.groups
    assert [p.step for p in seen] == list(range(1, 17))
    assert seen[-1].seconds_left == 0
    folder = tmp_path / record.run_id
    positions = json.loads((folder / "positions.json").read_text())["nats"]
    assert len(positions) == 32
    assert np.mean(positions) == pytest.approx(record.loss, abs=1e-9)
    assert lw.read_runs(tmp_path)["loss"].tolist() == [record.loss]
    assert json.loads((folder / "spec.json").read_text())["shape"]["r"] == 2


def test_a_finished_run_is_only_read(small, tmp_path):
    first = run(small(), tmp_path)
    assert run(small(), tmp_path, observers=[kill_at(1)]) == first


def test_the_same_spec_gives_the_same_loss_to_the_bit_and_another_seed_does_not(small, tmp_path):
    one, two = run(small(), tmp_path / "a"), run(small(), tmp_path / "b")
    assert one.loss == two.loss
    assert one.run_id == two.run_id
    for other in (small(init_seed=1), small(data_seed=1)):
        record = run(other, tmp_path / "a")
        assert record.run_id != one.run_id
        assert record.loss != one.loss


@pytest.mark.parametrize("optimizer", ["muonh", "muon", "adamw"])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(small, tmp_path, optimizer):
    rates = {"muonh": 0.03, "muon": 0.02, "adamw": 0.003}
    spec = small(recipe={"optimizer": optimizer, "matrix_rate": rates[optimizer]})
    whole = run(spec, tmp_path / "whole")
    for step in (3, 7, 15):
        with pytest.raises(Killed):
            run(spec, tmp_path / "killed", checkpoint_seconds=0.0, observers=[kill_at(step)])
    again = run(spec, tmp_path / "killed", checkpoint_seconds=0.0)
    assert again.loss == whole.loss
    assert again.train_loss == whole.train_loss
    assert lines(tmp_path / "killed", again) == lines(tmp_path / "whole", whole)
    assert whole.loss < math.log(256)


def test_a_torn_checkpoint_is_passed_over_aloud(small, tmp_path):
    whole = run(small(), tmp_path / "whole")
    with pytest.raises(Killed):
        run(small(), tmp_path / "torn", checkpoint_seconds=0.0, observers=[kill_at(9)])
    found = sorted((tmp_path / "torn").glob("*/checkpoints/step-*.safetensors"))
    assert len(found) == 2
    found[-1].write_bytes(found[-1].read_bytes()[:1000])
    with pytest.warns(TornCheckpoint, match="going on from the one before"):
        again = run(small(), tmp_path / "torn")
    assert again.loss == whole.loss


def test_a_flipped_bit_is_noticed_too(tmp_path):
    tensors = {"w": torch.arange(1000.0)}
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, tensors)
    assert len(list(tmp_path.glob("step-*.safetensors"))) == 2
    path = tmp_path / "step-000000003.safetensors"
    content = bytearray(path.read_bytes())
    content[-7] ^= 4
    path.write_bytes(content)
    with pytest.warns(TornCheckpoint):
        assert newest_checkpoint(tmp_path)[0] == 2


def test_nothing_is_left_of_a_write_that_was_killed(tmp_path):
    write_checkpoint(tmp_path, 1, {"w": torch.zeros(3)})
    (tmp_path / ".step-000000002.safetensors.999999999").write_bytes(b"half")
    assert newest_checkpoint(tmp_path)[0] == 1
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("rates", "word"), [({"head_rate": 1e4, "embedding_rate": 1e4}, "worse than guessing")])
def test_a_loss_that_blows_up_ends_the_run_with_step_and_reason(small, tmp_path, rates, word):
    record = run(small(tokens=32768, recipe=rates), tmp_path)
    assert record.status == "diverged"
    assert word in record.reason
    assert str(record.steps) in record.reason
    assert record.loss is None
    assert record.steps < 64


def test_a_loss_that_is_no_number_ends_the_run(small, tmp_path, monkeypatch):
    monkeypatch.setattr("loopworth.train.run.schedule", lambda *_: math.nan)
    record = run(small(), tmp_path)
    assert record.status == "diverged"
    assert record.reason == "the loss became nan at step 2"


def test_more_tokens_than_there_are_are_refused(small, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Paragraph {k} of a short text that ends soon." for k in range(200)))
    pack([str(text)], tmp_path / "pack", divide="")
    spec = small(pack=str(tmp_path / "pack"), tokens=1e6)
    with pytest.raises(BadInput, match="no row is used twice"):
        run(spec, tmp_path / "runs")


def test_a_vocabulary_that_is_not_the_corpus_s_is_refused(small, tmp_path):
    with pytest.raises(BadInput, match="set vocabulary = 256"):
        run(small(shape={"vocabulary": 512}), tmp_path)


WSD = {"schedule": "wsd", "decay": 0.25}


def test_a_trunk_is_trained_once_and_branches_decay_from_it(small, tmp_path):
    end = run(small(kind="trunk", tokens=None, forks=[4096.0, 8192.0], recipe=WSD), tmp_path)
    assert end.steps == 12  # the longest branch begins to decay after three quarters of 16 steps
    assert end.status == "trunk"
    assert end.loss is None
    for tokens, steps in ((4096, 8), (8192, 16)):
        branch = small(kind="branch", trunk=end.run_id, tokens=tokens, recipe=WSD)
        record = run(branch, tmp_path)
        assert record.steps == steps
        assert record.group == end.run_id
        assert record.loss < math.log(256)
        assert record.flops == record.flops_per_token * tokens
        assert record.flops_spent == record.flops_per_token * tokens / 4
        # A run that was never forked and has the longest branch's rates is the same run.
        if tokens == 8192:
            assert run(small(recipe=WSD), tmp_path).loss == record.loss
    with pytest.raises(BadInput, match="keeps no state"):
        run(small(kind="branch", trunk=end.run_id, tokens=6144, recipe=WSD), tmp_path)
    with pytest.raises(BadInput, match="train it first"):
        run(small(kind="branch", trunk="0" * 16, recipe=WSD), tmp_path)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"init_seed": 7}, "init_seed"),
        ({"data_seed": 3}, "data_seed"),
        ({"precision": "bfloat16"}, "precision"),
        ({"pack": "words:9"}, "pack"),
        ({"recipe": {**WSD, "matrix_rate": 0.5}}, "recipe"),
        ({"shape": {"width": 24}}, "shape"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_branch_that_is_not_its_trunk_s_is_refused(small, tmp_path, changed, word):
    trunk = run(small(kind="trunk", tokens=None, forks=[4096.0], recipe=WSD), tmp_path)
    branch = {"kind": "branch", "trunk": trunk.run_id, "tokens": 4096, "recipe": WSD, **changed}
    with pytest.raises(BadInput, match=f"differs from its trunk .* in {word}"):
        run(small(**branch), tmp_path)


def test_two_processes_do_not_train_one_run(small, tmp_path):
    with pytest.raises(Killed):
        run(small(), tmp_path, observers=[kill_at(3)])
    (folder,) = tmp_path.iterdir()
    with RunFolder(folder).held(), pytest.raises(RunStopped, match="another process"):
        run(small(), tmp_path)
    assert run(small(), tmp_path).status == "done"


@pytest.mark.parametrize("name", ["compute", "record"])
def test_a_file_of_another_version_is_refused_by_name(small, tmp_path, name):
    with pytest.raises(Killed):
        run(small(), tmp_path, observers=[kill_at(3)])
    (folder,) = tmp_path.iterdir()
    (folder / f"{name}.json").write_text('{"a": 1}')
    with pytest.raises(BadInput, match=rf"{name}\.json is not what this version"):
        run(small(), tmp_path)


def test_metrics_that_are_none_are_forgotten(small, tmp_path):
    with pytest.raises(Killed):
        run(small(), tmp_path, observers=[kill_at(3)])
    (folder,) = tmp_path.iterdir()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"loss": 1.0}\n[1]\n')
    record = run(small(), tmp_path)
    assert [line["step"] for line in lines(tmp_path, record)] == list(range(1, 17))


def test_a_device_that_is_none_is_refused(small, tmp_path):
    with pytest.raises(BadInput, match="no device 'foo'"):
        run(small(), tmp_path, device="foo")


def test_one_held_out_row_has_no_standard_error(small, tmp_path):
    assert run(small(validation_tokens=1), tmp_path).loss_standard_error is None


def test_runs_of_a_budget_and_of_tokens_can_be_read_together(small, tmp_path):
    run(small(), tmp_path)
    by_budget = small(tokens=None, budget=small().shape.flops_per_token * 8192.0, init_seed=1)
    run(by_budget, tmp_path)
    runs = lw.read_runs(tmp_path)
    assert len(runs) == 2
    assert "budget" not in runs


def test_a_run_in_pieces_learns_what_it_learns_at_once(small, tmp_path):
    whole = run(small(), tmp_path / "whole")
    pieces = run(small(), tmp_path / "pieces", rows_at_once=3)
    assert pieces.compute["rows_at_once"] == 2  # the most up to 3 that 16 rows a step are made of
    assert pieces.loss == pytest.approx(whole.loss, abs=2e-3)


def test_a_run_without_memory_can_go_on_in_smaller_pieces(small, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("loopworth.train.run._Run._one_step", raising(MemoryError()))
        with pytest.raises(RunStopped, match="smaller --rows-at-once"):
            run(small(), tmp_path)
    assert run(small(), tmp_path, rows_at_once=2).compute["rows_at_once"] == 2


def test_an_update_that_breaks_the_weights_is_divergence(small, tmp_path, monkeypatch):
    broken = Validation(math.nan, math.nan, np.full(32, math.nan), np.full(32, math.nan), 2)
    monkeypatch.setattr("loopworth.train.run.validate", lambda *_: broken)
    record = run(small(), tmp_path)
    assert record.status == "diverged"
    assert "held-out loss became nan" in record.reason
    assert not list((tmp_path / record.run_id / "checkpoints").iterdir())


def test_bfloat16_learns_what_float32_learns(small, tmp_path):
    wide = run(small(tokens=32768), tmp_path)
    narrow = run(small(tokens=32768, precision="bfloat16"), tmp_path)
    assert narrow.compute["precision"] == "bfloat16"
    assert narrow.loss == pytest.approx(wide.loss, abs=0.03)


def test_the_precision_is_the_processor_s_and_kept_with_the_run(small, tmp_path, monkeypatch):
    for native, precision in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("loopworth.train.compute.bfloat16_pays", lambda _, native=native: native)
        record = run(small(precision="auto", init_seed=int(native)), tmp_path)
        assert record.compute["precision"] == precision
    monkeypatch.setattr("loopworth.train.compute.bfloat16_pays", lambda _: True)
    with pytest.raises(Killed):
        run(small(precision="auto"), tmp_path / "begun", checkpoint_seconds=0.0, observers=[kill_at(3)])
    monkeypatch.setattr("loopworth.train.compute.bfloat16_pays", lambda _: False)
    assert run(small(precision="auto"), tmp_path / "begun").compute["precision"] == "bfloat16"


def test_load_gives_the_model_that_was_validated(small, tmp_path):
    record = run(small(), tmp_path)
    model = lw.load(tmp_path / record.run_id)
    rows = open_corpus("words").rows(32).held_out(64)
    assert validate(model, rows, 16).nats == pytest.approx(record.loss, abs=1e-6)
    for none in (tmp_path, weights_of(tmp_path, record)):
        with pytest.raises(BadInput, match=r"no spec\.json"):
            lw.load(none)
    weights = weights_of(tmp_path, record)
    content = bytearray(weights.read_bytes())
    content[9000] ^= 1
    weights.write_bytes(content)
    with pytest.raises(BadInput, match="is damaged"):
        lw.load(tmp_path / record.run_id)
    with pytest.raises(ValueError, match="passes is 0"):
        model(torch.zeros(1, 4, dtype=torch.long), passes=0)


def test_validation_counts_rows_and_not_tokens_as_observations():
    model = LoopedTransformer(lw.Shape(16, depth=8, context=32, vocabulary=256)).reset(0)
    rows = open_corpus("words").rows(32).held_out(10)
    found = validate(model, rows, 4)
    each = np.array([validate(model, rows[k : k + 1], 1).nats for k in range(10)])
    assert found.nats == pytest.approx(each.mean(), abs=1e-6)
    assert found.standard_error == pytest.approx(each.std(ddof=1) / np.sqrt(10), rel=1e-4)
    assert found.positions.mean() == pytest.approx(found.nats)
    assert found.tokens == 320


SCRIPT = """
import sys
from loopworth.study import parse_spec, read_toml
from loopworth.train import train
train(parse_spec(read_toml(sys.argv[1])), sys.argv[2], threads=1, compiled=False, log_steps=1, checkpoint_seconds=0.0)
"""


@pytest.mark.full
def test_sigkill_at_any_moment_leaves_the_same_bits(small, tmp_path):
    spec = small(tokens=2**18)
    whole = run(spec, tmp_path / "whole")
    (tmp_path / "spec.json").write_text(json.dumps(spec.as_json()))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "spec.json"), str(tmp_path / "killed")]
    metrics = tmp_path / "killed" / whole.run_id / "metrics.jsonl"
    delays = np.random.default_rng(0).uniform(0.02, 0.6, 10)
    for delay in delays:
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        before = metrics.read_text() if metrics.exists() else ""
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None:
            if metrics.exists() and metrics.read_text() not in ("", before):
                break
            time.sleep(0.005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "torn" not in done.stderr
    record = json.loads((tmp_path / "killed" / whole.run_id / "record.json").read_text())
    assert record["loss"] == whole.loss
    assert lines(tmp_path / "killed", whole) == lines(tmp_path / "whole", whole)


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted, which only root may do")
def test_a_full_disk_ends_the_run_with_a_message_and_a_whole_checkpoint(small, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        spec = small(shape={"width": 48})
        with pytest.raises(RunStopped, match=r"disk of .* is full"):
            run(spec, disk, checkpoint_seconds=0.0)
        subprocess.run(["mount", "-o", "remount,size=60m", str(disk)], check=True)
        assert run(spec, disk).loss == run(spec, tmp_path / "other").loss
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.full
def test_two_processes_share_a_run_and_go_on_with_it(small, tmp_path):
    spec = small(tokens=65536)
    (tmp_path / "spec.json").write_text(json.dumps(spec.as_json()))

    def command(to):
        return [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "loopworth",
            "train", str(tmp_path / "spec.json"), "--to", str(tmp_path / to), "--threads", "1", "--json",
            "--checkpoint-seconds", "0",
        ]  # fmt: skip

    done = subprocess.run(command("two"), capture_output=True, text=True, check=True)
    two = json.loads(done.stdout)
    one = run(spec, tmp_path / "one")
    assert two["loss"] == pytest.approx(one.loss, abs=2e-3)
    assert two["compute"]["processes"] == 2

    # Killed with everything it started, and begun again.
    process = subprocess.Popen(
        command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not list((tmp_path / "killed").glob("*/checkpoints/step-*.json")):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not list((tmp_path / "killed").glob("*/record.json"))
    again = subprocess.run(command("killed"), capture_output=True, text=True, check=True)
    assert json.loads(again.stdout)["loss"] == two["loss"]


def test_a_run_goes_on_with_as_many_processes_as_it_was_begun_with(small, tmp_path):
    with pytest.raises(Killed):
        run(small(), tmp_path, observers=[kill_at(3)])
    (folder,) = tmp_path.iterdir()
    begun = json.loads((folder / "compute.json").read_text())
    (folder / "compute.json").write_text(json.dumps({**begun, "processes": 2}))
    with pytest.raises(BadInput, match="begun with processes = 2, not 1"):
        run(small(), tmp_path)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_compiled_code_learns_what_plain_code_learns(small, tmp_path):
    plain = run(small(), tmp_path / "plain")
    compiled = train(small(), tmp_path / "compiled", threads=1, compiled=True)
    assert compiled.loss == pytest.approx(plain.loss, abs=2e-3)


@pytest.mark.full
def test_a_spec_too_large_for_the_memory_stops_with_a_message(small, tmp_path):
    (tmp_path / "spec.json").write_text(json.dumps(small(shape={"width": 1024}).as_json()))
    limited = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (900 * 2**20,) * 2)\n"
    command = [sys.executable, "-c", limited + SCRIPT, str(tmp_path / "spec.json"), str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "RunStopped" in done.stderr
    assert "out of memory" in done.stderr
