"""The web page in a real browser, on a real cluster: signing in, a search that is seen live, why its trials went on or stopped,
any earlier moment of it, and what somebody else may not do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_search_control import Search
from tests.support import browser as browsers
from tests.support.live_cluster import LiveCluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LACK = browsers.missing()
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.skipif(bool(LACK), reason=LACK)]
GIVEN, OWN = "first-otters-juggle-lamps", "quiet walrus eats 3 plums"
ASHA = {"name": "asha", "max_trials": 4, "max_concurrent_trials": 2, "divisor": 2, "max_rungs": 3}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("page") / "cluster") as cluster:
        for name, admin in (("ada", True), ("bob", False)):
            cluster.client().post("/users", {"name": name, "admin": admin})
            cluster.client().put(f"/users/{name}/password", {"password": GIVEN})
        yield cluster


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.browsing() as found:
        yield found


def enter(page: Page, name: str) -> None:
    """Signs in for the first time: with the password that an admin gave, and an own one in its place."""
    page.get_by_label("User").fill(name)
    page.locator("input[autocomplete=current-password]").fill(GIVEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("New password").fill(f"{OWN} {name}")
    page.get_by_role("button", name="Sign in").click()


def test_a_search_is_seen_live_and_at_any_moment(cluster: LiveCluster, browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    search = Search(cluster, tmp_path, ASHA)
    url = cluster.client().target.url
    with browsers.visiting(browser, url) as page:
        page.goto("/")
        enter(page, "ada")
        page.get_by_role("link", name="held").click()
        expect(page.get_by_role("heading", name="held")).to_be_visible()
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
        whole = page.get_by_role("group", name="Rungs of the search").get_by_role("button").count()

        page.reload()  # the address holds the tab and the trial
        expect(page.get_by_text("Trained to the full length of 8 batches")).to_be_visible()
        decisions = [event for event in cluster.events() if event.type in ("TrialPaused", "TrialExtended", "TrialStopped")]
        page.goto(f"/experiments/{search.id}?tab=rungs&at={decisions[0].position}")
        expect(page.get_by_role("group", name="Rungs of the search").get_by_role("button")).to_have_count(1)
        assert whole > 1
        page.get_by_role("button", name="Play").click()
        expect(page.get_by_text("now", exact=True)).to_be_visible()
        expect(page.get_by_role("group", name="Rungs of the search").get_by_role("button")).to_have_count(whole)

        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in to Tenuto")).to_be_visible()


def test_what_is_not_ones_own_is_refused_in_a_sentence(cluster: LiveCluster, browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    search = Search(cluster, tmp_path, {"name": "single"})
    with browsers.visiting(browser, cluster.client().target.url) as page:
        page.goto(f"/experiments/{search.id}")
        page.get_by_label("User").fill("bob")
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
    cluster.cli("exp", "kill", str(search.id))
