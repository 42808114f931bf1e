"""Pools whose nodes a provisioner starts: their settings, nodes that users give back, and tokens of nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.schemas.events import EventData
from tenuto.schemas.events.joining import JoinTokenCreated
from tenuto.schemas.events.provisioning import NodeReleaseRequested, PoolProvisioned
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.gateway.commands import CreateNodeToken, ProvisionPool, ReleaseNode
from tenuto.services.gateway.decide.cluster import check_admin
from tenuto.services.gateway.policies.nodes import POOLS_MAX, SETTINGS
from tenuto.services.gateway.state import State

_SECRET_NAME = re.compile(r"(password|passwd|secret|token|api_?key|access_key|private_key|credential)s?$")
_NAMES_OF_SECRETS = ("image_pull_secrets",)
"""Settings that name secrets of Kubernetes, and hold none."""
_SECRET_VALUE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|^(AKIA|ASIA)[A-Z0-9]{16}$|^tenuto-join-|^gh[pousr]_|^eyJ")


def provision(state: State, command: ProvisionPool) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    known = state.nodes.pools
    if command.pool not in known and command.settings.provisioner == "static":
        return []
    if command.pool not in known and len(known) >= POOLS_MAX:
        raise Refused(f"{POOLS_MAX} pools have a provisioner, and no more are kept: change one of those.", "conflict")
    _refuse_secrets(command.settings)
    if command.pool in known and known[command.pool].provisioning == command.settings:
        return []
    return [PoolProvisioned(pool=command.pool, **{name: getattr(command.settings, name) for name in SETTINGS})]


def _refuse_secrets(settings: Provisioning) -> None:
    """Settings are recorded for ever. Raises Refused."""
    for where in (settings.settings, *(node_type.settings for node_type in settings.node_types)):
        for name in sorted(where):
            named = _SECRET_NAME.search(name) and name not in _NAMES_OF_SECRETS
            if named or _SECRET_VALUE.search(where[name]):
                raise Refused(
                    f"Setting {name} looks like a secret, and settings are recorded for ever: put it into a file in the "
                    "launcher's TENUTO_PROVISIONER_DIRECTORY, and name that file.",
                    "invalid",
                )


def release(state: State, command: ReleaseNode) -> Sequence[EventData]:
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


def create_token(state: State, command: CreateNodeToken) -> Sequence[EventData]:
    node = state.nodes.nodes.get(command.node_id)
    if node is None or node.pool != command.pool or node.phase != "requested":
        raise Refused(f"No node {command.node_id} of pool {command.pool} is requested.", "not_found")
    return [
        JoinTokenCreated(
            token_id=command.token_id,
            secret_hash=command.secret_hash,
            pool=command.pool,
            expires_us=command.expires_us,
            uses_max=1,
            label=f"node {command.node_id}"[:100],
            agent_id=command.node_id,
        )
    ]
