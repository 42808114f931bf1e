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
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")
"""First characters by which a spreadsheet takes a text for a formula, and runs it (OWASP, "CSV Injection")."""


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
    return written


def _write(table: Any, path: Path, form: TableForm) -> None:
    if form == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            for line in csv_lines(table.columns):
                file.write(line)
        return
    plain = type(table)({name: _plain(values) for name, values in table.columns.items()})
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
    for row in zip(*(values.tolist() if hasattr(values, "tolist") else values for values in columns.values()), strict=True):
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


def _plain(values: Any) -> Any:
    """Values of one kind, as a column of Parquet needs: where they are mixed, such as a hyperparameter that is a number in one
    trial and a name in another, each is text."""
    if hasattr(values, "tolist"):
        return values
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or kinds in ({str}, {bool}):
        return [float(value) if kinds == {int, float} and value is not None else value for value in values]
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
