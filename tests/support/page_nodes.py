"""The page of nodes in a browser, on a pool whose one node runs a trial."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.support import browser as browsers
from tests.support.page_visits import check_accessible, enter
from tests.support.page_world import give_password

if TYPE_CHECKING:
    from tests.support.live_cluster import LiveCluster

PICTURE = os.environ.get("TENUTO_TEST_PICTURE", "")
"""File for a picture of the page, for whoever changes it."""


def lack() -> str:
    return browsers.lack() or browsers.lack_of_page()


def look_at_nodes(cluster: LiveCluster, pool: str, node: str, waiting: int) -> None:
    """Experiment `waiting` waits, as the pool's limits hold its nodes back. It is killed, and the node given back by an admin."""
    from playwright.sync_api import expect

    url = cluster.client().target.url
    for name, admin in (("ada", True), ("dan", False)):
        give_password(cluster, name, admin=admin)
    with browsers.browsing() as browser:
        with browsers.visiting(browser, url) as page:
            page.goto("/nodes")
            enter(page, "dan")
            table = page.get_by_role("table", name=f"Nodes of pool {pool}")
            expect(table.get_by_role("link", name=node)).to_be_visible()
            expect(page.get_by_role("button", name=f"Give back node {node}")).to_be_hidden()
            page.goto(f"/nodes?logs={node}")
            expect(table.get_by_role("link", name=node)).to_be_visible()
            expect(page.get_by_role("dialog")).to_be_hidden()
        with browsers.visiting(browser, url) as page:
            page.goto("/cluster")
            enter(page, "ada")
            page.get_by_role("link", name="1 node by ssh").click()
            expect(page.get_by_role("heading", name=f"Nodes of {pool}")).to_be_visible()
            region = page.get_by_role("region", name=f"Pool {pool}")
            expect(region.get_by_text("1 of at most 1 node")).to_be_visible()
            expect(region.get_by_text("joined", exact=True)).to_be_visible()
            expect(region.get_by_text("1 × 1 slot", exact=False)).to_be_visible()
            expect(region.get_by_text("the pool's limits leave no room for more nodes now", exact=False)).to_be_visible()
            expect(region.get_by_text("A gang of experiment 1 lacks 1 slot", exact=False)).to_be_visible()
            check_accessible(page)
            if PICTURE:
                page.screenshot(path=PICTURE, full_page=True)
            page.get_by_role("button", name=f"Log of node {node}").click()
            expect(page.get_by_role("region", name=f"Lines of node {node}")).to_contain_text("agent is ready")
            check_accessible(page)
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_be_hidden()
            cluster.cli("exp", "kill", str(waiting))
            expect(region.get_by_text("Waiting for nodes")).to_be_hidden()  # as it happens
            page.get_by_role("button", name=f"Give back node {node}").focus()
            page.keyboard.press("Enter")
            check_accessible(page)
            page.get_by_role("dialog").get_by_role("button", name="Give it back").click()
            expect(region.get_by_text("released", exact=True)).to_be_visible()  # what runs there ends first
            expect(page.get_by_role("button", name=f"Give back node {node}")).to_be_hidden()
