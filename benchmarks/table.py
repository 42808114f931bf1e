"""Figures of all benchmarks beside their bars and peers: `python benchmarks/table.py FILE`.

FILE is what benchmarks wrote where BENCH_FIGURES named it (figures.py): `make bench` ends with this table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HEADS = ("benchmark", "figure", "value", "beside", "its value", "ratio", "bar")
DIGITS = 3
"""Significant digits: a figure varies by some percent from run to run."""


def rows(text: str) -> list[tuple[str, ...]]:
    found = []
    for line in map(json.loads, text.splitlines()):
        unit, ratio = line["unit"], line["ratio"]
        found.append(
            (
                line["benchmark"], line["figure"], number(line["value"], unit), line["beside"], number(line["of"], unit),
                "" if ratio is None else f"{ratio:.2f}", line["bar"],
            )
        )  # fmt: skip
    return found


def number(value: Any, unit: str) -> str:
    if value is None:
        return ""
    shown = f"{value:,.0f}" if abs(value) >= 10**DIGITS else f"{value:.{DIGITS}g}"
    return f"{shown} {unit}".strip()


def table(found: list[tuple[str, ...]]) -> str:
    """A table in Markdown, aligned. A benchmark is named in the first of its rows."""
    shown, before = [], ""
    for name, *cells in found:
        shown.append(("" if name == before else name, *cells))
        before = name
    widths = [max(len(row[at]) for row in [HEADS, *shown]) for at in range(len(HEADS))]

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(HEADS), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, shown)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    found = rows(parser.parse_args().file.read_text())
    print(table(found))


if __name__ == "__main__":
    main()
