"""Each adapter against the tracker itself, without a network."""

import json
import sqlite3

import pytest

from loopworth.errors import BadInput
from loopworth.train import train
from loopworth.train.trackers import tracker


def tracked(name, spec, root):
    """Trained, and then read once more, which must add nothing."""
    for _ in range(2):
        observer = tracker(name, spec, root)
        record = train(spec, root, threads=1, compiled=False, log_steps=4, observers=[observer])
        observer.finish(record)
    return record


def test_an_unknown_tracker_is_refused_with_the_known_ones(small, tmp_path):
    with pytest.raises(BadInput, match="tensorboard, wandb, mlflow, trackio"):
        tracker("neptune", small(), tmp_path)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_gets_every_loss(small, tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    record = tracked("tensorboard", small(), tmp_path)
    (folder,) = (tmp_path / "tensorboard").iterdir()
    found = reader.EventAccumulator(str(folder)).Reload()
    events = found.Scalars("loss")
    assert [event.step for event in events] == [2048, 4096, 6144, 8192]
    assert found.Scalars("held_out_loss")[0].value == pytest.approx(record.loss)
    assert events[-1].value < events[0].value


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_every_loss_of_two_runs_in_a_process(small, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # without a database at hand
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlruns")
    monkeypatch.chdir(tmp_path)
    found = []
    for seed in (0, 1):
        tracked("mlflow", small(init_seed=seed), tmp_path)
        found.append(mlflow.active_run().info.run_id)
    mlflow.end_run()
    assert found[0] != found[1]
    for run in found:
        history = mlflow.MlflowClient().get_metric_history(run, "loss")
        assert [point.step for point in history] == [2048, 4096, 6144, 8192]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_wandb_gets_every_loss_of_two_runs_in_a_process_offline(small, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for seed in (0, 1):
        tracked("wandb", small(init_seed=seed), tmp_path)
        assert wandb.run.summary["tokens"] == 8192
        assert wandb.run.name.endswith(f"seed={seed}")
    wandb.finish()
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_trackio_gets_every_loss_of_two_runs_in_a_process(small, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackio = pytest.importorskip("trackio")
    for seed in (0, 1):
        tracked("trackio", small(init_seed=seed), tmp_path)
    trackio.finish()
    (file,) = (tmp_path / "trackio").glob("*.db")
    rows = sqlite3.connect(file).execute("select run_name, metrics from metrics order by id").fetchall()
    told = [(name.partition("seed=")[2][0], json.loads(metrics)) for name, metrics in rows]
    tokens = [(seed, metrics["tokens"]) for seed, metrics in told if "loss" in metrics]
    assert tokens == [(seed, count) for seed in "01" for count in (2048, 4096, 6144, 8192)]
    assert [seed for seed, metrics in told if "held_out_loss" in metrics] == ["0", "1"]
