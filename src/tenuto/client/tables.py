"""Rows by columns: for pandas, for Arrow, or as they are."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.client import notebook_html
from tenuto.client.errors import ClientError

if TYPE_CHECKING:
    import pandas
    import pyarrow

HEADER_BYTES_MAX = 1 << 20
"""Most bytes of a table's description: 500 columns with long names."""


class Table:
    """Rows by columns. `columns`: name -> values, in order; numbers are arrays of numpy if the cluster sent them so."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = dict(columns)
        """Values by name of the column."""

    def __len__(self) -> int:
        return max((len(values) for values in self.columns.values()), default=0)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the first and last rows, and curves if the columns are metrics."""
        return notebook_html.columns(self.columns, len(self))

    def to_pandas(self) -> pandas.DataFrame:
        """DataFrame of pandas, with a column for each. Raises ClientError if pandas is not installed."""
        return _needed("pandas").DataFrame(self.columns, copy=False)

    def to_arrow(self) -> pyarrow.Table:
        """Table of pyarrow, with a column for each. Raises ClientError if pyarrow is not installed."""
        return _needed("pyarrow").table(self.columns)


def _needed(package: str) -> Any:
    from tenuto.kernel.optional import NotInstalled, needed

    try:
        return needed(package)
    except NotInstalled as error:
        raise ClientError(f"{error}.") from error


def of_rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Table of answers in JSON; each value in `hyperparameters` gets a column, such as `hyperparameters.lr`."""
    flat = [_flat(row) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return Table({name: [row.get(name) for row in flat] for name in names})


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and (prefix or name == "hyperparameters"):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


class Pages:
    """Pages of metrics, joined."""

    def __init__(self) -> None:
        self._pages: list[Any] = []

    def add(self, npy: bytes) -> tuple[int, int]:
        """Adds a page; returns trial and batches of its last row, (0, -1) if it has none."""
        import numpy

        page = numpy.lib.format.read_array(io.BytesIO(npy), allow_pickle=False, max_header_size=HEADER_BYTES_MAX)
        if not self._pages or len(page):
            self._pages.append(page)
        if not len(page):
            return 0, -1
        return int(page["trial"][-1]), int(page["batches"][-1])

    def table(self) -> Table:
        """Table of the fixed columns, and of each metric under its own name (under `metrics.NAME` if that is taken)."""
        import numpy

        names = list(dict.fromkeys(name for page in self._pages for name in page.dtype.names))
        parts: dict[str, list[Any]] = {name: [] for name in names}
        for page in self._pages:
            for name in names:
                known = name in page.dtype.names
                parts[name].append(page[name] if known else numpy.full(len(page), numpy.nan))
        columns = {name: numpy.concatenate(values) if len(values) > 1 else values[0].copy() for name, values in parts.items()}
        fixed = {name: values for name, values in columns.items() if not name.startswith("metrics.")}
        metrics = {name.removeprefix("metrics."): values for name, values in columns.items() if name.startswith("metrics.")}
        renamed = {f"metrics.{name}" if name in fixed else name: values for name, values in sorted(metrics.items())}
        return Table(fixed | renamed)
