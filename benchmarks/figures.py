"""Figures of the benchmarks in a form for programs, and their small form. See contributing/benchmark.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

FILE_VARIABLE = "BENCH_FIGURES"
"""Names the file to which each figure is appended as a line of JSON. Without it, figures are only printed for people."""
DIRECTORY = Path(__file__).resolve().parent


def figure(
    name: str,
    value: float,
    unit: str,
    *,
    beside: str = "",
    of: float | None = None,
    ratio: float | None = None,
    bar: str = "",
) -> None:
    """One number that counts. `beside`: the peer that was measured in the same run; `of`: its number, in the same unit. `ratio`:
    value / `of` if not given; give it where it is a median over pairs. `bar`: what the figure, or its ratio, is to keep."""
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return
    if ratio is None and of:
        ratio = value / of
    line = {
        "benchmark": _program(), "figure": name, "value": value, "unit": unit, "beside": beside, "of": of, "ratio": ratio,
        "bar": bar,
    }  # fmt: skip
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def parse(parser: argparse.ArgumentParser, **small: Any) -> argparse.Namespace:
    """Parsed options. `small`: defaults of the options under `--small`, with which the program does all that it does, in a few
    seconds."""
    parser.add_argument("--small", action="store_true", help="tiny sizes: shows that it runs, and its figures mean nothing")
    if "--small" in sys.argv[1:]:
        unknown = small.keys() - {action.dest for action in parser._actions}
        assert not unknown, f"small sizes of options that do not exist: {', '.join(sorted(unknown))}"
        parser.set_defaults(**small)
    return parser.parse_args()


def _program() -> str:
    path = Path(sys.argv[0]).resolve()
    return str(path.relative_to(DIRECTORY).with_suffix("")) if path.is_relative_to(DIRECTORY) else path.stem
