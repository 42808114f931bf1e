"""Orders to a provider: nodes to start and nodes to stop, computed from the record and what the provider has. Pure.

They follow from these two alone, so a caller may be killed anywhere and begin anew. The record must be at least as new as the
provider's answer: a node that was requested in between would look like one that was never requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.commands import NodePhase
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Node, ProvisionedPool

RELEASE_SECONDS_MIN = 5.0
"""A node that was in service is not ended before: the scheduler may have granted slots there until it read that the node is given
back."""
RELEASE_SECONDS_MAX = 600.0
"""A node that is given back now, and not when its work is done, is ended after so long at the latest: saving a checkpoint takes
seconds to minutes."""


class Real(Protocol):
    """A node as its provider shows it (`RealNode`, `SeenNode`)."""

    @property
    def node_id(self) -> str: ...

    @property
    def provider_id(self) -> str: ...

    @property
    def phase(self) -> NodePhase: ...


R = TypeVar("R", bound=Real)


@dataclass(frozen=True)
class Orders(Generic[R]):
    start: tuple[tuple[Node, ...], ...] = ()
    """Groups to start, each whole or not at all."""
    stop: tuple[R, ...] = ()


@dataclass(frozen=True)
class ProvidedPool:
    """A provisioner that is to be asked for its nodes."""

    pool: str
    generation: int
    provisioning: Provisioning
    nodes: int
    """Nodes of it on record."""
    current: bool
    """False: an earlier one, from which nothing more is started."""


def provided(state: State) -> tuple[ProvidedPool, ...]:
    """All provisioners that may have nodes, by pool and generation. An earlier one without nodes on record may still have some on
    no record, and can be asked rarely."""
    found = []
    for name in sorted(state.pools):
        pool = state.pools[name]
        for generation, provisioning in sorted(
            [(pool.generation, pool.provisioning), *((place.generation, place.provisioning) for place in pool.former)],
            key=lambda entry: entry[0],
        ):
            if provisioning.starts_nodes:
                nodes = sum(node.generation == generation for node in pool.nodes.values())
                found.append(ProvidedPool(name, generation, provisioning, nodes, generation == pool.generation))
    return tuple(found)


def wanted_orders(state: State, pool_name: str, generation: int, real: Sequence[R], now_us: int) -> Orders[R]:
    """`real`: all nodes that the provider of that generation has for the pool."""
    pool = state.pools.get(pool_name)
    if pool is None:
        return Orders((), tuple(node for node in real if node.phase != "ended"))
    return Orders(_to_start(pool, generation, real), tuple(_to_stop(state, pool, real, now_us)))


def _to_start(pool: ProvisionedPool, generation: int, real: Sequence[Real]) -> tuple[tuple[Node, ...], ...]:
    """Requested nodes that the provider does not know, by group; one that has ended is known and not started again."""
    known = {node.node_id for node in real}
    groups: dict[str, list[Node]] = {}
    for node in pool.in_order():
        if node.phase == "requested" and node.generation == generation and node.node_id not in known:
            groups.setdefault(node.group, []).append(node)
    return tuple(tuple(nodes) for nodes in groups.values())


def _to_stop(state: State, pool: ProvisionedPool, real: Sequence[R], now_us: int) -> Iterator[R]:
    """Nodes to end: those not on record, those that failed, those given back with nothing left on them, and the second of one
    id."""
    kept: set[str] = set()
    for item in sorted(real, key=lambda node: _kept_first(pool, node)):
        if item.phase == "ended":
            continue
        node = pool.nodes.get(item.node_id)
        if node is None or item.node_id in kept or is_over(state, node, now_us):
            yield item
        kept.add(item.node_id)


def _kept_first(pool: ProvisionedPool, real: Real) -> tuple[bool, bool, str, str]:
    """The one that is on record under that name; before it is, one that runs; and the same one at every look."""
    node = pool.nodes.get(real.node_id)
    on_record = node is not None and bool(node.provider_id) and node.provider_id == real.provider_id
    return (not on_record, real.phase != "running", real.node_id, real.provider_id)


def is_over(state: State, node: Node, now_us: int) -> bool:
    """True if nothing of the node is needed any more."""
    if node.ending == "failed":
        return True
    if node.ending != "released":
        return False
    seconds = (now_us - node.ending_at_us) / 1e6
    if node.node_id in state.on_agent:
        return not node.drain and seconds >= RELEASE_SECONDS_MAX
    return seconds >= RELEASE_SECONDS_MIN or node.node_id not in state.agents
