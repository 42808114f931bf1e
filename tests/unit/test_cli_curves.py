"""Curves in a terminal: whatever the values, whatever the metric is called."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from tenuto.cli import curves
from tenuto.cli.curves import LabeledCurve, Picture, drawn, thinned
from tenuto.cli.errors import CliError
from tenuto.cli.output import console

pytest.importorskip("plotille", reason="pip install 'tenuto[pictures]'")


def text(*lines: list[tuple[float, float]], width: int = 80, log: bool = False, name: str = "loss") -> str:
    picture = Picture(name, [LabeledCurve(f"3-{number}", points) for number, points in enumerate(lines, 1)], [])
    return drawn(picture, width, log=log, colour=False).plain


def test_a_curve_is_drawn_within_the_screen_with_its_numbers() -> None:
    falling = [(float(step), math.exp(-step / 100)) for step in range(1_000)]
    for width in (40, 80, 200):
        shown = text(falling, width=width).split("\n")
        assert max(map(len, shown)) <= max(width, curves.WIDTH_MIN + curves.AXIS_WIDTH)
        assert any("⠉" <= character <= "⣿" for line in shown for character in line)
    assert "3-1" in shown[-1]
    lines = text(falling, log=True)
    assert "0.00" in lines
    assert "1.0" in text(falling)
    assert text([(5.0, 2.0)])
    assert text([(5.0, 0.0), (6.0, 0.0)])
    assert text([(0.0, 1e300), (1.0, -1e300)])


def test_curves_are_told_apart_without_colours() -> None:
    shown = text([(0, 1), (10, 2)], [(0, 2), (10, 1)])
    assert "o" in shown.split("Legend", maxsplit=1)[0]
    assert "x" in shown.split("Legend", maxsplit=1)[0]


def test_a_logarithmic_axis_leaves_out_what_has_no_logarithm() -> None:
    assert text([(0, 1), (1, 0), (2, -1), (3, 10)], log=True)
    with pytest.raises(CliError, match="above zero"):
        text([(0, 0.0), (1, -1.0)], log=True)


def test_thin_curves_keep_their_extremes_and_their_order() -> None:
    points = [(float(step), 0.0) for step in range(100_000)]
    points[70_001] = (70_001.0, 9.0)
    thin = thinned(points, 160)
    assert len(thin) <= 2 * 160
    assert (70_001.0, 9.0) in thin
    assert thin == sorted(thin)
    assert thinned(points[:100], 160) == points[:100]


def test_a_name_that_obeys_nobody() -> None:
    screen = console()
    screen.file = io.StringIO()
    assert isinstance(screen, Console)
    curves.show(screen, Picture(curves._short("\x1b[2Jloss"), [LabeledCurve("3-1", [(0, 1), (1, 2)])], []), log=False)
    assert "\x1b" not in screen.file.getvalue()
    assert "\\x1b[2Jloss" in screen.file.getvalue()


@pytest.mark.parametrize(
    ("plot", "metric", "log", "json"), [(True, None, False, True), (False, "a", False, False), (False, None, True, False)]
)
def test_options_that_do_not_go_together(plot: bool, metric: str | None, log: bool, json: bool) -> None:
    with pytest.raises(CliError, match="--plot"):
        curves.check(plot, metric, log, json)
