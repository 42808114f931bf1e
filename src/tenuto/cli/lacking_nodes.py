"""Lines about the nodes that a pool lacks: those that come, and the reason why no more do."""

from __future__ import annotations

from typing import Any

HINDRANCES = {
    "": "",
    "never": "no number of nodes within the limits could hold it",
    "limits": "the pool's limits leave no room for more nodes now",
    "workspace": "the limit of its workspace leaves no room for more nodes now",
    "later": "such nodes could not be had a moment ago",
}
_DOCKER_HELPS = "have an admin say that its agents have Docker, where they have (`tenuto pool change {name} --images`)"
_HELPS = {
    "kubernetes": "have an admin allow the image (`tenuto pool change {name} --node-image NAME`)",
    "gcp": "choose a pool whose agents have Docker",
}
"""Help where nodes run no images, by provisioners whose nodes have no Docker."""


def lacking(pool: dict[str, Any]) -> list[str]:
    """Missing nodes of a pool, with those that come and the reason why no more do, in a line for each kind of gang; then the
    provider's messages on coming nodes."""
    from tenuto.cli.output import when

    standings = pool["standings"] or [{"demand": item, "gangs_coming": None} for item in pool["wanted"]]
    lines = []
    for item in standings:
        demand, coming = item["demand"], item["gangs_coming"]
        slots = f"{demand['slots']} slot{'s' * (demand['slots'] != 1)}"
        image = f" in {demand['image']}" if demand.get("image") else ""
        told = f"wanted: {demand['count']} x {slots}{image}, first for experiment {demand['experiment_id']}"
        if coming is not None:
            told += f"; nodes for {coming} of them are coming"
            why = _no_image(pool, demand) if item["hindrance"] == "image" else HINDRANCES.get(item["hindrance"], "")
            told += f", and for the others {why}" if why else ""
            told += f"; asked for again from {when(item['retry_at_us'])}" if item.get("retry_at_us") else ""
        lines.append(told)
    words = [f"node {item['node_id']}: {item['words']}" for item in pool.get("coming", ())]
    return lines + trouble(pool) + words


def _no_image(pool: dict[str, Any], demand: dict[str, Any]) -> str:
    """Reason why no type of nodes runs the image of a gang."""
    name = pool["pool"]
    patterns = [pattern for kind in pool["provisioning"]["node_types"] for pattern in kind.get("node_images", ())]
    if not patterns:
        more = _HELPS.get(pool["provisioning"]["provisioner"], _DOCKER_HELPS).format(name=name)
        return f"its nodes run no images of trials: leave out environment.image, or {more}"
    if not demand.get("node_image"):
        return (
            "its nodes run in a trial's image as a whole, and the experiment asks for what only a container of its own has: leave"
            " out mounts, pull, registry_auth and read_only of environment"
        )
    return (
        f"its nodes run in the images {', '.join(patterns)} and in no others: name one of these, or have an admin allow it"
        f" (`tenuto pool change {name} --node-image NAME`)"
    )


def trouble(pool: dict[str, Any]) -> list[str]:
    """Trouble of a provider that cannot be reached: without this, a requested node that never comes would stay unexplained."""
    return [f"provisioner {pool['provisioning']['provisioner']}: {pool['trouble']}"] if pool.get("trouble") else []
