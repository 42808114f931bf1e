"""What a notebook shows of the client's objects: bounded, and nothing that a user chose is markup."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from typing import Any

import numpy
import pytest

from tenuto.client import Checkpoint, Client, Experiment, Target, Trial, notebook_html
from tenuto.client.tables import Table, of_rows

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"&\x1b[2J"
DOOR: Any = Client(Target("http://127.0.0.1:1", "", ""))  # nothing is asked of it
EXPERIMENT = {
    "id": 3, "name": EVIL, "state": EVIL, "method": "asha", "metric": EVIL, "best_trial_id": EVIL, "best_metric": 0.5,
    "labels": [EVIL], "note": EVIL, "user": EVIL, "error": EVIL, "trials": {"running": 2}, "submitted_us": 1, "ended_us": None,
}  # fmt: skip
TRIAL = {
    "id": EVIL, "state": EVIL, "error": EVIL, "batches": 10, "best_metric": math.nan, "reason": EVIL, "requested_us": 1,
    "hyperparameters": {EVIL: EVIL, "layers": {EVIL: [EVIL]}}, "ended_us": 5,
}  # fmt: skip
CHECKPOINT = {
    "id": EVIL, "trial_id": EVIL, "batches": 3, "metric": None, "size_bytes": 4_000, "saved_us": 1, "location": EVIL,
}  # fmt: skip


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert not tags.open
    assert tags.seen <= {
        "div",
        "b",
        "i",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "figure",
        "figcaption",
        "svg",
        "title",
        "polyline",
    }
    assert not [name for name in tags.attributes if name.startswith("on") or name in ("href", "src")]
    assert "\x1b" not in html
    return tags


@pytest.mark.parametrize(
    "thing",
    [
        Experiment(DOOR, EXPERIMENT), Experiment(DOOR, {"id": 3}), Trial(DOOR, TRIAL), Checkpoint(DOOR, CHECKPOINT),
        of_rows([TRIAL]), Table({EVIL: [EVIL], "b": [1]}), Table({"batches": [1, 2], EVIL: [0.5, 1.5]}),
    ],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_nothing_that_a_user_chose_is_markup(thing: Any) -> None:
    tags = read(thing._repr_html_())
    if "submitted" not in tags.text or "Experiment 3<" not in tags.text:
        assert tags.text
    if thing is not None and "script" in str(getattr(thing, "data", "")):
        assert "<script>alert(1)</script>" in tags.text, "it is shown as it is"


def test_an_experiment_of_which_little_is_known() -> None:
    tags = read(Experiment(DOOR, {"id": 3})._repr_html_())
    assert tags.text == "Experiment 3statesubmitted"


def test_a_large_table_is_cut_and_its_curves_are_thin() -> None:
    rows = 200_000
    metrics = {f"m{number}": numpy.linspace(0, 1, rows) for number in range(300)}
    table = Table({"trial": numpy.arange(rows) % 50, "batches": numpy.arange(rows), "time_us": numpy.arange(rows)} | metrics)
    html = table._repr_html_()
    assert len(html) < 300_000
    tags = read(html)
    assert html.count("<svg") == notebook_html.PICTURES_MAX
    assert html.count("<polyline") == notebook_html.PICTURES_MAX * notebook_html.CURVES_MAX
    assert html.count("<tr>") == 1 + notebook_html.ROWS_HEAD + 1 + notebook_html.ROWS_TAIL
    assert "200,000 rows, 303 columns, 283 of them not shown" in tags.text


def test_long_texts_and_many_facts_are_cut() -> None:
    html = notebook_html.facts("t", [(f"name {number}", "x" * 10_000) for number in range(1_000)])
    assert len(html) < 60 * 500
    assert "and 940 more" in html


@pytest.mark.parametrize("values", [[math.nan, math.inf, -math.inf], ["a", "b", "c"], [None, None, None], [1e308, -1e308, 0.0]])
def test_a_column_that_makes_no_curve_is_no_error(values: list[Any]) -> None:
    read(Table({"batches": [1, 2, 3], "m": values})._repr_html_())
    read(Table({"batches": [1, 1, 1], "m": values})._repr_html_())


def test_an_empty_table() -> None:
    assert "0 rows" in read(Table({"batches": [], "loss": []})._repr_html_()).text
    assert "0 rows" in read(Table({})._repr_html_()).text
