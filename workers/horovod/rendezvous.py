"""Rendezvous of Horovod's ranks: its own Gloo server in rank 0's process, whose address the supervisors pass to the others.

After `prepare`, `hvd.init()` of any framework works, in a trial as in a script that knows nothing of this platform. The variables
are those that horovodrun sets (horovod/runner/gloo_run.py, 0.28).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenuto.workers.errors import UserError

if TYPE_CHECKING:
    from tenuto.workers.launch.gang import Gang

GLOO_SECONDS_MAX = 24 * 3600
"""Gloo's own deadline for a message. Ours (distributed.progress_seconds_max) names the rank that hangs, so it must end first."""
ADDRESS_KEY = "horovod rendezvous"


def is_installed() -> bool:
    return importlib.util.find_spec("horovod") is not None


def require() -> None:
    """Raises UserError if Horovod is not installed."""
    if not is_installed():
        raise UserError(
            "distributed.strategy is horovod, but Horovod is not installed for the agents' Python. It has no wheel: build it by "
            "`make horovod` (docs/horovod.md), or set distributed.strategy to ddp."
        )


def is_wanted(config: Any) -> bool:
    """True if the experiment uses Horovod. `config`: experiment configuration as plain data."""
    return bool((config.get("distributed") or {}).get("strategy") == "horovod")


_prepared = False


def prepare(gang: Gang) -> None:
    """Prepares `hvd.init()`; called by every rank before it, once per process. Raises UserError."""
    global _prepared
    require()
    if _prepared:
        return
    _prepared = True
    places = [(int(node), int(local)) for node, local in gang.gather([os.environ["GROUP_RANK"], gang.local_rank], "horovod")]
    own = variables(places, gang.rank)
    if gang.leads:
        gang.put(ADDRESS_KEY, list(_serve(os.environ["MASTER_ADDR"], places)))
    address, port = gang.get(ADDRESS_KEY)
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    common = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": str(address),
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", str(GLOO_SECONDS_MAX)),
    }
    if interface:
        common["HOROVOD_GLOO_IFACE"] = interface
    os.environ.update(common | own)


def finish(gang: Gang) -> None:
    """Called by every rank that leaves in order: rank 0, which runs the rendezvous, must be the last to leave Horovod."""
    if not _prepared:
        return
    for name in ("horovod.torch", "horovod.tensorflow"):
        if (module := sys.modules.get(name)) is not None:
            module.shutdown()
    gang.gather(None, "horovod end")


def variables(places: Sequence[tuple[int, int]], rank: int) -> dict[str, str]:
    """Horovod's variables of one rank. `places`: (index of its agent, rank on that agent) of each rank.

    A rank's cross rank is its agent's place among the agents that have a rank of the same local number.
    """
    nodes = defaultdict(list)
    for node, local in places:
        nodes[node].append(local)
    node, local = places[rank]
    across = sorted(other for other, locals_there in nodes.items() if local in locals_there)
    return {
        "HOROVOD_HOSTNAME": _host(node),
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(len(places)),
        "HOROVOD_LOCAL_RANK": str(local),
        "HOROVOD_LOCAL_SIZE": str(len(nodes[node])),
        "HOROVOD_CROSS_RANK": str(across.index(node)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
    }


def _host(node: int) -> str:
    return f"agent-{node}"


def _serve(address: str, places: Sequence[tuple[int, int]]) -> tuple[str, int]:
    """Starts Horovod's rendezvous server, on a port that the kernel chooses. It ends with this process."""
    from horovod.runner.common.util.hosts import SlotInfo  # type: ignore[import-not-found]
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer  # type: ignore[import-not-found]

    server = RendezvousHTTPServer((address, 0), RendezvousHandler, False)
    plan = []
    for rank in range(len(places)):
        own = variables(places, rank)
        numbers = [
            int(own[f"HOROVOD_{name}"]) for name in ("RANK", "LOCAL_RANK", "CROSS_RANK", "SIZE", "LOCAL_SIZE", "CROSS_SIZE")
        ]
        plan.append(SlotInfo(own["HOROVOD_HOSTNAME"], *numbers))
    server.init(plan)
    threading.Thread(target=server.serve_forever, name="tenuto-horovod", daemon=True).start()
    return address, server.server_address[1]
