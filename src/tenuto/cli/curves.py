"""Curves in a terminal: `--plot` of exp describe and trial describe."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.output import plain
from tenuto.client.messages import items
from tenuto.schemas.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tenuto.client.blocking.client import Client
    from tenuto.client.blocking.trials import Kind

CURVES_MAX = 6
"""Most curves in one picture, as many as colours can be told apart; of an experiment the best trials are drawn."""
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")
MARKERS = "ox+*#@"
"""Marks that replace colours if the output is not a terminal."""
HEIGHT, WIDTH_MAX, WIDTH_MIN = 16, 100, 20
AXIS_WIDTH = 18
"""Characters beside the picture: the numbers of its axis."""
NAMES_MAX, NAME_CHARACTERS_MAX = 20, 60

Plot = Annotated[bool, typer.Option("--plot", help="Draw curves.")]
Metric = Annotated[str | None, typer.Option("--metric", help="With --plot: draw this one (default: the searcher's metric).")]
Logarithmic = Annotated[bool, typer.Option("--log", help="With --plot: a logarithmic axis.")]


@dataclass(frozen=True)
class LabeledCurve:
    label: str
    points: Sequence[tuple[float, float]]
    """Batches and value, by batches; finite numbers."""


@dataclass(frozen=True)
class Picture:
    title: str
    curves: Sequence[LabeledCurve]
    others: Sequence[str]
    """Metrics that could be drawn, too."""


def check(plot: bool, metric: str | None, log: bool, json: bool) -> None:
    """Raises CliError for options that do not go together."""
    if plot and json:
        raise UsageError("--plot draws for people, and --json prints for programs; give one of them.")
    if not plot and (metric is not None or log):
        raise UsageError(f"{'--metric' if metric is not None else '--log'} says what --plot draws; give --plot, too.")


def of_experiment(rest: Client, view: dict[str, Any], ranked: Sequence[dict[str, Any]], metric: str | None) -> Picture:
    """`view` and its trials, the best first, as the REST door sends them. Raises CliError."""
    what = f"Experiment {view['id']}"
    if not ranked:
        raise CliError(f"{what} has no trial yet, and so no curve.")
    names = _names(rest, ranked[0]["id"])
    name = _chosen(metric, view["metric"], names, what)
    kinds: tuple[Kind, ...] = ("validation", "training")
    for kind in kinds:
        curves: list[LabeledCurve] = []
        for trial in ranked[: 2 * CURVES_MAX]:
            if points := _points(rest, trial["id"], kind, name):
                curves.append(LabeledCurve(f"{trial['id']} ({_at_last(points)})", points))
            if len(curves) == CURVES_MAX:
                break
        if curves:
            shown = f", the best {len(curves)} of {len(ranked)} trials" if len(curves) < len(ranked) else ""
            return Picture(f"{_short(name)} by batches, {kind}{shown}", curves, _without(names, name))
    raise CliError(f"{what} has no values of {_short(name)} yet; {_told(names)}")


def of_trial(rest: Client, view: dict[str, Any], metric: str | None) -> Picture:
    """`view` as the REST door sends it. Raises CliError."""
    names = _names(rest, view["id"])
    searched = rest.get(f"/experiments/{view['experiment_id']}")["metric"]
    name = _chosen(metric, searched, names, f"Trial {view['id']}")
    kinds: tuple[Kind, ...] = ("validation", "training")
    found = [(kind, _points(rest, view["id"], kind, name)) for kind in kinds]
    curves = [LabeledCurve(f"{kind} ({_at_last(points)})", points) for kind, points in found if points]
    if not curves:
        raise CliError(f"Trial {view['id']} has no values of {_short(name)} yet; {_told(names)}")
    return Picture(f"{_short(name)} by batches", curves, _without(names, name))


def show(screen: Console, picture: Picture, *, log: bool) -> None:
    """Raises CliError."""
    colour = screen.is_terminal and not screen.no_color
    screen.print(drawn(picture, screen.width, log=log, colour=colour), no_wrap=True, overflow="ignore", crop=False)


def drawn(picture: Picture, width: int, *, log: bool, colour: bool) -> Text:
    """`width` of the screen in characters. Raises CliError."""
    from rich.text import Text

    from tenuto.kernel.optional import NotInstalled, needed

    try:
        figure = needed("plotille").Figure()
    except NotInstalled as error:
        raise CliError(f"Curves need a package: {error}, or leave out --plot.") from error
    figure.width = max(WIDTH_MIN, min(width, WIDTH_MAX) - AXIS_WIDTH)
    figure.height, figure.with_colors, figure.origin = HEIGHT, colour, False
    figure.x_label, figure.y_label, figure.linesep = "", "", "\n"
    figure.x_ticks_fkt = lambda low, _: f"{low:.6g}"
    figure.y_ticks_fkt = lambda low, _: f"{10**low if log else low:.4g}".rjust(10)
    lines = [(curve.label, _scaled(curve.points, log)) for curve in picture.curves]
    if not any(points for _, points in lines):
        raise CliError("No value is above zero, as --log needs it; leave it out.")
    values = [value for _, points in lines for _, value in points]
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    figure.set_y_limits(low - margin, high + margin)
    steps = [step for _, points in lines for step, _ in points]
    figure.set_x_limits(min(steps), max(steps) if max(steps) > min(steps) else min(steps) + 1)
    for number, (label, points) in enumerate(lines):
        if points:
            thin = thinned(points, 2 * figure.width)
            marker = None if colour or len(lines) == 1 else MARKERS[number % len(MARKERS)]
            xs, ys = [step for step, _ in thin], [value for _, value in thin]
            figure.plot(xs, ys, lc=COLOURS[number % len(COLOURS)] if colour else None, label=label, marker=marker)
    others = f"\nAlso: {', '.join(map(_short, picture.others[:NAMES_MAX]))} (--metric)" if picture.others else ""
    _, *shown = figure.show(legend=True).replace("> ()", ">").split("\n")  # the title says what the axes are
    return Text.from_ansi("\n".join(line.rstrip() for line in (picture.title, *shown)) + others)


def thinned(points: Sequence[tuple[float, float]], columns: int) -> list[tuple[float, float]]:
    """The smallest and the largest value of each column, in their order: what a picture of so many columns can show."""
    if len(points) <= 2 * columns:
        return list(points)
    first, last = points[0][0], points[-1][0]
    width = (last - first) / columns or 1.0
    found: list[tuple[float, float]] = []
    column: list[tuple[float, float]] = []
    number = 0
    for point in points:
        here = min(columns - 1, int((point[0] - first) / width))
        if here != number and column:
            found += _extremes(column)
            column = []
        number = here
        column.append(point)
    return found + _extremes(column)


def _extremes(column: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    low, high = min(column, key=lambda point: point[1]), max(column, key=lambda point: point[1])
    return sorted({low, high})


def _scaled(points: Iterable[tuple[float, float]], log: bool) -> list[tuple[float, float]]:
    return [(step, math.log10(value) if log else value) for step, value in points if value > 0 or not log]


def _names(rest: Client, trial_id: str) -> list[str]:
    """Metrics of a trial: those of its first reports."""
    validations = items(rest.get(f"/trials/{trial_id}/validations", limit=1))
    points = items(rest.get(f"/trials/{trial_id}/metrics", limit=1))
    return sorted({name for report in (*validations, *points) for name in report["metrics"]})


def _chosen(given: str | None, searched: str, names: Sequence[str], what: str) -> str:
    if given is not None:
        return given
    if searched:
        return searched
    if not names:
        raise CliError(f"{what} has no metrics yet, and so no curve.")
    return "loss" if "loss" in names else names[0]


def _points(rest: Client, trial_id: str, kind: Kind, name: str) -> list[tuple[float, float]]:
    columns = rest.get_trial(trial_id).metrics(kind, metric=name).columns
    taken = name in ("trial", "batches", "time_us", "length")
    values = columns.get(f"metrics.{name}" if taken else name, ())
    pairs = zip(columns.get("batches", ()), values, strict=False)
    return [(float(step), float(value)) for step, value in pairs if math.isfinite(value)]


def _at_last(points: Sequence[tuple[float, float]]) -> str:
    return f"{plain(points[-1][1])} at {points[-1][0]:.0f}"


def _told(names: Sequence[str]) -> str:
    return f"there are {', '.join(map(_short, names[:NAMES_MAX]))}." if names else "there are no metrics yet."


def _without(names: Sequence[str], name: str) -> list[str]:
    return [item for item in names if item != name]


def _short(name: str) -> str:
    return visible(name)[:NAME_CHARACTERS_MAX]
