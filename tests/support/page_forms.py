"""Forms of the web page that make experiments and change them, in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.live_cluster import LiveCluster
from tests.support.page_searches import MODEL, configured
from tests.support.page_visits import check_accessible

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

DROP = """files => {
  const data = new DataTransfer()
  for (const [name, text] of Object.entries(files)) data.items.add(new File([text], name))
  return data
}"""
"""What a mouse brings along that drops these files."""


def write(page: Page, editor: Locator, line: str, ends: str, removed: int = 1) -> None:
    """Puts `ends` in place of the last characters of a line that the editor shows."""
    editor.locator(".cm-line").filter(has_text=line).click()
    page.keyboard.press("End")
    for _ in range(removed):
        page.keyboard.press("Backspace")
    page.keyboard.insert_text(ends)


def submit(page: Page, cluster: LiveCluster, directory: Path) -> int:
    """A new experiment by the form: its errors at their lines before anything is sent, then its files as the command line would
    have sent them. The id."""
    from playwright.sync_api import expect

    model = directory / "model"
    shutil.copytree(MODEL, model, ignore=shutil.ignore_patterns("__pycache__"))
    config = configured("single", {})
    (model / "config.yaml").write_text(yaml.safe_dump(config | {"name": "by the form", "max_restarts": -1}))
    (model / ".tenutoignore").write_text("*.bin\n")
    for left_out in ("data.bin", ".git/config", "nets/__pycache__/x.pyc", "nets/a/big.bin"):
        (model / left_out).parent.mkdir(parents=True, exist_ok=True)
        (model / left_out).write_text("no code")
    (model / "nets/a/net.py").write_text("width = 3\n")

    page.get_by_role("link", name="New experiment").click()
    files = page.get_by_role("region", name="Model directory")
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    page.reload()
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    check_accessible(page)
    dropped: Any = page.evaluate_handle(DROP, {"alone.py": "a = 1", "b.pyc": "no code"})
    files.dispatch_event("drop", {"dataTransfer": dropped})
    expect(files.get_by_role("status")).to_contain_text("1 file, 5 B; 1 left out")
    page.locator("input[webkitdirectory]").set_input_files(model)
    expect(files.get_by_role("status")).to_contain_text("5 files")
    expect(files.get_by_role("status")).to_contain_text("4 left out")
    editor = page.get_by_role("textbox", name="Configuration")
    wrong = page.get_by_role("alert").filter(has_text="max_restarts")
    expect(wrong).to_contain_text("Line")
    check_accessible(page)
    write(page, editor, "max_restarts: ", "0", len("-1"))
    expect(page.get_by_text("The configuration is valid.")).to_be_visible()
    page.get_by_label("Workspace").first.click()
    page.get_by_role("option", name="default").click()
    expect(editor).to_contain_text("workspace: default")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", name="by the form")).to_be_visible()
    experiment = int(page.url.partition("/experiments/")[2].partition("?")[0])
    sent = {item["path"] for item in cluster.client().get(f"/experiments/{experiment}/files")["files"]}
    by_command = cluster.client().create_experiment(config, model)
    packed = {item["path"] for item in cluster.client().get(f"/experiments/{by_command.id}/files")["files"]}
    assert sent == packed
    assert "nets/a/net.py" in sent
    expect(page.get_by_text("completed", exact=True).first).to_be_visible()
    return experiment


def go_on(page: Page, cluster: LiveCluster, experiment: int) -> None:
    """An ended experiment is continued to twice its length, from where it was."""
    from playwright.sync_api import expect

    page.get_by_role("button", name="More actions").click()
    page.get_by_role("menuitem", name="Continue").click()
    editor = page.get_by_role("textbox", name="Configuration to be edited")
    write(page, editor, "batches: 4", "8")
    page.get_by_role("dialog").get_by_role("button", name="Continue").click()
    expect(page).not_to_have_url(f"/experiments/{experiment}")
    expect(page.get_by_text("continuation of", exact=True)).to_be_visible()
    expect(page.get_by_text("completed", exact=True).first).to_be_visible()
    continued = page.url.partition("/experiments/")[2].partition("?")[0]
    assert continued != str(experiment)
    found = cluster.json("exp", "describe", continued)
    assert (found["parent_id"], found["config"]["searcher"]["max_length"]["batches"]) == (str(experiment), 8)


def change_and_kill(page: Page, cluster: LiveCluster, experiment: int) -> None:
    """The priority of one that runs, then its end without a checkpoint."""
    from playwright.sync_api import expect

    page.goto(f"/experiments/{experiment}")
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("menuitem", name="Priority").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Priority").fill("7")
    form.get_by_role("button", name="Change", exact=True).click()
    expect(form).to_be_hidden()
    assert cluster.json("exp", "describe", str(experiment))["priority"] == 7
    page.get_by_role("button", name="Kill", exact=True).click()
    assert cluster.json("exp", "describe", str(experiment))["state"] == "active"  # it is asked twice
    page.get_by_role("button", name="Really kill?").click()
    expect(page.get_by_text("canceled", exact=True).first).to_be_visible()
    assert cluster.json("exp", "describe", str(experiment))["state"] == "canceled"


def zoom(page: Page, picture: Locator) -> None:
    """A part of the curves by the mouse, kept by the address; all of them again by a double click."""
    from playwright.sync_api import expect

    expect(picture).to_be_visible()
    drawn = picture.locator(".u-over")
    drawn.scroll_into_view_if_needed()
    box = drawn.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.3, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=4)
    page.mouse.up()
    reset = page.get_by_role("button", name="Reset zoom")
    expect(reset).to_be_visible()
    assert "zoom=" in page.url
    page.reload()
    expect(reset).to_be_visible()
    picture.locator(".u-over").dblclick()
    expect(reset).to_have_count(0)
    assert "zoom=" not in page.url


def look_closer(page: Page, experiment: int) -> None:
    """An address with a part of the curves shows it: what is drawn at the left edge is another length."""
    from playwright.sync_api import expect

    for part, first in (("", "2"), ("?zoom=[7,9,null,null]", "8")):
        page.goto(f"/experiments/{experiment}{part}")
        picture = page.get_by_role("img", name="Curves of loss by batches")
        expect(picture).to_be_visible()
        picture.locator(".u-over").hover(position={"x": 3, "y": 100})
        expect(picture.locator(".u-legend .u-series").first.locator(".u-value")).to_have_text(first)
    zoom(page, picture)
