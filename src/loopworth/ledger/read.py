"""Runs from a file or a folder of records: tables go through DuckDB, JSON through the standard library."""

import csv
import gzip
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
import zlib
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np

from loopworth.errors import BadInput
from loopworth.ledger.runs import LABELS, NUMBERS, Runs, column, number, transposed

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

KINDS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet"}
KINDS |= {".json": "json", ".jsonl": "json", ".ndjson": "json"}
LOSS_UNITS = {"nats": 1.0, "bits": math.log(2)}
TOKEN_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
OFFLINE: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
SEALED: dict[str, Any] = {**OFFLINE, "enable_external_access": "false", "lock_configuration": "true"}


def read_runs(
    path: str | Path,
    *,
    rename: Mapping[str, str] = {},
    where: str | None = None,
    loss_unit: str = "nats",
    token_unit: str | float = 1,
) -> Runs:
    """Return the runs of a CSV, Parquet or JSON file, of standard input (-), or of a folder with **/record.json.

    `rename` maps the file's names to ours. `where` is SQL over the renamed columns in the file's own units; it comes
    before any check, so it can leave out rows that would be refused. Then losses become nats and tokens tokens.
    """
    if loss_unit not in LOSS_UNITS:
        raise BadInput(f"unknown loss unit {loss_unit!r}. Allowed: nats or bits, both per token.")
    scales = {"loss": LOSS_UNITS[loss_unit], "tokens": _token_scale(token_unit)}
    try:
        if str(path) == "-":
            with tempfile.TemporaryDirectory() as folder:
                runs = _read(_copied(sys.stdin.buffer, folder), "standard input", rename)
        elif not str(path).strip():
            raise BadInput("the path of the runs is empty: was a shell variable not set?")
        elif Path(path).expanduser().exists() and not (Path(path).expanduser().is_file() or Path(path).is_dir()):
            # a pipe can be read once only
            with tempfile.TemporaryDirectory() as folder, Path(path).open("rb") as pipe:
                runs = _read(_copied(pipe, folder), str(path), rename)
        else:
            runs = _read(Path(path).expanduser(), str(path), rename)
    except FileNotFoundError as error:
        raise BadInput(f"there is no file or folder {path}. Check the path; you are in {Path.cwd()}.") from error
    except (OSError, EOFError, zlib.error) as error:
        at, why = getattr(error, "filename", None) or path, getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{at} cannot be read: {why}. Check its permissions and that it is whole.") from error
    if where and where.strip():
        runs = _kept(runs, where)
    for name, scale in scales.items():
        if scale != 1 and name in runs and runs[name].dtype == np.float64:
            note = "loss converted from bits to nats" if name == "loss" else f"tokens multiplied by {scale:g}"
            runs = replace(runs.with_columns(**{name: runs[name] * scale}), notes=(*runs.notes, note))
    return runs


def _copied(stream: IO[bytes], folder: str) -> Path:
    copy = Path(folder, "stream")
    with copy.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return copy


def _read(path: Path, source: str, rename: Mapping[str, str]) -> Runs:
    if path.is_dir():
        return _from_records(_folder(path), source, rename)
    with _opened(path) as file:
        head = file.read(1 << 20).removeprefix(BOM_UTF8)
    if not head.strip():
        raise BadInput(f"{source} is empty. Give a table of runs: a header line, then one line a run.")
    kind = KINDS.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if kind == "parquet" or (not kind and head.startswith(b"PAR1")):
        return _from_duckdb("read_parquet(?, hive_partitioning=false)", [escape(str(path))], source, rename)
    if kind == "json" or (not kind and head.lstrip()[:1] in (b"{", b"[")):
        with _opened(path) as file:
            return _from_records(_records(file, source), source, rename)
    try:
        return _from_csv(path, head, source, rename)
    except BadInput:
        # a line added by hand to a file from Windows: DuckDB wants one kind of line end
        if not _mixed_line_ends(path):
            raise
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "one-line-end.csv")
            with _opened(path) as file, copy.open("wb") as out:
                out.writelines(line.removesuffix(b"\n").removesuffix(b"\r") + b"\n" for line in file)
            return _from_csv(copy, head, source, rename)


def _mixed_line_ends(path: Path) -> bool:
    with _opened(path) as file:
        windows = {line.endswith(b"\r\n") for line in file if line.endswith(b"\n")}
    return len(windows) == 2


def _from_csv(path: Path, head: bytes, source: str, rename: Mapping[str, str]) -> Runs:
    skip, delimiter, names = _header(head, source)
    # all that DuckDB could guess from the rows is told to it; the names stay here, so none is spliced into SQL
    columns = ", ".join(f"c{place}: 'VARCHAR'" for place in range(len(names)))
    packed = "gzip" if path.suffix.lower() == ".gz" else "none"
    sql = (
        f"read_csv(?, delim=?, columns={{{columns}}}, skip={skip}, compression='{packed}', header=true, quote='\"', "
        "escape='\"', strict_mode=true, auto_detect=false, hive_partitioning=false)"
    )
    return _from_duckdb(sql, [escape(str(path)), delimiter], source, rename, names)


