"""A table of training runs, frozen, in memory."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from loopworth.errors import BadInput

COUNTS = ("n_once", "n_rec", "n_injection", "n_head")  # 0 or more
AMOUNTS = ("n", "tokens", "loss", "budget", "flops_per_token", "position", "passes")  # above 0
NUMBERS = frozenset((*COUNTS, *AMOUNTS, "r", "seed"))
LABELS = frozenset(("architecture", "recipe", "group", "status"))


@dataclass(frozen=True, eq=False, repr=False)
class Runs:
    """Columns of equal length: float64 with nan where blank, or object arrays of str with "" where blank.

    A column of NUMBERS in which some cell is no finite number stays text, for `check_runs` to name that cell.
    """

    columns: Mapping[str, np.ndarray]
    source: str = "runs"
    notes: tuple[str, ...] = ()
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # from 1, header not counted; as in source
    blank: str = "blank"  # what a nan is called in messages: in memory it may be a literal one

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise BadInput(f"{self.source}: the columns differ in length: {listed}. Give every run a value in each.")
        length = next(iter(lengths.values()), 0)
        rows = self.rows if len(self.rows) == length else np.arange(1, length + 1)
        object.__setattr__(self, "rows", _frozen(rows))
        frozen = {name: _frozen(values) for name, values in self.columns.items()}
        object.__setattr__(self, "columns", MappingProxyType(frozen))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __repr__(self) -> str:
        return f"<Runs {self.source}: {len(self)} rows of {', '.join(self.columns)}>"

    def select(self, mask_or_index: Any, note: str | None = None) -> "Runs":
        """Return these rows, under the numbers they have in the source; a text column of NUMBERS may become numbers."""
        chosen = np.asarray(mask_or_index)
        chosen = chosen if chosen.size else chosen.astype(np.int64)
        columns = {name: values[chosen] for name, values in self.columns.items()}
        columns = {name: column(name, v) if name in NUMBERS and v.dtype == object else v for name, v in columns.items()}
        notes = self.notes if note is None else (*self.notes, note)
        return replace(self, columns=columns, rows=self.rows[chosen], notes=notes)

    def noting(self, note: str) -> "Runs":
        """Return the same runs with one more note."""
        return replace(self, notes=(*self.notes, note))

    def with_columns(self, **arrays: Any) -> "Runs":
        """Return the same runs with columns added or replaced."""
        return replace(self, columns={**self.columns, **{name: column(name, v) for name, v in arrays.items()}})

    def label(self, name: str) -> np.ndarray:
        """Return a column as text: 4.0 reads "4", a blank ""."""
        values = self[name]
        if values.dtype == object:
            return values
        distinct, place = np.unique(values, return_inverse=True)
        return _texts(distinct)[place]


def as_runs(data: Any, source: str = "runs") -> Runs:
    """Return Runs from a path, a mapping of columns, a list of dicts, or a pandas, polars or pyarrow table."""
    if isinstance(data, Runs):
        return data
    if isinstance(data, str | Path):
        from loopworth.ledger.read import read_runs

        return read_runs(data)
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        # pyarrow keeps arrays in .columns and names in .column_names
        names = list(getattr(data, "column_names", data.columns))
        columns = {name: data[name] for name in names}
        if len(columns) < len(names):
            raise BadInput(f"{source}: a column name is repeated among {', '.join(map(str, names))}. Rename one.")
    elif isinstance(data, Mapping):
        columns = data
    elif isinstance(data, Iterable):
        columns = transposed(data, source)
    else:
        raise BadInput(
            f"{source}: cannot take runs from {type(data).__name__}. Give a path, a mapping of column names to values, "
            "a list of dicts, or a dataframe."
        )
    named = {str(name): column(str(name), values) for name, values in columns.items()}
    return Runs(named, source, blank="blank or nan")


def transposed(records: Iterable[Any], source: str) -> dict[str, list]:
    """Return the columns of records, in order of first appearance, with None where a record lacks one."""
    columns: dict[str, list] = {}
    count = 0
    for count, record in enumerate(records, 1):
        if not isinstance(record, Mapping):
            raise BadInput(f"{source}, row {count}: {str(record)[:40]!r} is not a record of named values.")
        for name, value in record.items():
            values = columns.setdefault(name, [])
            values.extend([None] * (count - 1 - len(values)))
            values.append(value)
    for values in columns.values():
        values.extend([None] * (count - len(values)))
    return columns


def column(name: str, values: Any) -> np.ndarray:
    """Return a new column of Runs from any sequence: float64, or str if its name or a value asks for text."""
    if hasattr(values, "__array__"):
        array = np.asarray(values)
    elif isinstance(values, Sequence) and not isinstance(values, str | bytes):
        array = np.fromiter(values, object, len(values))
    else:
        raise BadInput(f"column {name} is a {type(values).__name__}. Give a list or an array with one value a run.")
    if array.ndim != 1:
        raise BadInput(f"column {name} has {array.ndim} dimensions. Give one value a run.")
    if name in LABELS:
        return _texts(array)
    if array.dtype.kind in "fiu":
        return array.astype(np.float64)
    try:
        numbers = np.fromiter(map(number, array), np.float64, len(array))
    except (ValueError, OverflowError):
        return _texts(array)
    if name in NUMBERS and any(isinstance(v, str) and v.strip() for v in array[~np.isfinite(numbers)]):
        return _texts(array)  # nan or inf was written out: not the same as a blank
    return numbers


def number(value: Any) -> float:
    """Return what float() reads, nan if blank; ValueError for text, a yes or no, and digits joined by underscores."""
    if isinstance(value, str):
        if "_" in value:
            raise ValueError(value)
        return float(value) if value.strip() else math.nan
    if isinstance(value, float | int) and not isinstance(value, bool):
        return float(value)
    text = _text(value)
    return float(text) if text else math.nan


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float | np.floating):
        if math.isnan(value):
            return ""
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(float(value))
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    text = "" if value is None else str(value).strip()
    return "" if text in ("<NA>", "NaT") else text  # how pandas prints its missing values


def _texts(values: np.ndarray) -> np.ndarray:
    shared: dict[str, str] = {}  # few distinct labels, many rows: keep one string of each
    found = (shared.setdefault(text, text) for text in map(_text, values))
    return np.fromiter(found, object, len(values))


def _frozen(values: np.ndarray) -> np.ndarray:
    view = np.asarray(values).view()
    view.setflags(write=False)
    return view
