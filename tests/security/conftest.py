"""A real cluster for each file of attackers' scripts, with an administrator and two users on it. A file that needs another
cluster has fixtures of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.security.attacker import Door, door_of, user_of
from tests.support.live_cluster import LiveCluster


@pytest.fixture(scope="module")
def cluster(server_directory: Path, request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    with LiveCluster(server_directory / request.path.stem, cpu_slots=2, warm=False) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: LiveCluster) -> Iterator[Door]:
    with closing(door_of(cluster)) as door:
        yield door


@pytest.fixture(scope="module")
def ada(admin: Door) -> Iterator[Door]:
    with closing(user_of(admin, "ada")) as door:
        yield door


@pytest.fixture(scope="module")
def eve(admin: Door) -> Iterator[Door]:
    with closing(user_of(admin, "eve")) as door:
        yield door
