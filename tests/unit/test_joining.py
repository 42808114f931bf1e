"""Machines that join: what a token says and to whom, and what becomes of the launcher's agents that joined or were revoked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tenuto.kernel.core import Refused
from tenuto.kernel.decision import step
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.joining import AgentEnrolled, AgentRevoked, JoinTokenCreated
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.join_tokens import BadJoinToken, JoinToken
from tenuto.schemas.joining import hash_of
from tenuto.services.gateway.cluster.commands import CreateJoinToken, Enroll, RevokeAgent, RevokeJoinToken
from tenuto.services.gateway.cluster.policies.joining import TOKENS_MAX
from tenuto.services.gateway.core import GatewayCore
from tests.support.launcher_driver import Driver

ID, OTHER_ID = "jt-000000000001", "jt-000000000002"
SECRET, PASSWORD = "s" * 43, "p" * 43
HOUR_US = 3_600_000_000


class World:
    """The gateway's core, and what it recorded."""

    def __init__(self) -> None:
        self.core, self.at_us = GatewayCore(), 0
        self.state = self.core.initial()
        self.seen = 0

    def do(self, kind: Any, **fields: Any) -> list[EventData]:
        self.seen += 1
        command = kind(id=UUID(int=self.seen), time_us=self.at_us, **fields)
        self.state, decided = step(self.core, self.state, command, seen_position=self.seen, time_us=self.at_us)
        self.core.check(self.state)
        assert self.core.load(self.core.dump(self.state)) == self.state
        return [event.data for event in decided]

    def token(self, token_id: str = ID, user: str = "admin", uses: int = 1) -> list[EventData]:
        return self.do(
            CreateJoinToken,
            user=user,
            token_id=token_id,
            secret_hash=hash_of(SECRET),
            pool="gpus",
            expires_us=self.at_us + HOUR_US,
            uses_max=uses,
        )

    def enroll(self, agent: str = "node", password: str = PASSWORD, secret: str = SECRET, **said: Any) -> list[EventData]:
        fields = {"token_id": ID, "taken": False} | said
        return self.do(Enroll, secret_hash=hash_of(secret), agent_id=agent, credential_hash=hash_of(password), **fields)

    def refused(self, *args: Any, **fields: Any) -> str:
        with pytest.raises(Refused) as error:
            self.enroll(*args, **fields)
        return f"{error.value.code}: {error.value}"


def test_a_token_is_read_as_it_was_written_and_names_no_secret() -> None:
    token = JoinToken(url="http://10.0.0.1:8080", fingerprint="ab" * 32, id=ID, secret=SECRET)
    assert JoinToken.read(f" {token.written()}\n") == token
    assert SECRET not in f"{token!r} {token}"
    for wrong in ("", "x", "tenuto-join-", "tenuto-join-!!", token.written()[:-9], token.written() + "x" * 5_000):
        with pytest.raises(BadJoinToken) as error:
            JoinToken.read(wrong)
        assert "tenuto agent token" in str(error.value)
        assert SECRET not in str(error.value)


def test_an_agent_joins_by_a_token_once_and_no_event_has_a_secret() -> None:
    world = World()
    [made] = world.token()
    assert isinstance(made, JoinTokenCreated)
    [enrolled] = world.enroll()
    assert isinstance(enrolled, AgentEnrolled)
    assert (enrolled.agent_id, enrolled.pool, enrolled.token_id) == ("node", "gpus", ID)
    for event in (made, enrolled):
        assert SECRET.encode() not in event.to_json()
        assert PASSWORD.encode() not in event.to_json()
    assert world.state.joining.knows("node", hash_of(PASSWORD))
    assert world.enroll() == [], "an answer that was lost is asked for again, and uses nothing up"
    assert world.state.joining.tokens[ID].uses == 1
    assert "used up" in world.refused("other")


