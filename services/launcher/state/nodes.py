"""Pools whose nodes a provisioner starts, as the launcher knows them: settings, waiting demands, nodes on record, back-offs.

A node leaves the state with NodeEnded. So it grows with the nodes that exist, not with those that ever did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from immutables import Map

from tenuto.schemas.events.node import NodeFailure
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.provisioning import NodeType, Provisioning

Ending = Literal["", "released", "failed"]
Phase = Literal["requested", "started", "joined", "released", "failed"]
FORMER_MAX = 4
"""Most earlier provisioners of a pool that are remembered beyond those with nodes on record, so that nodes of theirs on no record
are found and ended; people change provisioners rarely."""

DIGITS_MAX = 12
"""Most digits of a node's number."""


@dataclass(frozen=True)
class Node:
    """A machine, pod or job on record: requested, and not known to have ended."""

    node_id: str
    number: int
    pool: str
    node_type: NodeType
    """Node type as it was when the node was requested."""
    generation: int
    """Number of the pool's settings by which its provider is asked."""
    group: str
    """Node id of the first of those that were requested together."""
    slots: int
    cost_per_hour: float
    requested_at_us: int
    workspace: str = ""
    """Workspace of the gang that it was requested for, if the pool limits costs by workspace."""
    image: str = ""
    """Image that its agent pulls while it joins, or in which it runs as a whole (`own_image`); empty: none."""
    provider_id: str = ""
    """Id of the node at its provider. Empty: it has not been seen running yet."""
    started_at_us: int | None = None
    """Time at which it was first seen running."""
    joined_at_us: int | None = None
    """Time at which its agent first joined."""
    idle_since_us: int | None = None
    """Time since which its agent has had no allocation. None: it has one, or has not joined."""
    used: bool = False
    """True once it had an allocation."""
    broken: bool = False
    """True if a node of its group failed before it had joined."""
    ending: Ending = ""
    """released: given back, ends when nothing runs on it. failed: what is left of it is ended at once. Neither is used again."""
    ending_at_us: int = 0
    drain: bool = True
    """True if work on a released node ends before the node does."""

    @property
    def own_image(self) -> str:
        """Image in which it runs as a whole, for trials that name it and no others; empty: none."""
        return self.image if self.node_type.runs_in(self.image) else ""

    def backoff_key(self, failure: NodeFailure = "lost") -> str:
        """Key of the nodes that are not asked for after its failure: all of its type where that could not be had, else those in
        its image, as an image that is broken must not stand in the way of others."""
        return backoff_key(self.node_type, "" if failure in ("capacity", "quota") else self.image)

    @property
    def phase(self) -> Phase:
        if self.ending:
            return self.ending
        if self.joined_at_us is not None:
            return "joined"
        return "requested" if self.started_at_us is None else "started"


def backoff_key(node_type: NodeType, image: str) -> str:
    """Key of a backoff: the type's name, which has no space, and the image in which such nodes would run as a whole."""
    return f"{node_type.name} {image}" if node_type.runs_in(image) else node_type.name


def image_of_key(key: str) -> str:
    """Image in a key of a backoff; empty: it has none."""
    return key.partition(" ")[2]


@dataclass(frozen=True)
class Demand:
    """Gangs that wait."""

    wanted: CapacityDemand
    since_us: int
    """Time since which gangs of this kind of this experiment have waited."""


@dataclass(frozen=True)
class NodeTypeBackoff:
    """Nodes of one type are not asked for until some time, because the last ones could not be had."""

    failures: int
    """Number of failures in a row."""
    until_us: int


@dataclass(frozen=True)
class Offered:
    """Offer of the agent of the type's last node that joined: the truth about what the settings only promise."""

    slots: int
    devices: tuple[str, ...]
    """Names of devices, in lower case, each once, sorted."""
    seen_at_us: int


@dataclass(frozen=True)
class ProvisioningGeneration:
    """Settings of a provisioner, with the number that nodes started by them carry."""

    generation: int
    provisioning: Provisioning


@dataclass(frozen=True)
class ProvisionedPool:
    pool: str
    generation: int
    provisioning: Provisioning
    """The newest. static: nothing is requested any more."""
    former: tuple[ProvisioningGeneration, ...] = ()
    """Earlier provisioners or settings of them, newest first: nodes of theirs may exist."""
    numbers: int = 0
    """Number of the last node; none is given twice."""
    numbers_before: int = 0
    """Numbers up to this one are in the names of agents that were there before the pool had a provisioner."""
    numbers_passed: tuple[int, ...] = ()
    """Later ones that were passed over, because an agent that people started has the name; ascending."""
    nodes: Map[str, Node] = field(default_factory=Map)
    demands: tuple[Demand, ...] = ()
    """Demands as the scheduler last reported them, in the queue's order."""
    demands_at_us: int = 0
    backoffs: Map[str, NodeTypeBackoff] = field(default_factory=Map)
    """Backoffs by `backoff_key`. Those of an image are kept while gangs wait for it."""
    offered: Map[str, Offered] = field(default_factory=Map)
    """Offers by node type, of types of which a node ever joined under these settings."""

    def in_order(self) -> list[Node]:
        """All nodes on record, by number."""
        return sorted(self.nodes.values(), key=_number)

    def place(self, generation: int) -> ProvisioningGeneration | None:
        if generation == self.generation:
            return ProvisioningGeneration(generation, self.provisioning)
        return next((place for place in self.former if place.generation == generation), None)


def _number(node: Node) -> int:
    return node.number


def pool_and_number(node_id: str) -> tuple[str, int]:
    """The parts of a node's id; number 0: it is none."""
    pool, _, number = node_id.rpartition("-")
    plain = number.isascii() and number.isdecimal() and not number.startswith("0") and len(number) <= DIGITS_MAX
    return (pool, int(number)) if plain else (node_id, 0)


def node_has_ended(pools: Map[str, ProvisionedPool], agent_id: str) -> bool:
    """True if this was the name of a node that is not on record any more."""
    name, number = pool_and_number(agent_id)
    pool = pools.get(name)
    if pool is None or not pool.numbers_before < number <= pool.numbers:
        return False
    return agent_id not in pool.nodes and number not in pool.numbers_passed


def check_pool(name: str, pool: ProvisionedPool) -> None:
    """Assert what must hold after every event."""
    assert pool.pool == name
    assert all(place.generation < pool.generation for place in pool.former)
    assert pool.numbers_before <= pool.numbers
    for node_id in sorted(pool.nodes):
        node = pool.nodes[node_id]
        assert node.node_id == node_id == f"{name}-{node.number}"
        assert node.pool == name
        assert pool.numbers_before < node.number <= pool.numbers, f"{node_id} has a number that was not given out"
        assert pool.place(node.generation) is not None, f"{node_id} has a provisioner that is forgotten"
        assert node.generation <= pool.generation
        assert bool(node.provider_id) == (node.started_at_us is not None), f"{node_id} runs under no name"
        assert node.idle_since_us is None or node.joined_at_us is not None, f"{node_id} is idle and has not joined"
