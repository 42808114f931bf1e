"""The web page in a real browser, on a real cluster: signing in, a search that is seen live, why its trials went on or stopped,
any earlier moment of it, and what somebody else may not do."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenuto.client.messages import items
from tenuto.schemas.envelope import decode_event
from tenuto.schemas.events.pool import AllocationGranted
from tests.e2e.test_search_control import ENDED, Search
from tests.support import browser as browsers
from tests.support import page_world
from tests.support.live_cluster import LiveCluster
from tests.support.page_files import take_along
from tests.support.page_forms import change_and_kill, go_on, look_closer, submit, zoom
from tests.support.page_moments import look_at_the_past, look_back
from tests.support.page_searches import look_at_lineage, look_at_rungs, look_at_what_if, search_all
from tests.support.page_visits import check_accessible, check_recolored, enter, follow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = page_world.MARKS
browser = page_world.browser
ASHA = {"name": "asha", "max_trials": 4, "max_concurrent_trials": 2, "divisor": 2, "max_rungs": 3}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("page") / "cluster") as cluster:
        for name, admin in (("ada", True), ("bob", False), ("cleo", True), ("dan", False), ("eve", False), ("fay", True)):
            page_world.give_password(cluster, name, admin=admin)
        yield cluster


@pytest.fixture(autouse=True)
def nothing_left(cluster: LiveCluster) -> Iterator[None]:
    """Each test has all slots: what one of them leaves, or a failed one could not end, does not run in the next."""
    yield
    for experiment in running(cluster):
        cluster.cli("exp", "kill", str(experiment))
    cluster.wait_for(lambda: not running(cluster))


def running(cluster: LiveCluster) -> list[int]:
    return [one["id"] for one in items(cluster.client().get("/experiments")) if one["state"] not in ENDED]


def test_a_search_is_seen_live_and_at_any_moment(cluster: LiveCluster, browser: Browser, tmp_path: Path) -> None:
    """Long, because it is one story on one cluster: each step begins where the last one ended."""
    from playwright.sync_api import expect

    search = Search(cluster, tmp_path, ASHA, name="seen live")
    url = cluster.client().target.url
    with browsers.visiting(browser, url) as page:
        page.goto("/")
        enter(page, "ada")
        page.get_by_role("link", name="seen live").click()
        expect(page.get_by_role("heading", name="seen live")).to_be_visible()
        expect(page.get_by_text("● live")).to_be_visible()

        search.wait_held(2)
        expect(page.get_by_role("img", name="Curves of loss by batches")).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("paused", exact=True)).to_be_visible()
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_text("active", exact=True)).to_be_visible()

        os.kill(cluster.pid("gateway"), signal.SIGKILL)  # under the open page, which goes on by itself
        expect(page.get_by_text("○ offline, trying again")).to_be_visible()
        expect(page.get_by_text("● live")).to_be_visible()
        search.go()
        search.wait_end()  # the first word "completed" on the page may be that of a trial
        expect(page.get_by_text("completed", exact=True).first).to_be_visible()

        page.get_by_role("tab", name="Rungs").click()
        completed = page.get_by_role("button", name="completed").first
        completed.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_text("Trained to the full length of 8 batches")).to_be_visible()
        first, *sentences = page.get_by_role("status").filter(has_text="Trial").inner_text().split("\n")
        told = " ".join(cluster.cli("exp", "why", first.split()[1]).stdout.split())
        assert sentences
        assert all(sentence in told for sentence in filter(None, sentences)), (sentences, told)

        page.reload()  # the address holds the tab and the trial
        expect(page.get_by_text("Trained to the full length of 8 batches")).to_be_visible()
        whole = page.get_by_role("group", name="Rungs of the search").get_by_role("button").count()
        check_recolored(page, page.get_by_role("group", name="Rungs of the search"))
        decisions = [event for event in search.events() if event.type in ("TrialPaused", "TrialExtended", "TrialStopped")]
        page.goto(f"/experiments/{search.id}?tab=rungs&at={decisions[0].position}")
        expect(page.get_by_role("group", name="Rungs of the search").get_by_role("button")).to_have_count(1)
        assert whole > 1
        check_accessible(page)
        page.get_by_role("button", name="Play").click()
        expect(page.get_by_text("now", exact=True)).to_be_visible()
        expect(page.get_by_role("group", name="Rungs of the search").get_by_role("button")).to_have_count(whole)

        look_back(page, cluster, search.id, decisions)
        look_closer(page, search.id)
        look_at_trial(page, cluster, search)
        take_along(page, cluster, search.id)
        look_at_hyperparameters(page, search)
        look_at_code_and_compare(page, search)
        fork(page, cluster, search)
        choose_in_the_list(page, search)

        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in to Tenuto")).to_be_visible()


def look_at_trial(page: Page, cluster: LiveCluster, search: Search) -> None:
    """From the table to one trial: its curves, its runs as the record has them, its checkpoints, its log."""
    from playwright.sync_api import expect

    best = cluster.json("exp", "describe", str(search.id))["best_trial_id"]
    page.goto(f"/experiments/{search.id}?tab=trials")
    page.get_by_role("region", name="Trials").get_by_role("link", name=best.split("-")[1], exact=True).click()
    expect(page.get_by_role("heading", name=f"Trial {best}")).to_be_visible()
    zoom(page, page.get_by_role("img", name="loss by batches"))
    check_accessible(page)
    page.get_by_role("tab", name="Runs").click()
    runs = [event for event in search.all(AllocationGranted) if event.trial_id == best]
    expect(page.get_by_role("group", name="Runs of the trial in time").get_by_role("button")).to_have_count(len(runs))
    check_accessible(page)
    expect(page.get_by_role("cell", name="granted", exact=True)).to_have_count(len(runs))
    page.get_by_role("tab", name="Checkpoints").click()
    page.get_by_role("table", name="Checkpoints").get_by_role("button").first.click()
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("files are as they were recorded")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename.endswith(".tar")
    page.get_by_role("tab", name="Record").click()
    expect(page.get_by_role("table", name="Starts").get_by_role("row")).to_have_count(len(runs) + 1)
    page.get_by_role("tab", name="Log").click()
    expect(page.get_by_role("region", name="Log")).to_be_visible()
    page.get_by_label("Search the log").fill("no line has this")
    expect(page.get_by_text("No line fits.")).to_be_visible()
    assert "text=no" in page.url


def look_at_hyperparameters(page: Page, search: Search) -> None:
    """Choosing by the keyboard, kept by the address; the importance of the one hyperparameter that differs."""
    from playwright.sync_api import expect

    page.goto(f"/experiments/{search.id}?tab=hyperparameters")
    expect(page.get_by_role("img", name="Parallel coordinates of 4 trials over learning_rate, loss")).to_be_visible()
    expect(page.get_by_text("4 of 4 trials")).to_be_visible()
    check_accessible(page)
    page.get_by_role("slider", name="Choose by learning_rate").press("ArrowUp")
    expect(page.get_by_text("4 of 4 trials")).to_be_hidden()
    page.reload()
    expect(page.get_by_text("of 4 trials")).not_to_have_text("4 of 4 trials")
    page.get_by_text("Scatter", exact=True).click()
    expect(page.get_by_role("img", name="4 trials by learning_rate and loss")).to_be_visible()
    page.get_by_text("Importance", exact=True).click()
    expect(page.get_by_role("list", name="Importance of the hyperparameters")).to_contain_text("learning_rate")


def look_at_code_and_compare(page: Page, search: Search) -> None:
    from playwright.sync_api import expect

    page.goto(f"/experiments/{search.id}?tab=code&file=model_def.py")
    code = page.get_by_role("textbox", name="model_def.py")
    expect(code).to_contain_text("class HeldTrial")
    check_accessible(page)
    check_recolored(page, code)
    page.goto(f"/compare?items={search.id}-1,{search.id}-2")
    zoom(page, page.get_by_role("img", name="loss of"))
    expect(page.get_by_role("row", name="learning_rate")).to_have_count(2)  # side by side, and as a difference
    expect(page.get_by_role("table", name="Differences")).to_contain_text("likely")
    check_accessible(page)


def fork(page: Page, cluster: LiveCluster, search: Search) -> None:
    """The configuration edited in the browser: an error at its line, then another experiment."""
    from playwright.sync_api import expect

    page.goto(f"/experiments/{search.id}")
    page.get_by_role("button", name="Fork").click()
    editor = page.get_by_role("textbox", name="Configuration to be edited")
    expect(editor).to_contain_text("max_trials: 4")
    line = editor.locator(".cm-line").filter(has_text="max_trials: ")
    for digit in "02":
        line.click()
        for key in ("End", "Backspace", digit):
            page.keyboard.press(key)
        page.get_by_role("button", name="Submit the fork").click()
        if digit == "0":
            expect(page.get_by_role("alert").filter(has_text="max_trials")).to_contain_text("Line")
    expect(page.get_by_role("heading", name=f"seen live (fork of {search.id})")).to_be_visible()
    forked = page.url.partition("/experiments/")[2].partition("?")[0]
    assert cluster.json("exp", "describe", forked)["config"]["searcher"]["max_trials"] == 2
    page.get_by_role("tab", name="Configuration").click()
    expect(page.get_by_role("table", name="Differences")).to_contain_text("max_trials")
    page.get_by_role("navigation", name="Ancestry").get_by_role("link", name=str(search.id), exact=True).click()
    expect(page.get_by_role("heading", name="seen live", exact=True)).to_be_visible()
    page.get_by_role("tab", name="Configuration").click()
    made = page.get_by_role("navigation", name="Made from this experiment")
    expect(made.get_by_role("link")).to_have_text([f"{forked} seen live (fork of {search.id})"])


def choose_in_the_list(page: Page, search: Search) -> None:
    """Both experiments are chosen to be compared; the one that has ended is archived."""
    from playwright.sync_api import expect

    page.goto("/")
    expect(page.get_by_role("img", name="loss of the best trial of seen live", exact=True)).to_be_visible()
    check_accessible(page)
    page.get_by_label(f"Choose experiment {search.id}", exact=True).check()
    actions = page.get_by_role("group", name="Actions on the chosen experiments")
    expect(actions.get_by_role("button", name="Archive 1")).to_be_visible()
    page.get_by_label("Choose experiment").first.check()
    expect(actions.get_by_text("2 chosen")).to_be_visible()
    expect(actions.get_by_role("link", name="Compare 2")).to_be_visible()
    page.get_by_label("Choose experiment").first.uncheck()
    actions.get_by_role("button", name="Archive 1").click()
    expect(page.get_by_label(f"Choose experiment {search.id}", exact=True)).to_be_hidden()


def test_the_cluster_its_queue_and_its_log(cluster: LiveCluster, browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    random = {"name": "random", "max_trials": 3, "max_concurrent_trials": 3}
    first, second = Search(cluster, tmp_path, random), Search(cluster, tmp_path, random)
    first.wait_held(2)
    url = cluster.client().target.url
    with browsers.visiting(browser, url) as page:
        page.goto("/cluster")
        enter(page, "cleo")
        expect(page.get_by_role("img", name="Slots by time: 2 slots")).to_be_visible()
        agent = page.get_by_role("region", name="Agent ")
        expect(agent.get_by_role("link", name=f"trial {first.id}-1")).to_be_visible()
        check_accessible(page)
        agent.get_by_role("button", name="Drain").click()
        expect(agent.get_by_text("(disabled)")).to_have_count(2)
        agent.get_by_role("button", name="Enable").click()
        expect(agent.get_by_text("(disabled)")).to_have_count(0)

        page.get_by_role("link", name="Queue").click()
        rows = page.get_by_role("table", name="Queue of pool default").get_by_role("row")
        handle = page.get_by_role("button", name=f"Move experiment {second.id}:")
        expect(rows.nth(2)).to_contain_text("needs 1 slot")
        check_accessible(page)
        handle.focus()
        page.keyboard.press("ArrowUp")
        expect(rows.nth(1).get_by_role("link")).to_have_text(str(second.id))
        handle.drag_to(rows.nth(2), target_position={"x": 200, "y": 34})
        expect(rows.nth(2).get_by_role("link")).to_have_text(str(second.id))
        look_at_the_past(page, cluster, first.id)

        page.goto(f"/events?type=TrialRequested&experiment={first.id}")
        page.get_by_role("region", name="Events, the newest first").get_by_role("button").first.click()
        detail = page.get_by_role("region", name=re.compile(r"^Event \d"))
        expect(detail.get_by_role("heading", name="TrialRequested")).to_be_visible()
        check_accessible(page)
        detail.get_by_role("button", name="ExperimentSubmitted").click()  # its cause
        expect(detail.get_by_role("button", name="TrialRequested")).to_have_count(3)  # what followed
    with browsers.visiting(browser, url) as page:
        page.goto("/cluster")
        enter(page, "dan")
        page.get_by_role("button", name="Disable").click()
        expect(page.get_by_role("alert")).to_contain_text("Only an admin may change this")


def test_what_is_not_ones_own_is_refused_in_a_sentence(cluster: LiveCluster, browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    search = Search(cluster, tmp_path, {"name": "single"})
    with browsers.visiting(browser, cluster.client().target.url) as page:
        page.goto(f"/experiments/{search.id}")
        page.get_by_label("User").fill("bob")
        check_accessible(page)
        page.locator("input[autocomplete=current-password]").fill("not his password")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("The name or the password is wrong.")
        enter(page, "bob")
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Really cancel?").click()
        expect(page.get_by_role("alert")).to_contain_text(f"Experiment {search.id}")
        assert cluster.json("exp", "describe", str(search.id))["state"] == "active"
        cookies = page.context.cookies()
        assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
        assert page.evaluate("Object.keys(localStorage).filter(name => /token|session/i.test(name))") == []


def test_an_experiment_is_made_changed_and_ended_by_forms(cluster: LiveCluster, browser: Browser, tmp_path: Path) -> None:
    held = Search(cluster, tmp_path, {"name": "single"})
    with browsers.visiting(browser, cluster.client().target.url) as page:
        page.goto("/")
        enter(page, "fay")
        experiment = submit(page, cluster, tmp_path)
        go_on(page, cluster, experiment)
        change_and_kill(page, cluster, held.id)


def test_a_search_of_each_method_is_shown_whole(cluster: LiveCluster, browser: Browser) -> None:
    from playwright.sync_api import expect

    client = cluster.client()
    ids = search_all(cluster)
    with browsers.visiting(browser, client.target.url) as page:
        page.goto("/")
        enter(page, "eve")
        expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
        for name, experiment in ids.items():
            follow(page, f"/experiments/{experiment}?tab=rungs")
            expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
            events = [decode_event(body) for body in client.event_bodies(experiment=experiment)]
            look_at_lineage(page, events) if name == "pbt" else look_at_rungs(page, events)
            trials = items(client.get(f"/experiments/{experiment}/trials"))
            page.get_by_role("tab", name="Trials").click()
            rows = page.get_by_role("region", name="Trials").get_by_role("row")
            expect(rows).to_have_count(1 + len(trials))
            for trial in trials:
                row = rows.filter(has=page.get_by_role("link", name=str(trial["number"]), exact=True))
                expect(row).to_contain_text(trial["state"].replace("_", " "))
                expect(row).to_contain_text(trial["reason"])
                expect(row).not_to_contain_text("–")  # each has a best and a latest metric
            page.get_by_role("tab", name="Curves").click()
            expect(page.get_by_role("img", name="Curves of loss by")).to_be_visible()
            assert page.get_by_role("alert").count() == 0, name
        look_at_what_if(page, cluster)
