"""The question as data: what one run is. Strict, frozen, and named by a hash of what defines it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from loopworth.errors import BadInput
from loopworth.shape import Shape

SCHEMA = 2

Positive = Annotated[float, Field(gt=0, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Count = Annotated[int, Field(ge=1, le=2**40, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]

# Base rates at the reference, as published, and below width 256 by the sweep of docs/recipe.md.
PUBLISHED = {"matrix": 0.014, "embedding": 0.3, "head": 0.004, "norm": 0.005, "lane": 0.01}
SMALL = {**PUBLISHED, "matrix": 0.028, "head": 0.008}
_RATES = tuple(f"{group}_rate" for group in PUBLISHED)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Recipe(_Frozen):
    """Optimiser, rates at the reference and what the reference is, schedule. `recipe.rates` transfers the rates.

    A rate that is None is that of the width: `PUBLISHED`, or `SMALL` below 256.
    `reference_tokens` is the data of the reference run: a choice to log, it moves phi.
    """

    optimizer: Literal["muonh", "muon", "adamw"] = "muonh"
    matrix_rate: Positive | None = None
    embedding_rate: Positive | None = None
    head_rate: Positive | None = None
    norm_rate: Positive | None = None
    lane_rate: Positive | None = None
    reference_width: Positive = 640
    reference_batch: Positive = 2**18
    reference_tokens: Positive = 9.8e8
    schedule: Literal["linear", "wsd"] = "linear"
    warmup: Share = 0.0
    decay: Share = 0.2
    final_rate: Share = 0.1


class RunSpec(_Frozen):
    """One training run. `tokens` or `budget` (FLOPs), not both; `batch` in tokens a step.

    `pack` names a folder made by `loopworth pack`, or a corpus that comes with the project. `kind` "trunk" keeps the
    checkpoints that branches of `forks` tokens start from, and has no tokens of its own; a "branch" names its trunk.
    `labels` are not part of the id.
    """

    shape: Shape
    pack: str = "words"
    tokens: Positive | None = None
    budget: Positive | None = None
    batch: Count = 8192
    recipe: Recipe = Recipe()
    init_seed: Seed = 0
    data_seed: Seed = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    validation_tokens: Annotated[int, Field(ge=1, le=2**32, strict=True)] = 2**18
    kind: Literal["run", "trunk", "branch"] = "run"
    forks: tuple[Positive, ...] = ()
    trunk: str | None = None
    labels: dict[str, str | float | int] = {}

    @field_validator("shape", mode="before")
    @classmethod
    def _numbers(cls, raw: Any) -> Any:
        """Text is no number, even where it reads like one."""
        for name, value in raw.items() if isinstance(raw, dict) else ():
            if isinstance(value, str) and name != "injection":
                raise ValueError(f"{name} = {value!r} must be a number, without quotes")
        return raw

    @model_validator(mode="after")
    def _whole(self) -> RunSpec:
        if (self.kind == "trunk") != bool(self.forks):
            raise ValueError("a trunk names the forks (tokens of its branches), and nothing else does")
        if self.kind == "trunk" and (self.tokens or self.budget):
            raise ValueError("a trunk is as long as its forks ask for: leave tokens and budget out")
        if self.kind != "trunk" and (self.tokens is None) == (self.budget is None):
            raise ValueError("give tokens or budget (FLOPs), one of the two")
        if self.batch % self.shape.context:
            raise ValueError(f"batch = {self.batch} tokens is no whole number of rows of {self.shape.context}")
        if self.steps < 1:
            raise ValueError(f"{self.wanted_tokens:.4g} tokens are less than one step of {self.batch}")
        if (self.kind == "branch") != (self.trunk is not None):
            raise ValueError("a branch names its trunk, and nothing else does")
        if self.kind == "trunk" and min(self.fork_steps) < max(1, self.recipe.warmup * self.whole_steps):
            raise ValueError(
                f"the fork of {min(self.forks):.4g} tokens comes before the first step, or before the warmup ends"
            )
        if self.recipe.optimizer != "muonh" and self.recipe.matrix_rate is None:
            raise ValueError(f"{self.recipe.optimizer} needs a matrix_rate of its own: the usual one is MuonH's")
        if self.kind != "run" and self.recipe.schedule != "wsd":
            raise ValueError(f"a {self.kind} needs schedule = 'wsd'")
        return self

    @property
    def wanted_tokens(self) -> float:
        """Tokens asked for, bought by the budget, or of a trunk's longest branch."""
        if self.kind == "trunk":
            return max(self.forks)
        return self.tokens if self.tokens is not None else self.shape.tokens(self.budget or 0.0)

    @property
    def whole_steps(self) -> int:
        """Whole steps within the tokens wanted: what the schedule is laid over."""
        return self.shape.steps(self.wanted_tokens, self.batch)

    @property
    def steps(self) -> int:
        """Steps that are taken: a trunk ends where its longest branch begins to decay."""
        return max(self.fork_steps) if self.kind == "trunk" else self.whole_steps

    @property
    def trained_tokens(self) -> int:
        """What D is: steps taken times batch."""
        return self.steps * self.batch

    @property
    def rule_tokens(self) -> float:
        """The D of the rates' rule: that of a trunk's longest branch, else the run's own."""
        return max(self.forks) if self.kind == "trunk" else float(self.trained_tokens)

    @property
    def base_rates(self) -> dict[str, float]:
        """Peak rate of each group at the reference: the recipe's, or that of the width."""
        return {group: getattr(self.recipe, f"{group}_rate") or rate for group, rate in self._usual_rates.items()}

    @property
    def _usual_rates(self) -> dict[str, float]:
        return SMALL if self.shape.width < 256 and self.recipe.optimizer == "muonh" else PUBLISHED

    @property
    def fork_steps(self) -> tuple[int, ...]:
        """Steps of a trunk at which branches of `forks` tokens begin to decay."""
        return tuple(
            sorted({fork_step(self.shape.steps(tokens, self.batch), self.recipe.decay) for tokens in self.forks})
        )

    @property
    def architecture(self) -> str:
        """What the fits call the run's family: its passes, and what is not as in the published family."""
        shape = self.shape
        usual = {f.name: f.default for f in fields(Shape)}
        family = {
            "injection": shape.injection if shape.injects and shape.injection != "linear" else None,
            "r_bwd": shape.passes_with_gradient if shape.truncated else None,
        }
        sizes = ("depth", "prelude", "coda", "head_size", "heads", "kv_heads", "d_ff")
        family |= {name: getattr(shape, name) for name in sizes if getattr(shape, name) != usual[name]}
        if shape.injects and shape.injection == "hyperconnections" and shape.lanes != usual["lanes"]:
            family["lanes"] = shape.lanes
        return " ".join([f"r={shape.r}", *(f"{name}={value}" for name, value in family.items() if value is not None)])

    @property
    def recipe_in_words(self) -> str:
        """What of the recipe is not as usual; empty where nothing is."""
        chosen = {k: v for k, v in self._chosen_recipe.items() if k not in _RATES}
        chosen |= {f"{g}_rate": v for g, v in self.base_rates.items() if v != self._usual_rates[g]}
        return " ".join(f"{name}={value}" for name, value in chosen.items())

    @property
    def _chosen_recipe(self) -> dict[str, Any]:
        return self.recipe.model_dump(mode="json", exclude_defaults=True)

    @property
    def title(self) -> str:
        """A name for people; ids are for machines."""
        return f"{self.architecture} width={self.shape.width} tokens={self.trained_tokens:.3g} seed={self.init_seed}"

    @property
    def rows_per_step(self) -> int:
        """Rows of the global batch."""
        return self.batch // self.shape.context

    def tokens_at_once(self, kind: str) -> int:
        """Tokens in flight at most, in whole rows: what is quick on a CPU, and fits a GPU with its logits."""
        most = 2048 if kind != "cuda" else min(32_768, 2**29 // self.shape.vocabulary)
        return min(self.batch, max(1, most // self.shape.context) * self.shape.context)

    def counts(self) -> dict[str, Any]:
        """Everything that is known before training: parameters by group, FLOPs by part, tokens, steps, memory."""
        shape = self.shape
        in_flight = self.tokens_at_once("cpu")
        return {
            "architecture": self.architecture,
            "parameters": shape.groups,
            "total_parameters": sum(shape.groups.values()),
            "n_once": shape.n_once,
            "n_rec": shape.n_rec,
            "n_injection": shape.n_injection,
            "flops_forward": shape.flops_forward,
            "flops_training": shape.flops_training,
            "flops_per_token": shape.flops_per_token,
            "budget": self.budget,
            "batch": self.batch,
            "steps": self.steps,
            "tokens": self.trained_tokens,
            "tokens_of_budget": self.wanted_tokens,
            "flops": shape.flops_per_token * self.trained_tokens,
            "memory_tokens": in_flight,
            "memory_bytes": shape.memory(in_flight, 1 if self.recipe.optimizer != "adamw" else 2),
        }

    def defining(self) -> dict[str, Any]:
        """The fields that differ from their defaults and define the run, in plain JSON."""
        plain = self.model_dump(mode="json", exclude={"labels", "shape", "pack"}, exclude_defaults=True)
        shape = asdict(self.shape)
        usual = {f.name: f.default for f in fields(Shape)}
        plain["shape"] = {k: v for k, v in shape.items() if k == "width" or v != usual[k]}
        # Rates by the value they have, named or not: a default that changes one day changes the run.
        rates = {f"{group}_rate": v for group, v in self.base_rates.items() if v != PUBLISHED[group]}
        plain["recipe"] = {k: v for k, v in self._chosen_recipe.items() if k not in _RATES} | rates
        return plain

    def run_id(self, corpus: str) -> str:
        """A name that depends on what defines the run and nothing else; `corpus` is the hash of the pack's manifest."""
        text = json.dumps({"schema": SCHEMA, "corpus": corpus, **self.defining()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        """Every field, for spec.json."""
        return {"schema": SCHEMA, **self.model_dump(mode="json")}


def fork_step(steps: int, decay: float) -> int:
    """Where a run of `steps` begins to decay over that share of them."""
    return steps - round(decay * steps)


class RunRecord(_Frozen):
    """What a run came to. Counts are raw groups: a fit chooses the convention. `loss` is nats per held-out token.

    `status` is done, diverged, failed or trunk; `reason` says why there is no loss. `flops` is what the run
    costs alone; `flops_spent`, of a branch, what it cost on top of its trunk.
    """

    run_id: str
    status: Literal["done", "diverged", "failed", "trunk"]
    reason: str = ""
    corpus: str
    architecture: str
    recipe: str = ""
    group: str = ""
    r: int
    n_once: int
    n_rec: int
    n_injection: int
    n_head: int
    parameters: dict[str, int]
    tokens: int
    steps: int
    budget: float | None = None
    flops_per_token: int
    flops: int
    flops_spent: int | None = None
    flops_per_token_by_part: dict[str, int]
    loss: float | None
    loss_standard_error: float | None = None
    bits_per_byte: float | None = None
    validation_tokens: int
    train_loss: float | None
    seed: int
    data_seed: int
    labels: dict[str, str | float | int] = {}
    seconds: float
    tokens_per_second: float
    compute: dict[str, str | bool | int]
    rates: dict[str, float] = {}
    environment: dict[str, str]


def parse_spec(raw: dict[str, Any], source: str = "spec") -> RunSpec:
    """A RunSpec from plain data; BadInput says which field is wrong and what is allowed."""
    if raw.get("schema", SCHEMA) not in range(1, SCHEMA + 1):
        raise BadInput(
            f"{source}: schema {raw['schema']!r} is of another version of loopworth; this one reads {SCHEMA}."
        )
    raw = {k: v for k, v in raw.items() if k != "schema"}
    try:
        return RunSpec.model_validate(raw)
    except ValidationError as error:
        lines = []
        for one in error.errors():
            at = ".".join(str(part) for part in one["loc"])
            why = one["msg"].removeprefix("Value error, ")
            if one["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
                why = f"there is no such field; there are {', '.join(_siblings(one['loc']))}"
            lines.append(f"{at + ': ' if at else ''}{why}")
        raise BadInput(f"{source}: {'; '.join(lines)}") from None


def _siblings(at: tuple[Any, ...]) -> list[str]:
    if at[0] == "shape":
        return [f.name for f in fields(Shape)]
    return list((Recipe if at[0] == "recipe" else RunSpec).model_fields)


def read_toml(path: str | Path) -> dict[str, Any]:
    """A spec file (TOML, or the spec.json of a run) as plain data."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}. Check the path; you are in {Path.cwd()}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    except ValueError as error:  # TOMLDecodeError and JSONDecodeError are ValueErrors
        raise BadInput(f"{path} is not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}.") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds no fields, but {str(found)[:40]!r}. A spec is a table of them: docs/model.md.")
    return found