def test_a_token_that_is_wrong_revoked_or_expired_lets_nobody_in() -> None:
    world = World()
    world.token(uses=9)
    for said in ({"secret": "x" * 43}, {"token_id": OTHER_ID}):
        assert world.refused(**said).startswith("unauthorized: ")
    assert world.refused("x", secret="x" * 43) == world.refused("x", token_id=OTHER_ID), "what is wrong is not told to guessers"
    world.enroll("first")
    world.at_us = HOUR_US
    assert world.refused("late").startswith("expired: ")
    assert world.enroll("first") == [], "who joined stays"
    world.token(OTHER_ID, uses=9)
    assert ID not in world.state.joining.tokens, "expired ones are forgotten"
    world.do(RevokeJoinToken, user="admin", token_id=OTHER_ID)
    assert world.refused("x", token_id=OTHER_ID).startswith("unauthorized: ")


def test_nobody_takes_the_name_of_an_agent_that_is_there() -> None:
    world = World()
    world.token(uses=9)
    world.enroll()
    assert world.refused(password="q" * 43).startswith("exists: ")
    assert world.refused("operators", taken=True).startswith("exists: ")
    [revoked] = world.do(RevokeAgent, user="admin", agent_id="node", has_credentials=True)
    assert isinstance(revoked, AgentRevoked)
    assert world.state.joining.revoked == ("node",)
    assert not world.state.joining.knows("node", hash_of(PASSWORD)), "the old password is worth nothing"
    world.enroll(password="q" * 43)
    assert not world.state.joining.revoked


def test_only_who_may_change_pools_makes_and_revokes() -> None:
    world = World()
    for kind, fields in (
        (RevokeJoinToken, {"token_id": ID}),
        (RevokeAgent, {"agent_id": "a", "has_credentials": True}),
    ):
        with pytest.raises(Refused) as error:
            world.do(kind, user="eve", **fields)
        assert error.value.code == "forbidden"
    with pytest.raises(Refused) as error:
        world.token(user="eve")
    assert error.value.code == "forbidden"
    for kind, fields in ((RevokeJoinToken, {"token_id": ID}), (RevokeAgent, {"agent_id": "a", "has_credentials": False})):
        with pytest.raises(Refused) as error:
            world.do(kind, user="admin", **fields)
        assert error.value.code == "not_found"


def test_tokens_have_a_bound() -> None:
    world = World()
    for number in range(TOKENS_MAX):
        world.token(f"jt-{number:012x}")
    with pytest.raises(Refused, match="no more are kept"):
        world.token("jt-ffffffffffff")
    world.at_us = HOUR_US
    world.token("jt-ffffffffffff")
    assert len(world.state.joining.tokens) == 1


def enrolled(agent: str = "a", pool: str = "default") -> AgentEnrolled:
    return AgentEnrolled(agent_id=agent, pool=pool, token_id=ID, credential_hash=hash_of(PASSWORD))


def test_what_a_revoked_agent_runs_is_lost_at_once_and_it_is_not_taken_again() -> None:
    driver = Driver()
    driver.event(enrolled())
    driver.join()
    driver.grant()
    driver.started()
    lost, exited = driver.event(AgentRevoked(agent_id="a"))
    assert isinstance(lost, AgentLost)
    assert isinstance(exited, WorkersExited)
    assert (lost.announced, exited.outcome) == (False, "lost")
    assert driver.join() == [], "a heartbeat that was on its way"
    assert driver.exited("finished", 0) == [], "a report that was on its way"
    assert driver.event(AgentRevoked(agent_id="b")) == []
    driver.event(enrolled())
    assert isinstance(driver.join()[0], AgentJoined)


def test_an_agent_offers_slots_to_the_pool_that_it_joined_for_and_no_other() -> None:
    driver = Driver()
    driver.event(enrolled(pool="gpus"))
    assert driver.join() == [], "the driver's agents offer theirs to pool default"
    driver.event(enrolled(pool="default"))
    assert isinstance(driver.join()[0], AgentJoined)
    driver.join("b")  # its credentials came from the operator
    assert set(driver.state.agents) == {"a", "b"}
