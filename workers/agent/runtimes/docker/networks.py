"""Networks by which the containers of a gang over several agents reach each other."""

from __future__ import annotations

from dataclasses import replace

from tenuto.schemas.assignments import Assignment
from tenuto.workers.agent.runtimes.docker.description import HOST, ContainerFacts
from tenuto.workers.agent.runtimes.docker.engine import Engine, explanation
from tenuto.workers.agent.runtimes.runtime import RuntimeUnavailable


async def check_network(engine: Engine, name: str) -> None:
    """Raises RuntimeUnavailable if no gang could use this network. One of a swarm may be unknown to a node until a container
    there is on it."""
    setting = f"TENUTO_DOCKER_GANG_NETWORK is {name!r}"
    if name == "none" or name.startswith("container:"):
        raise RuntimeUnavailable(f"{setting}, by which containers of several agents cannot reach each other: name a network.")
    try:
        missing = name != HOST and not await engine.has_network(name)
    except OSError as error:
        raise RuntimeUnavailable(
            f"{setting}, but the Docker daemon does not say whether it is there: {explanation(error)}."
        ) from error
    if missing:
        raise RuntimeUnavailable(
            f"{setting}, but the Docker daemon has no such network: make it (docker network create), or unset the variable for "
            "the node's own."
        )


async def facts_on_network(facts: ContainerFacts, engine: Engine, container: str, assignment: Assignment) -> ContainerFacts:
    """The facts with the address of a started container, if it belongs to a gang on a network of containers. Raises OSError."""
    if len(assignment.slots) == 1 or facts.gang_network == HOST:
        return facts
    address = await engine.address(container)
    if not address:
        raise OSError(f"its container has no address on the Docker network {facts.gang_network}")
    return replace(facts, node=replace(facts.node, address=address, interface="", network=facts.gang_network))
