"""Adapters to experiment trackers: each is an observer; the run's folder stays the truth."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from loopworth.errors import BadInput
from loopworth.study import RunSpec
from loopworth.train.run import Observer, Progress


def tracker(name: str, spec: RunSpec, root: str | Path) -> Observer:
    """An observer that reports to tensorboard or wandb (files under `root`), mlflow or trackio (where they say)."""
    if name not in _TRACKERS:
        raise BadInput(f"There is no tracker {name!r}. There are: {', '.join(_TRACKERS)}.")
    module, begin = _TRACKERS[name]
    try:
        found = import_module(module)
    except ImportError as error:
        raise BadInput(f"{name} is not installed ({error}): pip install 'loopworth[track]'.") from None
    write = begin(found, spec, Path(root))

    def observe(p: Progress) -> None:
        write({"loss": p.loss, "rate_share": p.rate_share, "tokens_per_second": p.tokens_per_second}, p.tokens)

    return observe


Write = Callable[[dict[str, float], int], object]


def _tensorboard(module: ModuleType, spec: RunSpec, root: Path) -> Write:
    writer = module.SummaryWriter(root / "tensorboard" / spec.title)

    def write(values: dict[str, float], tokens: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, tokens)
        writer.flush()

    return write


def _wandb(module: ModuleType, spec: RunSpec, root: Path) -> Write:
    root.mkdir(parents=True, exist_ok=True)
    if module.run is not None:  # of the run before, in the same process
        module.run.finish()
    run = module.init(project="loopworth", name=spec.title, config=spec.as_json(), dir=str(root))
    return lambda values, tokens: run.log({**values, "tokens": tokens})


def _mlflow(module: ModuleType, spec: RunSpec, root: Path) -> Write:
    del root  # MLflow has a place of its own, told to it by MLFLOW_TRACKING_URI
    module.set_experiment("loopworth")
    module.end_run()  # that of the run before, in the same process
    module.start_run(run_name=spec.title)
    module.log_dict(spec.as_json(), "spec.json")
    return lambda values, tokens: module.log_metrics(values, step=tokens)


def _trackio(module: ModuleType, spec: RunSpec, root: Path) -> Write:
    del root  # Trackio has a place of its own, told to it by TRACKIO_DIR
    module.init(project="loopworth", name=spec.title, config=spec.as_json())
    return lambda values, tokens: module.log({**values, "tokens": tokens})


_TRACKERS: dict[str, tuple[str, Callable[[ModuleType, RunSpec, Path], Write]]] = {
    "tensorboard": ("torch.utils.tensorboard", _tensorboard),
    "wandb": ("wandb", _wandb),
    "mlflow": ("mlflow", _mlflow),
    "trackio": ("trackio", _trackio),
}
