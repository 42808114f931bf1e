"""The table of who may say and hear what on the bus: agents share no subject, whatever they are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.bus_permissions import SERVICES, accounts, agent_permissions, agent_user, service_permissions
from tenuto.kernel.bus_users import BadAgentName, BusUsers
from tenuto.schemas import subjects
from tenuto.schemas.reports import LogMatchReport
from tenuto.workers.agent.rpc import _new_report

NAMES = st.text(st.sampled_from("ab.*>-% /:_é"), min_size=1, max_size=6)


def _allowed(permissions: dict[str, Any], side: str) -> list[str]:
    allowed: list[str] = permissions[side]["allow"]
    return allowed


def _matches(pattern: str, subject: str) -> bool:
    """As NATS does."""
    wanted, found = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(found) > index
        if index >= len(found) or token not in ("*", found[index]):
            return False
    return len(wanted) == len(found)


def _subjects_of(agent_id: str) -> list[str]:
    lanes = [
        kind(lane, agent_id) for kind in (subjects.ingress, subjects.position, subjects.committed) for lane in subjects.LANES
    ]
    own = [subjects.heartbeat(agent_id), subjects.assign(agent_id), subjects.context(agent_id)]
    return [*lanes, *own, f"{subjects.inbox(agent_user(agent_id))}.x"]


@given(one=NAMES, other=NAMES)
def test_no_agent_has_a_subject_of_another(one: str, other: str) -> None:
    own = agent_permissions(one)
    for side in ("publish", "subscribe"):
        for subject in _subjects_of(other):
            assert one == other or not any(_matches(pattern, subject) for pattern in _allowed(own, side)), subject
    assert subjects.agent_of(subjects.ingress("tracker", one)) == one


@given(agent=NAMES)
def test_what_an_agent_may_say_and_hear_is_its_own(agent: str) -> None:
    own = [*_subjects_of(agent), "_R_.1.2"]  # an answer, at the server's own subject
    for side in ("publish", "subscribe"):
        for pattern in _allowed(agent_permissions(agent), side):
            assert any(_matches(pattern, subject) for subject in own), pattern
            assert not pattern.startswith(("$", "tenuto.log"))


@pytest.mark.parametrize("name", SERVICES)
def test_only_the_relay_writes_to_the_logs_stream(name: str) -> None:
    may = _allowed(service_permissions(name), "publish")
    writes = (
        "tenuto.log.trial.1-1",
        f"$JS.API.STREAM.DELETE.{subjects.LOG_STREAM}",
        f"$JS.API.STREAM.PURGE.{subjects.LOG_STREAM}",
    )
    for subject in writes:
        assert any(_matches(pattern, subject) for pattern in may) == (name == "relay"), subject
    assert not any(_matches(pattern, subjects.ingress("tracker", "a")) for pattern in may)


def test_users_are_kept_and_renewed_and_removed(tmp_path: Path) -> None:
    users = BusUsers(tmp_path / "users")
    services = users.services()
    assert set(services) == set(SERVICES)
    assert users.services() == services
    first = users.add_agents(["a", "b.c"])
    assert users.add_agents(["a"])["a"] == first["a"]
    assert users.add_agents(["a"], renew=True)["a"] != first["a"]
    assert users.remove_agent("b.c")
    assert not users.remove_agent("b.c")
    assert users.agents() == ["a"]
    text = users.configuration.read_text()
    written = json.loads(text[text.index("{") :])
    assert written == accounts(services, {"a": users.add_agents(["a"])["a"]}, keeper=users.keeper())
    files = [path for path in (tmp_path / "users").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


@pytest.mark.parametrize("name", ["", "*", "a b", ">", ".", "x" * 129, 'a"', "a\n"])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadAgentName):
        BusUsers(tmp_path).add_agents([name])


def test_a_worker_cannot_report_what_its_agent_reads() -> None:
    """Else any trial could keep any agent from getting work."""
    report = LogMatchReport(
        trial_id="1-1", allocation_id="1-1-1", agent_id="other", pattern="x", action="exclude_agent", line="x"
    )
    assert _new_report("1-1-1", "tracker", report.to_json(), "") == "what a log policy matched is reported by the agent itself"
