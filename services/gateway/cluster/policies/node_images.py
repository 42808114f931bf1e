"""Images in which the nodes of a pool may run as a whole, and the experiments that name one. Pure."""

from __future__ import annotations

from tenuto.kernel.core import Refused
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.image_patterns import shown
from tenuto.services.gateway.cluster.policies.nodes import Nodes


def check_node_image(nodes: Nodes, config: ExperimentConfig) -> None:
    """Checks an image against the pools that the experiment may use, if each of these says in which images its nodes run: in no
    other pool is an image of trials a matter of the pool's settings. Raises Refused."""
    environment, resources = config.environment, config.resources
    if environment.image is None:
        return
    allowed: dict[str, tuple[str, ...]] = {}
    for name in (resources.pool, *resources.fallback_pools):
        pool = nodes.pools.get(name)
        if pool is None or not pool.provisioning.starts_nodes or not pool.provisioning.node_images:
            return
        if any(node_type.images for node_type in pool.provisioning.node_types):
            return
        if any(node_type.runs_in(environment.node_image) for node_type in pool.provisioning.node_types):
            return
        allowed[name] = pool.provisioning.node_images
    if fields := environment.container_fields:
        given = ", ".join(f"environment.{field}" for field in fields)
        raise Refused(
            f"Nodes of pool {resources.pool} run in a trial's image as a whole, and {given} is for a container of its own: "
            "leave that out, or choose a pool whose agents have Docker.",
            "invalid",
        )
    told = "; ".join(f"nodes of pool {name} run in the images {shown(patterns)}" for name, patterns in allowed.items())
    raise Refused(
        f"The image {environment.image} is not allowed: {told}; name one of these, or ask an admin for another "
        f"(`tenuto pool change {resources.pool} --node-image NAME`).",
        "invalid",
    )
