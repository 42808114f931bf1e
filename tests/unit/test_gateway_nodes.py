"""Pools whose nodes a provisioner starts, as the gateway judges and tells of them; and join tokens of nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tenuto.cli.lacking_nodes import lacking
from tenuto.kernel.core import Refused
from tenuto.kernel.folding import DraftEnvelope
from tenuto.schemas.events import EventData
from tenuto.schemas.events.joining import JoinTokenCreated
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeReleased, NodeRequested, NodeStarted
from tenuto.schemas.events.pool import CapacityDemand, CapacityWanted
from tenuto.schemas.events.provisioning import NodeReleaseRequested, PoolProvisioned
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.joining import hash_of
from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.gateway.cluster.commands import CreateJoinToken, CreateNodeToken, Enroll, ProvisionPool, ReleaseNode
from tenuto.services.gateway.cluster.policies.joining import TOKENS_MAX
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.evolve import FOLDS
from tenuto.services.gateway.state import State

DOCS = Path(__file__).parents[2] / "docs"
WHY = Reason(rule="test")
ID = UUID(int=1)
SLURM = Provisioning(provisioner="slurm", settings={"partition": "gpu"})
REQUESTED = NodeRequested(
    node_id="gpus-1", pool="gpus", node_type="default", group="gpus-1", slots=4, cost_per_hour=2.0, reason=WHY
)


class World:
    def __init__(self, *facts: EventData) -> None:
        self.core = GatewayCore()
        self.state: State = self.core.initial()
        self.now_us = 1_000_000
        self.fold(PoolProvisioned(pool="gpus", **dict(SLURM)), *facts)

    def fold(self, *facts: EventData) -> None:
        for data in facts:
            self.now_us += 1
            self.state = FOLDS.apply(self.state, data, DraftEnvelope(self.now_us))

    def ask(self, command: Any) -> list[EventData]:
        decided = list(self.core.decide(self.state, command))
        self.fold(*decided)
        return decided

    def provision(self, settings: Provisioning, pool: str = "gpus", user: str = "admin") -> list[EventData]:
        return self.ask(ProvisionPool(id=ID, time_us=self.now_us, user=user, pool=pool, settings=settings))

    def token(self, number: int, node_id: str = "gpus-1", pool: str = "gpus") -> list[EventData]:
        command = CreateNodeToken(
            id=ID, time_us=self.now_us, token_id=f"jt-{number:012x}", secret_hash=hash_of(str(number)), node_id=node_id,
            pool=pool, expires_us=self.now_us + 10**9,
        )  # fmt: skip
        return self.ask(command)

    def enroll(self, number: int, agent_id: str) -> list[EventData]:
        command = Enroll(
            id=ID, time_us=self.now_us, token_id=f"jt-{number:012x}", secret_hash=hash_of(str(number)), agent_id=agent_id,
            credential_hash=hash_of(agent_id), taken=False,
        )  # fmt: skip
        return self.ask(command)


def test_settings_are_recorded_whole_and_once() -> None:
    world = World()
    assert world.provision(SLURM) == []
    more = SLURM.model_copy(update={"nodes_max": 3})
    assert world.provision(more) == [PoolProvisioned(pool="gpus", **dict(more))]
    assert world.provision(Provisioning(), pool="new") == [], "it has no provisioner as it is"
    assert [data.TYPE for data in world.provision(Provisioning())] == ["PoolProvisioned"]
    with pytest.raises(Refused, match=r"admin"):
        world.provision(SLURM, user="ada")


@pytest.mark.parametrize(
    "settings",
    [
        {"ssh_password": "x"},
        {"aws_secret": "x"},
        {"api_key": "x"},
        {"image": "ghp_0123456789"},
        {"restd_token": "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjF9.c2ln"},
        {"restd_token": "SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjF9.c2ln"},
        {"restd_ca": " Bearer eyJhbGciOiJIUzI1NiJ9"},
        {"extra": "-----BEGIN OPENSSH PRIVATE KEY-----"},
    ],
)
def test_what_looks_like_a_secret_is_refused(settings: dict[str, str]) -> None:
    in_type = Provisioning(provisioner="slurm", node_types=(NodeType(settings=settings),))
    for provisioning in (SLURM.model_copy(update={"settings": settings}), in_type):
        with pytest.raises(Refused, match="looks like a secret") as refused:
            World().provision(provisioning)
        assert next(iter(settings.values())) not in str(refused.value).replace("next", "")


@pytest.mark.parametrize(
    "changes",
    [{"labels": (label,)} for label in ("rack", "=7", "rack=", "a=1,b=2", "a=\n", "a=1\nb=2", "a=\x1b[2J")] + [{"slots": 10_000}],
)
def test_types_whose_agents_would_not_start_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="Type of nodes default: a") as refused:
        World().provision(Provisioning(provisioner="slurm", node_types=(NodeType(**changes),)))
    assert str(refused.value).isprintable()
    world = World()
    assert world.provision(Provisioning(provisioner="slurm", node_types=(NodeType(labels=("rack=7", "a=b=c")),)))


def test_names_of_files_with_keys_are_no_secrets() -> None:
    world = World()
    assert world.provision(SLURM.model_copy(update={"settings": {"key": "id_ed25519", "image_pull_secrets": "regcred"}}))


def test_settings_of_the_documented_commands_are_taken() -> None:
    found = 0
    for page in sorted(DOCS.glob("*.md")):
        for name, value in re.findall(r"--set ([a-z_]+)=([^\s`'\"\\]+)", page.read_text()):
            World().provision(SLURM.model_copy(update={"settings": {name: value}}))
            found += name == "restd_token"
    assert found, "the one that says where slurmrestd's token is"


def test_nodes_are_followed_from_the_request_to_the_end() -> None:
    world = World(REQUESTED)
    assert world.state.nodes.nodes["gpus-1"].phase == "requested"
    world.fold(NodeStarted(node_id="gpus-1", pool="gpus", provider_id="job 7"))
    assert world.state.nodes.nodes["gpus-1"].provider_id == "job 7"
    assert world.ask(ReleaseNode(id=ID, time_us=1, user="admin", node_id="gpus-1", drain=True)) == [
        NodeReleaseRequested(node_id="gpus-1")
    ]
    world.fold(NodeReleased(node_id="gpus-1", pool="gpus", reason=WHY))
    assert world.ask(ReleaseNode(id=ID, time_us=1, user="admin", node_id="gpus-1", drain=True)) == [], "it is given back already"
    world.fold(NodeEnded(node_id="gpus-1", pool="gpus"))
    assert not world.state.nodes.nodes
    with pytest.raises(Refused, match="There is no node gpus-1"):
        world.ask(ReleaseNode(id=ID, time_us=1, user="admin", node_id="gpus-1", drain=True))


def test_the_last_failure_of_a_pool_is_kept_until_its_settings_change() -> None:
    world = World(REQUESTED, NodeFailed(node_id="gpus-1", pool="gpus", failure="quota", message="QOSMaxJobs", reason=WHY))
    world.fold(NodeEnded(node_id="gpus-1", pool="gpus"), CapacityWanted(pool="gpus", demands=()))
    failure = world.state.nodes.pools["gpus"].failure
    assert failure is not None
    assert (failure.failure, failure.message) == ("quota", "QOSMaxJobs")
    world.provision(SLURM.model_copy(update={"nodes_max": 3}))
    assert world.state.nodes.pools["gpus"].failure is None


def test_a_node_token_admits_its_one_agent_once_and_only_while_the_node_is_requested() -> None:
    world = World(REQUESTED)
    [made] = world.token(1)
    assert isinstance(made, JoinTokenCreated)
    assert (made.agent_id, made.uses_max) == ("gpus-1", 1)
    assert b"agent_id" not in made.model_copy(update={"agent_id": ""}).to_json(), "other tokens are recorded as before"
    with pytest.raises(Refused, match="for agent gpus-1 only"):
        world.enroll(1, "thief")
    world.token(2)
    with pytest.raises(Refused, match="not valid"):
        world.enroll(1, "gpus-1")  # only the newest is
    assert [data.TYPE for data in world.enroll(2, "gpus-1")] == ["AgentEnrolled"]
    assert not world.state.joining.tokens, "it is spent"
    for node_id, pool in (("gpus-2", "gpus"), ("gpus-1", "other")):
        with pytest.raises(Refused, match="is requested"):
            world.token(3, node_id, pool)
    world.fold(NodeReleased(node_id="gpus-1", pool="gpus", reason=WHY))
    with pytest.raises(Refused, match="is requested"):
        world.token(3)
    world.fold(NodeEnded(node_id="gpus-1", pool="gpus"))
    assert world.state.joining.revoked == ("gpus-1",), "its credentials are worth nothing any more"


def test_tokens_of_nodes_leave_those_of_people_their_room() -> None:
    world = World()
    for number in range(TOKENS_MAX):
        world.fold(REQUESTED.model_copy(update={"node_id": f"gpus-{number}"}))
        world.token(number, f"gpus-{number}")
    command = CreateJoinToken(
        id=ID, time_us=world.now_us, user="admin", token_id="jt-ffffffffffff", secret_hash=hash_of("s"), pool="gpus",
        expires_us=world.now_us + 10**9, uses_max=1,
    )  # fmt: skip
    assert world.ask(command)


def test_what_a_pool_lacks_is_told_in_a_line_for_each_kind() -> None:
    demand = CapacityDemand(slots=8, count=3, experiment_id=7).model_dump()
    told = {"demand": demand, "gangs_coming": 1, "hindrance": "limits", "retry_at_us": None}
    assert lacking({"standings": [told], "wanted": [demand]}) == [
        "wanted: 3 x 8 slots, first for experiment 7; nodes for 1 of them are coming, and for the others the pool's limits leave "
        "no room for more nodes now"
    ]
    assert lacking({"standings": [], "wanted": [demand]}) == ["wanted: 3 x 8 slots, first for experiment 7"]
    in_image = lacking({"standings": [], "wanted": [{**demand, "image": "torch:2"}]})
    assert in_image == ["wanted: 3 x 8 slots in torch:2, first for experiment 7"]
    told = {"node_id": "gpus-1", "words": "Unschedulable: 1 Insufficient nvidia.com/gpu."}
    assert lacking({"standings": [], "wanted": [], "coming": [told]}) == [
        "node gpus-1: Unschedulable: 1 Insufficient nvidia.com/gpu."
    ]


def test_a_gang_whose_image_gets_no_node_is_told_what_to_do() -> None:
    def told(image: str, node_image: bool, *patterns: str, provisioner: str = "kubernetes") -> str:
        demand = CapacityDemand(slots=1, count=1, experiment_id=7, image=image, node_image=node_image).model_dump()
        standing = {"demand": demand, "gangs_coming": 0, "hindrance": "image", "retry_at_us": None}
        kinds = [{"name": "default", "node_images": list(patterns)}]
        found = {
            "pool": "gpus",
            "standings": [standing],
            "wanted": [],
            "provisioning": {"provisioner": provisioner, "node_types": kinds},
        }
        return lacking(found)[0].partition("and for the others ")[2]

    change = "(`tenuto pool change gpus --node-image NAME`"
    assert told("x:1", True, "a:*", "b:2") == (
        f"its nodes run in the images a:*, b:2 and in no others: name one of these, or have an admin allow it {change})"
    )
    none = "its nodes run no images of trials: leave out environment.image, or "
    assert told("x:1", False) == f"{none}have an admin allow the image {change})"
    for other in ("aws", "slurm", "ssh"):
        assert told("x:1", False, provisioner=other).endswith("(`tenuto pool change gpus --images`)")
    assert told("x:1", False, provisioner="gcp") == f"{none}choose a pool whose agents have Docker"
    assert "leave out mounts, pull, registry_auth and read_only" in told("a:1", False, "a:*")
