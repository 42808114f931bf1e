"""The web page over hours, in a real browser on a real cluster: many tabs at once, streams that are refused, sessions that end,
files that an update has taken away, and addresses and answers of the wrong kind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_search_control import Search
from tests.support import browser as browsers
from tests.support import page_world
from tests.support.live_cluster import LiveCluster
from tests.support.page_visits import check_accessible, enter

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = page_world.MARKS
browser = page_world.browser
TABS = 8
"""Two more than the connections that a browser opens to one gateway."""
REFUSALS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("tabs") / "cluster", warm=False) as cluster:
        for name in ("gil", "hal", "ida", "jon", "kay", "lou"):
            page_world.give_password(cluster, name)
        yield cluster


@contextmanager
def failing(browser: Browser, cluster: LiveCluster) -> Iterator[Page]:
    """A page that is meant to fail somewhere: what it writes to the console is not judged."""
    context = browser.new_context(base_url=cluster.client().target.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(browsers.SECONDS_MAX * 1000)
    yield context.new_page()
    context.close()


def test_eight_tabs_of_one_browser_load_and_stay_live(cluster: LiveCluster, browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with browsers.visiting(browser, cluster.client().target.url) as first:
        first.goto("/")
        enter(first, "gil")
        expect(first.get_by_text("● live")).to_be_visible()
        tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
        for tab in tabs[1:]:
            tab.goto("/")
            expect(tab.get_by_role("heading", name="Experiments")).to_be_visible()
        for tab in tabs:
            expect(tab.get_by_text("● live")).to_be_visible()
        search = Search(cluster, tmp_path, {"name": "single"}, name=f"seen by all tabs, {'long' * 40}")
        for tab in tabs:
            expect(tab.get_by_role("link", name="seen by all tabs")).to_be_visible()
        fits = "region => region.scrollWidth <= region.clientWidth"
        assert first.get_by_role("region", name="Experiments").evaluate(fits), "a long name pushes columns out of the window"
        first.close()  # the one whose question opened the stream
        cluster.cli("exp", "kill", str(search.id))
        for tab in tabs[1:]:
            row = tab.get_by_role("region", name="Experiments").get_by_role("row").filter(has_text="seen by all tabs")
            expect(row.get_by_text("canceled", exact=True)).to_be_visible()


def test_a_refused_stream_is_live_again_also_without_shared_workers(cluster: LiveCluster, browser: Browser) -> None:
    from playwright.sync_api import expect

    left = REFUSALS

    def refuse(route: Route) -> None:
        nonlocal left
        if left == 0:
            route.continue_()
            return
        left -= 1
        route.fulfill(status=503, content_type="application/json", body=json.dumps({"error": {"code": "unavailable"}}))

    with browsers.visiting(browser, cluster.client().target.url) as page:
        page.add_init_script("delete window.SharedWorker")
        page.route("**/api/v1/events/stream*", refuse)
        page.goto("/")
        enter(page, "hal")
        expect(page.get_by_text("○ not live, trying again")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("It is asked again by itself")
        expect(page.get_by_text("● live")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)


def test_the_end_of_a_session_leads_to_the_form_and_the_next_user_sees_nothing_of_the_first(
    cluster: LiveCluster, browser: Browser
) -> None:
    from playwright.sync_api import expect

    with browsers.visiting(browser, cluster.client().target.url) as page:
        page.route("**/api/v1/login", lambda route: ways(route, provider=True))
        page.goto("/queue")
        enter(page, "ida")
        expect(page.get_by_text("● live")).to_be_visible()
        other = page.context.new_page()
        other.goto("/events")
        expect(other.get_by_role("heading", name="Events")).to_be_visible()
        expect(other.get_by_text("● live")).to_be_visible()

        cluster.client().delete("/users/ida/password")  # ends all her sessions
        for tab in (page, other):
            expect(tab.get_by_role("heading", name="Sign in to Tenuto")).to_be_visible()
            expect(tab.get_by_role("heading", name=re.compile("Queue|Events"))).to_have_count(0)
        button = page.get_by_role("link", name="Sign in at your organisation's provider")
        expect(button).to_have_attribute("href", "/api/v1/sso")
        check_accessible(page)
        enter(page, "jon")
        for tab, heading in ((page, "Queue"), (other, "Events")):
            expect(tab.get_by_role("heading", name=heading)).to_be_visible()
            expect(tab.get_by_role("button", name="Sign out")).to_have_attribute("title", "You are jon")
            expect(tab.get_by_text("● live")).to_be_visible()
        other.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in to Tenuto")).to_be_visible()


def ways(route: Route, *, provider: bool) -> None:
    if route.request.method == "GET":
        route.fulfill(json={"provider": provider})
    else:
        route.continue_()


def test_no_address_answer_or_missing_file_leaves_a_white_page(cluster: LiveCluster, browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    search = Search(cluster, tmp_path, {"name": "single"}, name="never white")
    with browsers.visiting(browser, cluster.client().target.url) as page:
        page.goto("/")
        enter(page, "kay")
        expect(page.get_by_text("● live")).to_be_visible()
        page.goto(f'/experiments/{search.id}?smooth="x"&zoom=7&brush=3&metric={{"a":1}}&tab=[]&at={{}}')
        expect(page.get_by_role("heading", name="never white")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
    with failing(browser, cluster) as page:
        page.goto("/")
        enter(page, "lou")
        expect(page.get_by_text("● live")).to_be_visible()
        page.route(f"**/api/v1/experiments/{search.id}", lambda route: route.fulfill(json={"id": search.id, "name": "half"}))
        page.goto(f"/experiments/{search.id}")
        expect(page.get_by_role("alert")).to_contain_text("This page could not be shown")
        expect(page.get_by_role("link", name="Queue")).to_be_visible()  # what is around it stays
        page.unroute(f"**/api/v1/experiments/{search.id}")
        page.get_by_role("button", name="Try again").click()
        expect(page.get_by_role("heading", name="never white")).to_be_visible()

        page.route("**/assets/QueuePage-*.js", lambda route: route.abort(), times=1)
        page.get_by_role("link", name="Queue").click()
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()  # loaded anew
    cluster.cli("exp", "kill", str(search.id))
