"""Adapters to experiment trackers: each is an observer; the run's folder stays the truth."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from loopworth.errors import BadInput
from loopworth.study import RunRecord, RunSpec
from loopworth.train.run import Progress


def tracker(name: str, spec: RunSpec, root: str | Path) -> Tracker:
    """An observer that reports to tensorboard or wandb (files under `root`), mlflow or trackio (where they say)."""
    if name not in _TRACKERS:
        raise BadInput(f"There is no tracker {name!r}. There are: {', '.join(_TRACKERS)}.")
    module, begin = _TRACKERS[name]
    try:
        found = import_module(module)
    except ImportError as error:
        raise BadInput(f"{name} is not installed ({error}): pip install 'loopworth[track]'.") from None
    return Tracker(lambda run_id: begin(found, spec, run_id, Path(root)))


class Tracker:
    """Begins with the first step it is told of: a run that is only read leaves nothing in a tracker."""

    def __init__(self, begin: Callable[[str], Write]) -> None:
        self._begin = begin
        self._write: Write | None = None

    def __call__(self, p: Progress) -> None:
        """Report a step."""
        self._write = self._write or self._begin(p.run_id)
        self._write({"loss": p.loss, "rate_share": p.rate_share, "tokens_per_second": p.tokens_per_second}, p.tokens)

    def finish(self, record: RunRecord) -> None:
        """Report what the run came to."""
        if self._write and record.loss is not None:
            self._write({"held_out_loss": record.loss}, record.tokens)


Write = Callable[[dict[str, float], int], object]


def _tensorboard(module: ModuleType, spec: RunSpec, run_id: str, root: Path) -> Write:
    writer = module.SummaryWriter(root / "tensorboard" / f"{spec.title} {run_id}")

    def write(values: dict[str, float], tokens: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, tokens)
        writer.flush()

    return write


def _wandb(module: ModuleType, spec: RunSpec, run_id: str, root: Path) -> Write:
    root.mkdir(parents=True, exist_ok=True)
    if module.run is not None:  # of the run before, in the same process
        module.run.finish()
    run = module.init(
        project="loopworth", id=run_id, resume="allow", name=spec.title, config=spec.as_json(), dir=str(root)
    )
    return lambda values, tokens: run.log({**values, "tokens": tokens})


def _mlflow(module: ModuleType, spec: RunSpec, run_id: str, root: Path) -> Write:
    del root  # MLflow has a place of its own, told to it by MLFLOW_TRACKING_URI
    module.set_experiment("loopworth")
    module.end_run()  # that of the run before, in the same process
    module.start_run(run_name=f"{spec.title} {run_id}")
    module.log_dict(spec.as_json(), "spec.json")
    return lambda values, tokens: module.log_metrics(values, step=tokens)


def _trackio(module: ModuleType, spec: RunSpec, run_id: str, root: Path) -> Write:
    del root  # Trackio has a place of its own, told to it by TRACKIO_DIR
    module.init(project="loopworth", name=f"{spec.title} {run_id}", config=spec.as_json())
    return lambda values, tokens: module.log({**values, "tokens": tokens})


_TRACKERS: dict[str, tuple[str, Callable[[ModuleType, RunSpec, str, Path], Write]]] = {
    "tensorboard": ("torch.utils.tensorboard", _tensorboard),
    "wandb": ("wandb", _wandb),
    "mlflow": ("mlflow", _mlflow),
    "trackio": ("trackio", _trackio),
}
