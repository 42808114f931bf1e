"""Earlier moments on the web page, beside what the command line says of the same position of the log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.pool import AllocationGranted
from tests.support.live_cluster import LiveCluster
from tests.support.page_visits import check_accessible

if TYPE_CHECKING:
    from playwright.sync_api import Page

PREEMPTED = ("running", "starting")
"""What the table of trials calls one whose workers were told to leave."""


def look_back(page: Page, cluster: LiveCluster, experiment: int, decisions: list[Event]) -> None:
    """State, trials, rungs and curves in the middle of the search, as `tenuto exp replay --at` tells them; then played on."""
    from playwright.sync_api import expect

    at = decisions[len(decisions) // 2].position
    told = cluster.json("exp", "replay", str(experiment), "--at", str(at))
    trials = told["trials"].values()
    page.goto(f"/experiments/{experiment}?tab=trials")
    slider = page.get_by_role("slider", name="Moment of the log")
    page.get_by_role("button", name="Look at earlier moments").click()
    slider.focus()
    page.keyboard.press("Home")
    expect(page.get_by_text("No trial has been asked for yet.")).to_be_visible()
    page.goto(f"/experiments/{experiment}?tab=trials&at={at}")
    expect(page.get_by_text(f"at position {at} of the log")).to_be_visible()
    expect(page.get_by_text(told["state"], exact=True).first).to_be_visible()
    expect(page.get_by_role("button", name="Fork")).to_have_count(0)  # nothing is changed there
    rows = page.get_by_role("region", name="Trials").get_by_role("row")
    expect(rows).to_have_count(1 + len(trials))
    ended = 0
    for trial in trials:
        row = rows.filter(has=page.get_by_role("link", name=str(trial["number"]), exact=True))
        number, state, best, latest, length, *_ = row.get_by_role("cell").all_inner_texts()
        assert (int(number), length) == (trial["number"], f"{trial['length']} of {trial['target']}")
        for shown, told_of in ((best, trial["best"]), (latest, trial["latest"])):
            assert shown == "–" if told_of is None else float(shown) == pytest.approx(told_of, rel=1e-4)
        assert state.lower() in _states(trial), (state, trial)
        expect(row).to_contain_text(trial["reason"])
        ended += state.lower() == str(trial["outcome"]).replace("_", " ")
    expect(page.get_by_text(f"{ended} of 4 trials ended")).to_be_visible()
    best_trial = page.get_by_role("link", name=f"trial {told['best_trial_id']}", exact=True)
    expect(best_trial).to_have_count(1)
    check_accessible(page)

    page.get_by_role("tab", name="Rungs").click()
    waits = [trial for trial in trials if trial["state"] == "paused"]
    picture = page.get_by_role("group", name="Rungs of the search")
    expect(picture.get_by_role("button", name="waits")).to_have_count(len(waits))
    if waits:
        picture.get_by_role("button", name="waits").first.focus()
        page.keyboard.press("Enter")
        reasons = re.compile("|".join(re.escape(trial["reason"]) for trial in waits))
        expect(page.get_by_role("status").filter(has_text="Trial")).to_contain_text(reasons)

    page.goto(f"/experiments/{experiment}?at={at}")
    validated = [trial for trial in trials if trial["latest"] is not None]
    drawn = f"{len(trials)} trials" if len(validated) == len(trials) else f"{len(validated)} of {len(trials)} trials are drawn"
    expect(page.get_by_text(f"{drawn}; click a curve to name it")).to_be_visible()
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_text("now", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Fork")).to_be_visible()
    assert "at=" not in page.url


def _states(trial: dict[str, Any]) -> tuple[str, ...]:
    """What the table may call the state that the command line tells: it also says that workers are still leaving."""
    if trial["outcome"] is not None:
        return (trial["outcome"].replace("_", " "), "stopping")
    return PREEMPTED if trial["state"] == "preempting" else (trial["state"],)


def look_at_the_past(page: Page, cluster: LiveCluster, experiment: int) -> None:
    """The queue and the cluster when the first trial was granted slots, as `tenuto job ls --at` tells them."""
    from playwright.sync_api import expect

    granted = next(
        event
        for event in cluster.events()
        if isinstance(event.data, AllocationGranted) and event.data.experiment_id == experiment
    )
    page.get_by_role("slider", name="Moment of the log").focus()
    page.keyboard.press("Home")
    expect(page).to_have_url(re.compile(r"/queue\?.*at=\d+"))
    page.goto(f"/queue?at={granted.position}")
    expect(page.get_by_text(f"at position {granted.position} of the log")).to_be_visible()
    told = cluster.json("job", "ls", "--at", str(granted.position))["pools"][0]["rows"]
    [place] = [place for place, row in enumerate(told) if row["experiment_id"] == experiment]
    assert told[place]["slots"] == 1
    rows = page.get_by_role("table", name="Queue of pool default").get_by_role("row")
    expect(rows).to_have_count(1 + len(told))
    expect(rows.nth(1 + place)).to_contain_text(told[place]["text"])
    expect(page.get_by_role("button", name="Move experiment")).to_have_count(0)
    page.goto(f"/cluster?at={granted.position}")
    agent = page.get_by_role("region", name=re.compile("^Agent .*, then$"))
    expect(agent.get_by_role("link", name=f"trial {experiment}-1")).to_be_visible()
