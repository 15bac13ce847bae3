"""One training run, from its spec to its record; called again on the same folder, it goes on where it was."""

from __future__ import annotations

import errno
import math
import os
import platform
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import loopworth
from loopworth.corpus import Corpus, Rows, open_corpus
from loopworth.errors import BadInput, RunStopped
from loopworth.evals import Validation, validate
from loopworth.ledger.folder import RunFolder
from loopworth.model import LoopedTransformer, Weights
from loopworth.recipe import Optimizer, schedule
from loopworth.study import RunRecord, RunSpec, fork_step, parse_spec
from loopworth.train.checkpoint import (
    forget_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from loopworth.train.compute import Compute, decide, exactly, loss_function

# A loss this far above that of guessing, for so many steps on end, is no longer training.
_WORSE_THAN_GUESSING = 1.0
_PATIENCE = 10


@dataclass(frozen=True)
class Progress:
    """What an observer is told: a step's mean loss in nats, and how fast it goes."""

    run_id: str
    compute: Compute
    step: int
    steps: int
    tokens: int
    loss: float
    rate_share: float
    tokens_per_second: float
    flops_per_second: float

    @property
    def seconds_left(self) -> float:
        """At the mean speed so far."""
        return (self.steps - self.step) / max(self.step, 1) * self.tokens / max(self.tokens_per_second, 1e-9)


Observer = Callable[[Progress], None]


def train(
    spec: RunSpec,
    root: str | Path,
    *,
    corpus: Corpus | None = None,
    device: str | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
    rows_at_once: int | None = None,
    checkpoint_seconds: float = 60.0,
    log_steps: int = 10,
    observers: Iterable[Observer] = (),
) -> RunRecord:
    """Train one run to its token budget in `root`/<run id> and return its record; a finished run is only read.

    Under torchrun every process calls this alike. The same spec on the same machine gives the same loss to the bit,
    also when killed and called again. A diverged run is a record with that status; RunStopped (out of memory, disk
    full) leaves the last checkpoint whole. `rows_at_once` takes less memory, and other roundings.
    """
    corpus = corpus or open_corpus(spec.pack)
    run_id = spec.run_id(corpus.manifest.hash)
    folder = RunFolder(Path(root) / run_id)
    if (found := folder.record()) is not None:
        return found
    check_corpus(spec, corpus)
    folder.open()
    try:
        with _Ranks(device) as ranks, exactly(ranks.device), folder.held() if ranks.rank == 0 else nullcontext():
            if (found := folder.record()) is not None:  # by whoever held the folder until now
                return found
            return _Run(spec, run_id, folder, corpus, ranks, threads, compiled, rows_at_once).train(
                checkpoint_seconds, log_steps, tuple(observers)
            )
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise RunStopped(f"run {run_id}: out of memory ({str(error).partition(chr(10))[0]}). {_LESS_MEMORY}") from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise RunStopped(f"run {run_id}: out of memory. {_LESS_MEMORY}") from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunStopped(
            f"run {run_id}: the disk of {folder.path} is full. Its last checkpoint is whole: make room, then run again."
        ) from None


_OWN_TO_BRANCHES = {"kind", "tokens", "budget", "forks", "trunk", "labels", "validation_tokens"}
_LESS_MEMORY = "Its last checkpoint is whole: run again with a smaller --rows-at-once, or with more memory."


def check_corpus(spec: RunSpec, corpus: Corpus) -> None:
    """Refuse a spec that this corpus cannot serve."""
    manifest = corpus.manifest
    if manifest.vocabulary != spec.shape.vocabulary:
        raise BadInput(
            f"the shape's vocabulary is {spec.shape.vocabulary}, that of corpus {spec.pack} is {manifest.vocabulary}: "
            f"set vocabulary = {manifest.vocabulary}."
        )
    corpus.rows(spec.shape.context).need(spec.trained_tokens)


class _Ranks:
    """The processes of a run: one, or those that torchrun started."""

    def __init__(self, device: str | None) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if self.count > 1 and self.device == "cuda":
            self.device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(self.device)

    def __enter__(self) -> _Ranks:
        if self.count > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if self.device.startswith("cuda") else "gloo")
        return self

    def __exit__(self, *_: object) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def add(self, tensor: Tensor) -> None:
        """Sum over all processes, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)

    def agree(self, step: int) -> bool:
        """Whether all processes are at the same step."""
        steps = torch.tensor([float(step), float(step) ** 2], dtype=torch.float64, device=self.device)
        self.add(steps)
        return bool(steps[0] ** 2 == self.count * steps[1])


class _Run:
    def __init__(
        self,
        spec: RunSpec,
        run_id: str,
        folder: RunFolder,
        corpus: Corpus,
        ranks: _Ranks,
        threads: int | None,
        compiled: bool | None,
        rows_at_once: int | None,
    ) -> None:
        self.spec, self.run_id, self.folder, self.ranks = spec, run_id, folder, ranks
        self.compute = self._compute(threads, compiled, rows_at_once)
        self.device = ranks.device
        torch.set_num_threads(self.compute.threads)
        self.manifest = corpus.manifest
        self.rows: Rows = corpus.rows(spec.shape.context)
        rule_tokens = self._trunk_spec(corpus).rule_tokens if spec.kind == "branch" else None
        self.model = LoopedTransformer(spec.shape).reset(spec.init_seed).to(self.device)
        self.weights = Weights(self.model, self.compute.dtype)
        self.optimizer = Optimizer(self.weights, spec, rule_tokens)
        self.loss = loss_function(self.weights.compute, self.compute.compiled)
        self.step = 0
        self.seconds = 0.0
        self.losses: list[float] = []

    def _compute(self, threads: int | None, compiled: bool | None, rows_at_once: int | None) -> Compute:
        """What the folder says, where the run has begun: going on must compute the same."""
        chosen = decide(self.spec, self.ranks.device, threads, compiled, self.ranks.count, rows_at_once)
        if (found := self.folder.read("compute")) is not None:
            begun = Compute.of(found, str(self.folder.path / "compute.json"))
            for name in ("device", "processes"):
                was, now = getattr(begun, name), getattr(chosen, name)
                if was != now:
                    raise BadInput(
                        f"run {self.run_id} was begun with {name} = {was}, not {now}: go on with that, or move "
                        f"{self.folder.path} away to begin anew."
                    )
            if rows_at_once is None or self.ranks.rank != 0:
                return begun
            chosen = replace(begun, rows_at_once=chosen.rows_at_once)
        if self.ranks.rank == 0:
            self.folder.write("spec", self.spec.as_json())
            self.folder.write("compute", chosen.as_json())
        return chosen

    def train(self, checkpoint_seconds: float, log_steps: int, observers: tuple[Observer, ...]) -> RunRecord:
        self._resume()
        guessing = math.log(self.spec.shape.vocabulary) + _WORSE_THAN_GUESSING
        forks = set(self.spec.fork_steps)
        begun = time.monotonic() - self.seconds
        saved = time.monotonic()
        while self.step < self.spec.steps:
            loss = self._one_step()
            self.seconds = time.monotonic() - begun
            self.losses.append(loss)
            hopeless = len(self.losses) >= _PATIENCE and min(self.losses[-_PATIENCE:]) > guessing
            if not math.isfinite(loss) or hopeless:
                return self._diverged(_why_diverged(loss, self.step))
            if self.step % log_steps == 0 or self.step == self.spec.steps:
                self._report(observers, log_steps)
            if self.step in forks:
                self._save("fork")
            if time.monotonic() - saved > checkpoint_seconds:
                self._save()
                saved = time.monotonic()
        if self.spec.kind == "trunk":
            record = self._record("trunk", reason="a trunk: its branches decay, and have losses")
        else:
            validation = self._validate()
            if not math.isfinite(validation.nats):
                return self._diverged(f"the held-out loss became {validation.nats} after the last step, {self.step}")
            self._save("final")
            record = self._record("done", validation=validation)
        if self.ranks.rank == 0:
            forget_checkpoints(self.folder.checkpoints)
        return record

    def _diverged(self, reason: str) -> RunRecord:
        record = self._record("diverged", reason=reason)
        if self.ranks.rank == 0:
            forget_checkpoints(self.folder.checkpoints)
        return record

    def _one_step(self) -> float:
        """Forward and backward over this process's share of the rows, a piece at a time, then one update."""
        per_step, at_once = self.spec.rows_per_step, self.compute.rows_at_once
        share = per_step // self.ranks.count
        first = self.step * per_step + self.ranks.rank * share
        rows = torch.as_tensor(
            self.rows.take(np.arange(first, first + share), self.spec.data_seed).astype(np.int64),
            device=self.device,
        )
        self.weights.gradients.zero_()
        total = torch.zeros((), device=self.device, dtype=torch.float64)
        for piece in rows.split(at_once):
            loss = self.loss(piece) / self.spec.batch
            loss.backward()
            self.weights.gather()
            total += loss.detach()
        self.ranks.add(self.weights.gradients)
        self.ranks.add(total)
        self.optimizer.step(schedule(self.spec.recipe, self.step, self.spec.whole_steps, self.spec.kind))
        self.weights.spread()
        self.step += 1
        return float(total)

    # Disk

    def _resume(self) -> None:
        found = newest_checkpoint(self.folder.checkpoints)
        if found is None and self.spec.kind == "branch":
            found = self._fork()
        if not self.ranks.agree(0 if found is None else found[0]):
            raise RunStopped(f"run {self.run_id}: its processes see different checkpoints. Run again in a minute.")
        if found is None:
            if self.ranks.rank == 0:
                self.folder.rewind(0)
            return
        self.step, tensors = found
        for name, value in self.weights.named().items():
            value.copy_(tensors[f"model.{name}"])
        self.optimizer.load({k.removeprefix("optimizer."): v for k, v in tensors.items() if k.startswith("optimizer.")})
        self.weights.spread()
        self.seconds = float(tensors["seconds"])
        self.losses = tensors["losses"].tolist()
        if self.ranks.rank == 0:
            self.folder.rewind(self.step)

    def _save(self, name: str = "step") -> None:
        if self.ranks.rank != 0:
            return
        tensors = {f"model.{name}": value for name, value in self.weights.named().items()}
        if name != "final":
            tensors |= {f"optimizer.{key}": value for key, value in self.optimizer.state().items()}
            tensors["seconds"] = torch.tensor(self.seconds, dtype=torch.float64)
            tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        write_checkpoint(self.folder.checkpoints, self.step, tensors, name)

    def _trunk(self) -> RunFolder:
        assert self.spec.trunk is not None
        return RunFolder(self.folder.path.parent / self.spec.trunk)

    def _trunk_spec(self, corpus: Corpus) -> RunSpec:
        """What the branch goes on from, which must be the branch's own beginning."""
        found = self._trunk().read("spec")
        if found is None:
            raise BadInput(
                f"branch {self.run_id} needs its trunk {self.spec.trunk} in the same folder: train it first."
            )
        trunk = parse_spec(found, f"{self._trunk().path}/spec.json")
        own, theirs = self.spec.model_dump(exclude=_OWN_TO_BRANCHES), trunk.model_dump(exclude=_OWN_TO_BRANCHES)
        other = [name for name in own if own[name] != theirs[name]]
        if trunk.run_id(corpus.manifest.hash) != self.spec.trunk:
            other = other or ["pack (or the version that made it)"]
        if other:
            raise BadInput(
                f"branch {self.run_id} differs from its trunk {self.spec.trunk} in {', '.join(other)}: a branch goes "
                "on with what its trunk has trained, so only tokens, budget, labels and validation_tokens are its own."
            )
        return trunk

    def _forked_at(self) -> int:
        return fork_step(self.spec.whole_steps, self.spec.recipe.decay) if self.spec.kind == "branch" else 0

    def _fork(self) -> tuple[int, dict[str, Tensor]]:
        """The trunk's state where this branch begins to decay."""
        step = self._forked_at()
        path = self._trunk().checkpoints / f"fork-{step:09d}.safetensors"
        found = read_checkpoint(path) if path.exists() else None
        if found is None:
            raise BadInput(
                f"branch {self.run_id} begins at step {step} of trunk {self.spec.trunk}, which keeps no state of that "
                "step: name the branch's tokens in the trunk's forks, and train the trunk first."
            )
        return found

    # What is told

    def _report(self, observers: tuple[Observer, ...], log_steps: int) -> None:
        if self.ranks.rank != 0:
            return
        loss = float(np.mean(self.losses[-log_steps:]))
        speed = self.step * self.spec.batch / max(self.seconds, 1e-9)
        progress = Progress(
            self.run_id,
            self.compute,
            self.step,
            self.spec.steps,
            self.step * self.spec.batch,
            loss,
            schedule(self.spec.recipe, self.step - 1, self.spec.whole_steps, self.spec.kind),
            speed,
            speed * self.spec.shape.flops_per_token,
        )
        self.folder.append(
            {"step": self.step, "tokens": progress.tokens, "loss": loss, "rate_share": progress.rate_share}
        )
        for observe in observers:
            observe(progress)

    def _validate(self) -> Validation:
        count = max(1, self.spec.validation_tokens // self.spec.shape.context)
        rows = self.rows.held_out(count)
        return validate(self.weights.compute, rows, min(len(rows), max(1, self.compute.rows_at_once)))

    def _record(
        self, status: Literal["done", "diverged", "trunk"], reason: str = "", validation: Validation | None = None
    ) -> RunRecord:
        spec, shape = self.spec, self.spec.shape
        tokens = self.step * spec.batch
        trained = self.losses[-max(1, len(self.losses) // 20) :]
        record = RunRecord(
            run_id=self.run_id,
            status=status,
            reason=reason,
            corpus=self.manifest.hash,
            architecture=spec.architecture,
            recipe=spec.recipe_in_words,
            group=spec.trunk or "",
            r=shape.r,
            n_once=shape.n_once,
            n_rec=shape.n_rec,
            n_injection=shape.n_injection,
            n_head=shape.n_head,
            parameters=shape.groups,
            tokens=tokens,
            steps=self.step,
            budget=spec.budget,
            flops_per_token=shape.flops_per_token,
            flops=shape.flops_per_token * tokens,
            flops_spent=shape.flops_per_token * (tokens - self._forked_at() * spec.batch),
            flops_per_token_by_part=shape.flops_training,
            loss=validation.nats if validation else None,
            loss_standard_error=validation.standard_error if validation and validation.rows > 1 else None,
            bits_per_byte=validation.nats / math.log(2) / self.manifest.bytes_per_token if validation else None,
            validation_tokens=validation.tokens if validation else 0,
            train_loss=float(np.mean(trained)) if trained and np.isfinite(trained).all() else None,
            seed=spec.init_seed,
            data_seed=spec.data_seed,
            labels=spec.labels,
            seconds=self.seconds,
            tokens_per_second=tokens / max(self.seconds, 1e-9),
            compute=self.compute.as_json(),
            rates=self.optimizer.rates,
            environment=_environment(self.compute.device),
        )
        if self.ranks.rank == 0:
            if validation is not None:
                self.folder.write(
                    "positions",
                    {
                        "nats": validation.positions.tolist(),
                        "standard_error": validation.positions_standard_error.tolist(),
                    },
                )
            self.folder.write("record", record.model_dump(mode="json"))
        return record


def _why_diverged(loss: float, step: int) -> str:
    if not math.isfinite(loss):
        return f"the loss became {loss} at step {step}"
    return f"the loss stood at {loss:.2f} nats, worse than guessing, for {_PATIENCE} steps up to step {step}"


def _environment(device: str) -> dict[str, str]:
    return {
        "loopworth": loopworth.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name()
        if device == "cuda"
        else f"cpu {torch.backends.cpu.get_cpu_capability()}",
        "processes": os.environ.get("WORLD_SIZE", "1"),
    }
