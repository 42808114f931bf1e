"""Note that a trial's image is none in which the nodes of its pools run. It is no refusal: agents with Docker may run it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenuto.cli.say import say
from tenuto.client.errors import ClientError

if TYPE_CHECKING:
    from tenuto.schemas.config.environment import Environment
    from tenuto.schemas.provisioning import NodeType


def note_if_no_node_runs_it(rest: Any, pools: Sequence[str], environment: Environment) -> bool:
    """Warns if the experiment names an image, each of its pools says in which images its nodes run, and none may run in this one.
    Returns True if it did."""
    from tenuto.schemas.image_patterns import shown

    if environment.image is None:
        return False
    patterns: dict[str, list[str]] = {}
    for pool in pools:
        types = _node_types(rest, pool)
        patterns[pool] = [pattern for item in types for pattern in item.node_images]
        if not patterns[pool] or any(item.images or item.runs_in(environment.node_image) for item in types):
            return False
    if _has_docker(rest, pools):
        return False
    say(f"Note: {_why(environment, {pool: shown(found) for pool, found in patterns.items()})}", file=sys.stderr)
    return True


def _why(environment: Environment, patterns: dict[str, str]) -> str:
    first = next(iter(patterns))
    waits = "so the trials wait for an agent with Docker"
    if fields := environment.container_fields:
        given = ", ".join(f"environment.{field}" for field in fields)
        return (
            f"nodes of pool {first} run in a trial's image as a whole, and {given} is for a container of its own, {waits}: leave"
            " that out, or choose another pool."
        )
    told = "; ".join(f"nodes of pool {pool} run in the images {found}" for pool, found in patterns.items())
    return (
        f"{told}, and not in {environment.image}, {waits}: name one of these, or ask an admin for another"
        f" (`tenuto pool change {first} --node-image NAME`)."
    )


def _node_types(rest: Any, pool: str) -> list[NodeType]:
    """Types of the nodes that are started for the pool; none: it has no provisioner, or it cannot be read."""
    from pydantic import ValidationError

    from tenuto.schemas.provisioning import STATIC, NodeType

    with contextlib.suppress(ClientError, ValidationError):
        settings = rest.get(f"/pools/{pool}/provisioning")["provisioning"]
        found = settings["node_types"] if settings["provisioner"] != STATIC else []
        return [NodeType.model_validate(kind) for kind in found]
    return []


def _has_docker(rest: Any, pools: Sequence[str]) -> bool:
    from tenuto.client.messages import items

    with contextlib.suppress(ClientError):
        agents = items(rest.get("/agents"))
        return any(item["pool"] in pools and item["state"] == "joined" and "docker" in item["runtimes"] for item in agents)
    return False
