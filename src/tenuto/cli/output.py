"""Output of commands: rich tables for people, JSON for programs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any

from tenuto.cli.say import json_text, say
from tenuto.schemas.text import visible_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 200
JOINED = ("hyperparameters",)
"""The one column where there is no room for one each."""
GAP = 2
"""Characters between two columns of a table."""
DIGITS = 4
DECIMALS_MAX = 7
EXPONENT_MAX = 6
"""Numbers from 0.0001 to 9,999,999 are easier to read without an exponent."""
STATE_STYLES = {
    "completed": "green",
    "running": "cyan",
    "active": "cyan",
    "joined": "green",
    "leaving": "yellow",
    "failed": "red",
    "lost": "red",
    "canceled": "yellow",
    "canceling": "yellow",
    "early_stopped": "dim",
    "paused": "yellow",
}


def console() -> Console:
    """Shows text as it is: no markup in names that others chose, and their control characters as escapes."""
    from rich.console import Console
    from rich.segment import Segment

    class Careful(Console):
        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            shown = (item if item.control else Segment(visible_lines(item.text), item.style) for item in buffer)
            return super()._render_buffer(shown)

    # Soft wrapping into a pipe: programs such as grep get whole lines.
    return Careful(highlight=False, markup=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def print_json(value: Any) -> None:
    print(json_text(value, indent=2))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], bold: int | None = None) -> Table:
    """Columns whose name begins with ">" are aligned to the right. Without names it is a list of facts: name, value.
    `bold`: index of a row that stands out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    facts = not any(columns)
    high_head = JOINED[0] not in columns and any("\n" in column for column in columns)
    made = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=None if facts else SIMPLE_HEAD,
        show_header=not facts,
        pad_edge=False,
        padding=(0, 2, 0, 0) if facts else (0, 1, 0, 0),
    )
    for index, column in enumerate(columns):
        right = column.startswith(">")
        whole = facts and index == 0
        made.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right or whole,
            vertical="bottom" if high_head else "top",
            style="dim" if whole else None,
        )
    for number, row in enumerate(rows):
        cells = (Text(text, style=STATE_STYLES.get(text, "")) for text in map(plain, row))
        made.add_row(*cells, style="bold" if number == bold else None)
    return made


def aligned(values: Sequence[Any], digits: int = DIGITS) -> list[str]:
    """Numbers of one column with the same count of decimals, so that they can be compared at a glance; the smallest one has at
    least `digits` significant digits. Numbers that differ too much for that are written with an exponent."""
    numbers = [value for value in values if isinstance(value, float) and math.isfinite(value) and value != 0]
    if not numbers or not all(isinstance(value, float) or value is None for value in values):
        return [plain(value) for value in values]
    exponents = [math.floor(math.log10(abs(number))) for number in numbers]
    decimals = max(0, digits - 1 - min(exponents))
    if decimals > DECIMALS_MAX or max(exponents) > EXPONENT_MAX:
        return [plain(value) if value is None or not math.isfinite(value) else f"{value:.{digits - 1}e}" for value in values]
    texts = [plain(value) if value is None or not math.isfinite(value) else f"{value:.{decimals}f}" for value in values]
    while decimals > 1 and all(text.endswith("0") for text in texts if "." in text):
        texts = [text[:-1] if "." in text else text for text in texts]
        decimals -= 1
    return texts


def width_of(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Characters that a table of these takes, and another column beside it must leave."""
    heads = [[line.removeprefix(">") for line in column.split("\n")] for column in columns]
    cells = [[plain(row[index]) for row in rows] for index in range(len(columns))]
    return GAP + sum(GAP + max(map(len, [*head, *texts])) for head, texts in zip(heads, cells, strict=True))


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of several trials: differing ones as columns, equal ones once."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """One per trial, in the order given."""
    same: dict[str, Any]


def compare(trials: Sequence[dict[str, Any]], width: int, *, cut: bool = False) -> Hyperparameters:
    """A column for each hyperparameter that differs between trials; one for all of them where `width` characters are too few,
    and with `cut` no more of it than fits."""
    flats = [flat(trial) for trial in trials]
    names = list(dict.fromkeys(name for values in flats for name in values))
    first = flats[0] if flats else {}
    same = {name: first[name] for name in names if len(flats) > 1 and all(name in v and v[name] == first[name] for v in flats)}
    varied = [name for name in names if name not in same]
    if not varied:
        return Hyperparameters((), tuple(() for _ in flats), same)
    cells = {name: aligned([values.get(name) for values in flats]) for name in varied}
    widths = {name: max(map(len, texts)) for name, texts in cells.items()}
    heads = {name: name for name in varied}
    if sum(GAP + max(widths[name], len(name)) for name in varied) > width:
        heads = {name: name if len(name) <= widths[name] else name.replace("_", "_\n").replace(".", ".\n") for name in varied}
    if sum(GAP + max(widths[name], *map(len, heads[name].split("\n"))) for name in varied) > width:
        joined = [" ".join(f"{name}={cells[name][row]}" for name in varied) for row in range(len(flats))]
        room = max(len(JOINED[0]), width - GAP)
        if cut:
            joined = [text if len(text) <= room else text[: room - 1] + "…" for text in joined]
        return Hyperparameters(JOINED, tuple((text,) for text in joined), same)
    numeric = {name for name in varied if all(isinstance(v.get(name), (int, float, NoneType)) for v in flats)}
    columns = tuple(f">{heads[name]}" if name in numeric else heads[name] for name in varied)
    return Hyperparameters(columns, tuple(tuple(cells[name][row] for name in varied) for row in range(len(flats))), same)


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
    """A table, or one sentence where there is nothing."""
    if rows:
        console().print(table("", columns, rows))
    else:
        say(empty)


def plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return " ".join(f"{name}={plain(item)}" for name, item in flat(value).items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value))
    return str(value)


def flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings with dotted names."""
    result: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, dict):
            result |= flat(item, f"{prefix}{name}.")
        else:
            result[prefix + name] = item
    return result


HEAD_CHARACTERS_MAX = 300
"""Most characters of a line of an error, in a list and in what happens: some lines of a terminal."""


def cut(error: str) -> str:
    """An error without what is too long of its lines; `tenuto trial describe` has it whole."""
    lines = [f"{line[:HEAD_CHARACTERS_MAX]}..." if len(line) > HEAD_CHARACTERS_MAX else line for line in error.splitlines()]
    return "\n".join(lines)


def head(error: str) -> str:
    """First line of an error, for a list."""
    return cut(error.partition("\n")[0])


def when(time_us: int | None) -> str:
    """Local time."""
    if time_us is None:
        return "-"
    return datetime.fromtimestamp(time_us / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(from_us: int | None, to_us: int | None) -> str:
    if from_us is None or to_us is None:
        return "-"
    return seconds(max(0, to_us - from_us) / 1e6)


def seconds(value: float) -> str:
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def size(value_bytes: int | None) -> str:
    if value_bytes is None:
        return "-"
    amount = float(value_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
