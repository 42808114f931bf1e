"""Files that the page makes of its tables and pictures."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.live_cluster import LiveCluster

if TYPE_CHECKING:
    from playwright.sync_api import Page


def take_along(page: Page, cluster: LiveCluster, experiment: int) -> None:
    """Tables and pictures as files, with all digits."""

    from playwright.sync_api import expect

    def saved(button: str) -> Path:
        with page.expect_download() as found:
            page.get_by_role("button", name=button).first.click()
        assert found.value.suggested_filename.endswith((".csv", ".png", ".txt"))
        return Path(found.value.path())

    trials = cluster.client().get(f"/experiments/{experiment}/trials")
    page.goto(f"/experiments/{experiment}?tab=trials")
    with saved("Save experiment").open(newline="") as file:
        rows = list(csv.DictReader(file))
    values = [(row["id"], float(row["best_metric"]), float(row["hyperparameters.learning_rate"])) for row in rows]
    assert sorted(values) == [(item["id"], item["best_metric"], item["hyperparameters"]["learning_rate"]) for item in trials]
    page.goto(f"/experiments/{experiment}?tab=curves&smooth=0.6")
    picture = page.get_by_role("img", name="Curves of loss by batches").locator(".u-over")
    picture.hover()
    expect(picture.locator(".tenuto-curve-values")).to_contain_text(f"{experiment}-1")
    with saved("Save the points of loss").open(newline="") as file:
        points = list(csv.DictReader(file))
    reported = cluster.client().get(f"/experiments/{experiment}/validations")
    assert len([value for row in points for name, value in row.items() if name != "batches" and value]) == len(reported)
    page.goto(f"/trials/{experiment}-1?tab=logs")
    lines = cluster.client().get(f"/trials/{experiment}-1/logs")
    texts = saved("Save log").read_text().splitlines()
    assert [text.split(" ", 1)[1] for text in texts] == [f"{experiment}-1 r0 {line['stream']} {line['text']}" for line in lines]
    page.goto(f"/experiments/{experiment}?tab=curves&smooth=0.6")
    assert saved("Save the picture of loss").read_bytes().startswith(b"\x89PNG")
