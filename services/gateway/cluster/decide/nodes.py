"""Pools: where their nodes come from, and what may be mounted there; nodes that users give back, and tokens of nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.agent_limits import AGENT_SLOTS_MAX
from tenuto.schemas.base import from_object
from tenuto.schemas.events import EventData
from tenuto.schemas.events.joining import JoinTokenCreated
from tenuto.schemas.events.provisioning import NodeReleaseRequested, PoolMountsChanged, PoolProvisioned
from tenuto.schemas.provisioning import Provisioning
from tenuto.schemas.text import unprintable, visible
from tenuto.services.gateway.cluster.commands import CreateNodeToken, ProvisionPool, ReleaseNode, SetPoolMounts
from tenuto.services.gateway.cluster.policies.nodes import POOLS_MAX, SETTINGS
from tenuto.services.gateway.cluster.state import ClusterState
from tenuto.services.gateway.rights.checks import check_admin

_SECRET_NAME = re.compile(r"(password|passwd|secret|token|api_?key|access_key|private_key|credential)s?$")
_NAMES_OF_SECRETS = ("image_pull_secrets", "restd_token")
"""Settings that name secrets of Kubernetes, or a file of the launcher with one, and hold none."""
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|^(AKIA|ASIA)[A-Z0-9]{16}$|^tenuto-join-|^gh[pousr]_|^(SLURM_JWT\s*=\s*|Bearer\s+)?eyJ"
)
_LABEL = re.compile(r"[^=,]+=[^,]*[^,\s]")


def provision(state: ClusterState, command: ProvisionPool) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    known = state.nodes.pools
    if command.pool not in known and not command.settings.starts_nodes:
        return []
    if command.pool not in known and len(known) >= POOLS_MAX:
        raise Refused(f"{POOLS_MAX} pools have a provisioner, and no more are kept: change one of those.", "conflict")
    _refuse_secrets(command.settings)
    _refuse_useless(command.settings)
    if command.pool in known and known[command.pool].provisioning == command.settings:
        return []
    return [PoolProvisioned(pool=command.pool, **{name: getattr(command.settings, name) for name in SETTINGS})]


def set_mounts(state: ClusterState, command: SetPoolMounts) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    known, mounts = state.nodes.mounts, command.mounts.mounts
    if known.get(command.pool) == mounts:
        return []
    if command.pool not in known and len(known) >= POOLS_MAX:
        raise Refused(f"{POOLS_MAX} pools say what may be mounted, and no more are kept: change one of those.", "conflict")
    return [PoolMountsChanged(pool=command.pool, mounts=mounts)]


def _refuse_secrets(settings: Provisioning) -> None:
    """Settings are recorded for ever. Raises Refused."""
    for where in (settings.settings, *(node_type.settings for node_type in settings.node_types)):
        for name in sorted(where):
            named = _SECRET_NAME.search(name) and name not in _NAMES_OF_SECRETS
            if named or _SECRET_VALUE.search(where[name].strip()):
                raise Refused(
                    f"Setting {name} looks like a secret, and settings are recorded for ever: put it into a file in the "
                    "launcher's TENUTO_PROVISIONER_DIRECTORY, and name that file.",
                    "invalid",
                )


def _refuse_useless(settings: Provisioning) -> None:
    """Nodes whose agents would not start, so that they would be requested, and paid for, again and again. Raises Refused."""
    for node_type in settings.node_types:
        wrong = ""
        for label in node_type.labels:
            if not _LABEL.fullmatch(label) or unprintable(label):
                wrong = f"a label must be key=value without commas, such as rack=7 (found {visible(label)!r})"
        if node_type.slots > AGENT_SLOTS_MAX:
            wrong = f"an agent has at most {AGENT_SLOTS_MAX} slots (found {node_type.slots})"
        if wrong:
            raise Refused(f"Type of nodes {node_type.name}: {wrong}.", "invalid")


def release(state: ClusterState, command: ReleaseNode) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    node = state.nodes.nodes.get(command.node_id)
    if node is None:
        raise Refused(
            f"There is no node {command.node_id} that a provisioner started, or it has ended; `tenuto node ls` shows the nodes.",
            "not_found",
        )
    if node.phase == "failed" or (node.phase == "released" and command.drain):
        return []
    return [NodeReleaseRequested(node_id=command.node_id, drain=command.drain)]


def create_token(state: ClusterState, command: CreateNodeToken) -> Sequence[EventData]:
    node = state.nodes.nodes.get(command.node_id)
    if node is None or node.pool != command.pool or node.phase != "requested":
        raise Refused(f"No node {command.node_id} of pool {command.pool} is requested.", "not_found")
    label = f"node {command.node_id}"[:100]
    return [from_object(JoinTokenCreated, command, uses_max=1, label=label, agent_id=command.node_id)]


DECISIONS = decisions(provision, set_mounts, release, create_token)
