"""HTML of the client's objects for notebooks, made of the data that they hold. It takes no request to the cluster, all of it is
bounded, and names, tags, lines of errors and other text of users is escaped, never markup."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from tenuto.schemas.text import visible

ROWS_HEAD, ROWS_TAIL, COLUMNS_MAX, FACTS_MAX = 10, 5, 20, 60
CHARACTERS_MAX = 300
"""Most characters of one cell."""
CURVES_MAX, PICTURES_MAX, POINTS_MAX = 10, 4, 400
WIDTH, HEIGHT, MARGIN = 320, 120, 4
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000", "#999999", "#882255")
"""Colours that people who are colour-blind can tell apart, too (Okabe and Ito, and two of Tol's)."""
FIXED = ("trial", "batches", "time_us", "length")
"""Columns of a table of metrics that are no metrics."""


def facts(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """A title, and names with values; values that are None are left out."""
    known = [(name, value) for name, value in rows if value is not None]
    cells = "".join(f"<tr><th style='text-align:left'>{_text(n)}</th>{_cell(value)}</tr>" for n, value in known[:FACTS_MAX])
    left = len(known) - FACTS_MAX
    return f"<div><b>{_text(title)}</b><table>{cells}</table>{f'<i>and {left} more</i>' if left > 0 else ''}</div>"


def columns(found: Mapping[str, Any], length: int) -> str:
    """Columns of equal length: their first and last rows, and curves where they are metrics by batches."""
    names = list(found)[:COLUMNS_MAX]
    whole = length <= ROWS_HEAD + ROWS_TAIL
    indexes = list(range(length)) if whole else [*range(ROWS_HEAD), *range(length - ROWS_TAIL, length)]
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    rows = []
    for place, index in enumerate(indexes):
        if not whole and place == ROWS_HEAD:
            rows.append(f"<tr>{'<td>…</td>' * len(names)}</tr>")
        rows.append(f"<tr>{''.join(_cell(found[name][index]) for name in names)}</tr>")
    left = f", {len(found) - len(names)} of them not shown" if len(found) > len(names) else ""
    size = f"<i>{length:,} rows, {len(found):,} columns{left}</i>"
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<div>{_pictures(found, length)}{body}{size}</div>"


def when(time_us: int | None) -> str | None:
    """Time in the local zone."""
    return None if time_us is None else datetime.fromtimestamp(time_us / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _pictures(found: Mapping[str, Any], length: int) -> str:
    """One picture per metric, with one curve per trial."""
    if not length or "batches" not in found:
        return ""
    rows = _rows_of_trials(found.get("trial"), length)
    names = [name for name in found if name not in FIXED][:COLUMNS_MAX]
    made = list(islice(filter(None, (_picture(name, found, rows) for name in names)), PICTURES_MAX))
    return f"<div>{''.join(made)}</div>" if made else ""


def _rows_of_trials(trials: Any, length: int) -> dict[str, Sequence[int]]:
    """Title of a curve -> its rows, no more than a picture can show."""
    rows: dict[str, Sequence[int]] = {}
    if trials is None:
        rows["all"] = range(length)
    else:
        of_trial: dict[Any, list[int]] = {}
        for index, trial in enumerate(trials.tolist() if hasattr(trials, "tolist") else trials):
            if trial in of_trial or len(of_trial) < CURVES_MAX:
                of_trial.setdefault(trial, []).append(index)
        rows |= {f"trial {trial}": indexes for trial, indexes in of_trial.items()}
    return {title: indexes[:: max(1, len(indexes) // POINTS_MAX)] for title, indexes in rows.items()}


def _picture(name: str, found: Mapping[str, Any], rows: Mapping[str, Sequence[int]]) -> str:
    values, batches = found[name], found["batches"]
    curves = {
        title: [(float(batches[row]), float(values[row])) for row in indexes if _finite(batches[row]) and _finite(values[row])]
        for title, indexes in rows.items()
    }
    if not any(len(points) > 1 for points in curves.values()):
        return ""
    xs = [x for points in curves.values() for x, _ in points]
    ys = [y for points in curves.values() for _, y in points]
    lines = "".join(
        f"<polyline fill='none' stroke='{COLOURS[number % len(COLOURS)]}' points='{_points(points, xs, ys)}'>"
        f"<title>{_text(title)}</title></polyline>"
        for number, (title, points) in enumerate(curves.items())
    )
    said = f"{_text(name)}, {_text(min(ys))} to {_text(max(ys))}, by batches up to {_text(max(xs))}"
    return (
        f"<figure style='display:inline-block;margin:4px'><svg width='{WIDTH}' height='{HEIGHT}' role='img'>"
        f"<title>{said}</title>{lines}</svg><figcaption>{said}</figcaption></figure>"
    )


def _points(points: Sequence[tuple[float, float]], xs: Sequence[float], ys: Sequence[float]) -> str:
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    across, up = (WIDTH - 2 * MARGIN) / ((right - left) or 1.0), (HEIGHT - 2 * MARGIN) / ((high - low) or 1.0)
    return " ".join(f"{MARGIN + (x - left) * across:.1f},{HEIGHT - MARGIN - (y - low) * up:.1f}" for x, y in points)


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def _cell(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"<td style='text-align:{'right' if number else 'left'}'>{_text(value)}</td>"


def _text(value: Any) -> str:
    """Value as escaped text of a page."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}={item}" for name, item in list(value.items())[:FACTS_MAX])
    elif isinstance(value, float):  # those of numpy are, too
        value = f"{value:.6g}"
    text = visible(str(value))
    return html.escape(text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}…")