def _opened(path: Path) -> Any:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _not_utf8(source: str) -> str:
    return (
        f"{source} is not UTF-8 text: a binary file, UTF-16 or Latin-1? Save it as UTF-8 (iconv -f LATIN1 -t UTF-8), "
        "or give it the suffix .parquet if it is Parquet."
    )


def _header(head: bytes, source: str) -> tuple[int, str, list[str]]:
    """Return how many blank lines come first, the separator, and the names."""
    try:
        text = getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise BadInput(_not_utf8(source))
    body = text.lstrip("\r\n")
    delimiter = max(",;\t|", key=re.split(r"[\r\n]", re.sub(r'"[^"]*"', "", body), maxsplit=1)[0].count)
    try:
        fields = next(csv.reader(io.StringIO(body, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise BadInput(f"{source}: the header cannot be read: {error}. Is there a quote that does not end?") from error
    names = [name.strip() for name in fields]
    twice = {name for name in names if name and names.count(name) > 1}
    if twice:
        raise BadInput(f"{source}: the header has {' and '.join(sorted(twice))} more than once. Rename all but one.")
    data = [name for name in names if re.fullmatch(r"[\W\d_]+|[-+.\d]+[eE][-+]?\d+", name)]
    if data or not any(names):
        raise BadInput(
            f"{source} has no header: {delimiter.join(names)[:60]!r} are no names. Put column names on the first line."
        )
    return len(text[: len(text) - len(body)].splitlines()), delimiter, names


def _from_duckdb(
    sql: str, given: list[str], source: str, rename: Mapping[str, str], header: Sequence[str] | None = None
) -> Runs:
    import duckdb

    with duckdb.connect(config=OFFLINE) as con:
        try:
            con.execute(f"CREATE TABLE raw AS FROM {sql}", given)
        except duckdb.Error as error:
            _refuse_table(str(error), source)
        cells = con.table("raw").columns
        names = _renamed(header or cells, rename, source)
        columns = {name: _cells(con, cell, name) for name, cell in zip(names, cells, strict=True) if name}
    unnamed = len(names) - len(columns)
    notes = (f"left out of {source}: {unnamed} column{'s' * (unnamed > 1)} without a name",) if unnamed else ()
    return Runs(columns, source, notes)


def _refuse_table(message: str, source: str) -> NoReturn:
    line = re.search(r"Line: (\d+)", message)
    at = f"{source}, line {line[1]}" if line else source
    fields = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if fields:
        why = f"{fields[2]} fields where the header has {fields[1]}"
        raise BadInput(f"{at}: {why}. Keep the separators of blank cells, and quote text with a separator in it.")
    if "utf-8" in message.lower():
        raise BadInput(_not_utf8(at))
    if "quote" in message or "invalid state" in message:
        raise BadInput(
            f"{at}: a quote or a line end out of place. Close the quotes, and double those inside a quoted field."
        )
    raise BadInput(f"{at} cannot be read: {message.splitlines()[0]}. Check that it is what its suffix says.")


def _cells(con: "DuckDBPyConnection", cell: str, name: str) -> np.ndarray:
    """Return a column of the table raw: as DuckDB's numbers where they are sure to be float()'s, else from its text."""
    text = f"{_quoted(cell)}::VARCHAR"
    value = f"try_cast({text} AS DOUBLE)"
    if name not in LABELS:
        # DuckDB reads 5e1_0, +-5 and nan(12) too; what it can't read, float() may
        sure = f"isfinite({value}) AND NOT contains({text}, '_') AND NOT contains({text}, '+-')"
        odd = f"SELECT count(*) FROM raw WHERE trim({text}) <> '' AND ({sure}) IS NOT TRUE"
        if con.execute(odd).fetchall() == [(0,)]:
            return np.asarray(con.execute(f"SELECT coalesce({value}, 'nan'::DOUBLE) AS x FROM raw").fetchnumpy()["x"])
    return column(name, con.execute(f"SELECT coalesce({text}, '') AS x FROM raw").fetchnumpy()["x"])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _folder(folder: Path) -> list[Any]:
    def refuse(error: OSError) -> NoReturn:
        raise error

    found = [Path(at, "record.json") for at, _, files in os.walk(folder, onerror=refuse) if "record.json" in files]
    if not found:
        raise BadInput(
            f"the folder {folder} has no record.json in it or below. Give a ledger folder, or a file of runs."
        )
    taken = []
    for path in sorted(found):
        with path.open("rb") as file:
            records = list(_records(file, str(path)))
        if len(records) != 1:
            raise BadInput(f"{path} holds {len(records)} records. A record.json is one object.")
        taken += records
    # Runs of so many tokens have no budget: among them those of a budget are compared by what they cost.
    if any(isinstance(one, dict) and one.get("budget") is None for one in taken):
        taken = [{k: v for k, v in one.items() if k != "budget"} if isinstance(one, dict) else one for one in taken]
    return taken


def _records(file: IO[bytes], source: str) -> Iterator[Any]:
    """Yield flat objects: one a line, or from one JSON value over several lines."""
    begun = False
    for place, line in enumerate(file, 1):
        try:
            try:
                found = _parsed(line.rstrip())
            except json.JSONDecodeError:
                if begun:
                    raise
                found = _parsed(line + file.read())
        except json.JSONDecodeError as error:
            at = f"{source}, line {place + error.lineno - 1}"
            raise BadInput(f"{at}: not JSON ({error.msg}). Write one object a line, or one list of them.") from error
        except UnicodeDecodeError as error:
            raise BadInput(_not_utf8(f"{source}, line {place}")) from error
        begun = begun or bool(line.strip())
        yield from map(_flat, found if isinstance(found, list) else [found])


def _parsed(text: bytes) -> Any:
    # NaN stays a word: it is not a blank
    return json.loads(text, parse_constant=str) if text.strip() else []


def _flat(record: Any, above: str = "") -> Any:
    if not isinstance(record, dict):
        return record
    flat: dict[str, Any] = {}
    for name, value in record.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return flat


def _from_records(records: Iterable[Any], source: str, rename: Mapping[str, str]) -> Runs:
    columns = transposed(records, source)
    names = _renamed(list(columns), rename, source)
    return Runs({name: column(name, v) for name, v in zip(names, columns.values(), strict=True)}, source)


def _renamed(names: Sequence[str], rename: Mapping[str, str], source: str) -> list[str]:
    for theirs in rename:
        if theirs not in names:
            raise BadInput(f"--map: {source} has no column {theirs!r}. It has: {', '.join(names)}.")
    ours = [rename.get(name, name) for name in names]
    for name in ours:
        if name and ours.count(name) > 1:
            both = " and ".join(old for old, new in zip(names, ours, strict=True) if new == name)
            raise BadInput(f"--map: {both} of {source} would both be called {name}. Map one of them to another name.")
    return ours


def _kept(runs: Runs, where: str) -> Runs:
    """Return the rows where the expression is true; it sees these runs and nothing else."""
    import duckdb

    alike = sorted(name for name in runs.columns if [key.lower() for key in runs.columns].count(name.lower()) > 1)
    if alike:  # SQL would take either for the other
        raise BadInput(f"--where cannot tell {' from '.join(alike)}. Rename one with --map.")
    row = f"row of {' '.join(runs.columns)}"  # longer than any column's name, so it is none of them
    shown = ", ".join([_quoted(row), *(_typed(name, values) for name, values in runs.columns.items())])
    condition = f"(\n{where}\n)"
    sql = f"SELECT {_quoted(row)} AS kept FROM (SELECT {shown} FROM runs) WHERE {condition}"
    with duckdb.connect(config=SEALED) as con:
        con.register("runs", {row: np.arange(len(runs)), **runs.columns})
        try:
            if len(con.extract_statements(sql)) != 1:
                raise BadInput(f"--where {where!r} is more than one expression. Join conditions with and, or.")
            kept = np.asarray(con.execute(sql).fetchnumpy()["kept"])
            unsure = np.asarray(con.execute(f"{sql[: -len(condition)]}(\n{where}\n) IS NULL").fetchnumpy()["kept"])
        except duckdb.Error as error:
            why = str(error).splitlines()[0].split("Error: ", 1)[-1].rstrip("!.")
            example = f"the columns are {', '.join(runs.columns)}; for instance: r != 2 and recipe = 'plain'"
            raise BadInput(f"--where {where!r}: {why}. Write a condition over columns ({example}).") from error
    _refuse_unreadable(runs, where, np.sort(unsure))
    if not len(kept):
        raise BadInput(f"--where {where!r} left out all {len(runs):,} rows of {runs.source}. Loosen it.")
    left = len(runs) - len(kept)
    return runs.select(np.sort(kept), f"--where {where!r} left out {left:,} of {len(runs):,} rows")


def _refuse_unreadable(runs: Runs, where: str, rows: np.ndarray) -> None:
    """A condition that a cell's text leaves open would drop its row in silence."""
    for name in NUMBERS & runs.columns.keys():
        values = runs[name]
        if values.dtype != object or not re.search(rf"\b{re.escape(name)}\b", where, re.IGNORECASE):
            continue
        for at in rows:
            if values[at] and not _is_number(str(values[at])):
                raise BadInput(
                    f"{runs.source}, row {runs.rows[at]}: {name} {values[at]!r} is not a number, so --where {where!r} "
                    f"cannot be told of it. Correct it, or leave such rows out by rule: {name} is not null and ..."
                )


def _is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def _typed(name: str, values: np.ndarray) -> str:
    cell = _quoted(name)
    if values.dtype == np.float64:
        return f"CASE WHEN NOT isnan({cell}) THEN {cell} END AS {cell}"
    return f"try_cast({cell} AS DOUBLE) AS {cell}" if name in NUMBERS else f"nullif({cell}, '') AS {cell}"


def _token_scale(unit: str | float) -> float:
    try:
        scale = TOKEN_UNITS.get(str(unit).upper()) or float(unit)
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise BadInput(f"unknown token unit {unit!r}. Allowed: a number above 0, or K, M, B, T.")
    return scale
