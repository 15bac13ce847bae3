"""Fits, comparisons and laws as one JSON object each. The keys are documented in docs/fit.md and do not change."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from loopworth.laws.catalogue import LAWS
from loopworth.laws.compare import Comparison
from loopworth.laws.diagnostics import Refit
from loopworth.laws.fit import Fit


def fit_as_json(fit: Fit) -> str:
    """The object that `loopworth fit --json` prints."""
    return _dump(_fit_object(fit))


def comparison_as_json(found: Comparison) -> str:
    """The object that `loopworth compare --json` prints."""
    return _dump(
        {
            "by": found.by,
            "reference": found.reference,
            "status": found.status,
            "level": found.level,
            "convention": found.convention,
            "shared_runs": found.shared_runs,
            "differences": [asdict(d) for d in found.differences],
            "fits": {name: _fit_object(f) for name, f in found.fits.items()},
            "notes": found.notes,
            "warnings": found.warnings,
        }
    )


def laws_as_json() -> str:
    """The object that `loopworth laws --json` prints."""
    return _dump(
        {
            law.name: {
                "formula": law.formula,
                "columns": [*law.columns, "loss"],
                "about": law.about,
                "params": {p.name: [p.value(p.low), p.value(p.high)] for p in law.params},
            }
            for law in LAWS.values()
        }
    )


def _fit_object(fit: Fit) -> dict[str, Any]:
    checks = fit.diagnostics
    good = fit.quality
    found: dict[str, Any] = {
        "law": fit.law.name,
        "status": fit.status,
        "params": dict(fit.params),
        "interval": dict(fit.interval),
        "interval_method": fit.interval_method,
        "level": fit.level,
        "objective": fit.objective,
        "starts": fit.starts,
        "starts_agreeing": fit.starts_agreeing,
        "r2": good.r2 if good else None,
        "rmse": good.rmse if good else None,
        "worst_residual": {"nats": good.worst, "row": good.worst_row} if good else None,
        "n_runs": fit.n_runs,
        "n_cells": fit.n_cells,
        "convention": fit.convention,
        "delta": fit.delta if math.isfinite(fit.delta) else "inf",
        "protocol": fit.protocol,
        "fixed": dict(fit.fixed),
        "restricted": {},
        "halves": {},
    }
    if checks:
        found["restricted"] = {r.what.replace(" ", ""): _refit(r) for r in checks.restricted}
        halves = () if isinstance(checks.halves, str) else checks.halves
        found["halves"] = {side: _refit(half) for side, half in zip(("low", "high"), halves, strict=False)}
        found["architectures"] = {r.what: _refit(r) for r in checks.architectures}
        found["conventions"] = dict(checks.conventions)
        found["residuals"] = [asdict(r) for r in checks.residuals]
        found["left_out"] = [{**asdict(out)} for out in checks.left_out]
        found["held_out"] = [asdict(b) for b in checks.blind]
    found["parabolas"] = [asdict(p) for p in fit.parabolas]
    found["frontiers"] = [asdict(f) for f in fit.frontiers]
    found["notes"] = fit.notes
    found["warnings"] = fit.warnings
    return found


def _refit(refit: Refit) -> dict[str, Any]:
    return {
        "what": refit.what,
        "n_runs": refit.n_runs,
        "status": refit.status,
        "params": dict(refit.params),
        "objective": refit.objective,
        "r2": refit.r2,
        "rmse": refit.rmse,
    }


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: what is not a number is null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
