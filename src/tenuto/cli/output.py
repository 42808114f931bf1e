"""How commands show things: rich tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STATE_STYLES = {
    "completed": "green",
    "running": "cyan",
    "active": "cyan",
    "joined": "green",
    "failed": "red",
    "lost": "red",
    "canceled": "yellow",
    "canceling": "yellow",
    "early_stopped": "dim",
    "paused": "yellow",
}


def console() -> Console:
    from rich.console import Console

    # Soft wrapping into a pipe: programs such as grep get whole lines.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Columns whose name begins with ">" are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(text, style=STATE_STYLES.get(text, "")) for text in map(plain, row)))
    return made


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
    """A table, or one sentence where there is nothing."""
    if rows:
        console().print(table("", columns, rows))
    else:
        print(empty)


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


def when(time_us: int | None) -> str:
    """Local time."""
    if time_us is None:
        return "-"
    return datetime.fromtimestamp(time_us / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(from_us: int | None, to_us: int | None) -> str:
    if from_us is None or to_us is None:
        return "-"
    seconds = max(0, to_us - from_us) / 1e6
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
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
