"""What tests of the web page begin with: marks, a browser for a module, and users with passwords."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support import browser as browsers
from tests.support.page_visits import GIVEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.live_cluster import LiveCluster

MARKS = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.real_part(browsers.lack()),
    pytest.mark.real_part(browsers.lack_of_page(), installable=False),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.browsing() as found:
        yield found


def give_password(cluster: LiveCluster, name: str, *, admin: bool = False) -> None:
    """Makes a user who signs in with GIVEN, which is to be changed then."""
    cluster.client().post("/users", {"name": name, "admin": admin})
    cluster.client().put(f"/users/{name}/password", {"password": GIVEN})
