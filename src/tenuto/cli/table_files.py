"""Tables of an experiment as files: CSV for spreadsheets and any program, Parquet for data frames."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from tenuto.cli.errors import CliError

TableForm = Literal["csv", "parquet"]
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters by which a spreadsheet takes a text for a formula, and runs it (OWASP, "CSV Injection")."""
ROWS_AT_ONCE = 10_000
"""Rows of a CSV file that are Python objects at the same time: columns of numpy take a fifth of the memory."""
INTEGER_END = 2**63
EXACT_INTEGER_MAX = 2**53
"""Largest whole number that a column of floats holds as it is."""
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON has as texts."""


def write_tables(experiment: Any, directory: Path, form: TableForm) -> list[Path]:
    """Writes `trials`, `training` and `validation` of an experiment of the client; returns the files. One that was there is
    replaced at once, so that none is ever half written. Raises CliError."""
    tables: dict[str, Callable[[], Any]] = {
        "trials": experiment.trials,
        "training": lambda: experiment.metrics("training"),
        "validation": lambda: experiment.metrics("validation"),
    }
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, read in tables.items():
            path = directory / f"{name}.{form}"
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                _write(read(), beside, form)
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
            written.append(path)
    except OSError as error:
        raise CliError(f"{directory} cannot be written: {error.strerror}.") from error
    except ValueError as error:  # of pyarrow, or of a character that no file can hold
        raise CliError(f"{name}.{form} cannot hold a value: {error}.") from error
    return written


def _write(table: Any, path: Path, form: TableForm) -> None:
    columns = {name: _with_numbers(values) for name, values in table.columns.items()}
    if form == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            for line in csv_lines(columns):
                file.write(line)
        return
    plain = type(table)({name: _plain(values) for name, values in columns.items()})
    arrow = plain.to_arrow()
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow, path)


def csv_lines(columns: dict[str, Any]) -> Iterator[str]:
    """Lines of a CSV file (RFC 4180) with these columns, the names first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)

    def line(cells: Any) -> str:
        buffer.seek(0)
        buffer.truncate()
        writer.writerow(cells)
        return buffer.getvalue()

    yield line(map(cell, columns))
    rows = max((len(values) for values in columns.values()), default=0)
    for begin in range(0, rows, ROWS_AT_ONCE):
        some = [values[begin : begin + ROWS_AT_ONCE] for values in columns.values()]
        for row in zip(*(values.tolist() if hasattr(values, "tolist") else values for values in some), strict=True):
            yield line(map(cell, row))


def cell(value: Any) -> str | int | float | bool:
    """A value in a cell: empty for None and NaN, JSON for lists and mappings. A text that a spreadsheet would take for a formula
    gets an apostrophe before it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return f"'{text}" if text.startswith(FORMULA_BEGINS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _with_numbers(values: Any) -> Any:
    """The column with NaN and infinities as numbers, where all other values are numbers."""
    if hasattr(values, "tolist") or not all(value is None or _is_real(value) or _is_not_finite(value) for value in values):
        return values
    return [NOT_FINITE[value] if isinstance(value, str) else value for value in values]


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, str) and value in NOT_FINITE


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(values: Any) -> Any:
    """Values of one kind, as a column of Parquet needs. Where they are mixed, such as a hyperparameter that is a number in one
    trial and a name in another, or are whole numbers that no column holds as they are, each is text."""
    if hasattr(values, "tolist"):
        return values
    kinds = {type(value) for value in values if value is not None}
    integers = [value for value in values if type(value) is int]
    if kinds in ({str}, {bool}, {float}, set()):
        return values
    if kinds == {int} and all(-INTEGER_END <= value < INTEGER_END for value in integers):
        return values
    if kinds == {int, float} and all(abs(value) <= EXACT_INTEGER_MAX for value in integers):
        return [None if value is None else float(value) for value in values]
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
