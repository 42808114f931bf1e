"""Commands about pools, shares, slots, nodes and machines that join."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.provisioning import PoolMounts
from tenuto.schemas.events.request import Closing, PolicySettings, ShareOwner, ShareSettings, SlotsNamed
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.gateway.rights.commands import GatewayCommand, UserCommand


@dataclass(frozen=True, kw_only=True)
class SetPoolPolicy(UserCommand):
    pool: str
    settings: PolicySettings
    """The half-life stays as it is where `settings` was made without one."""


@dataclass(frozen=True, kw_only=True)
class ProvisionPool(UserCommand):
    pool: str
    settings: Provisioning


@dataclass(frozen=True, kw_only=True)
class SetPoolMounts(UserCommand):
    pool: str
    mounts: PoolMounts


@dataclass(frozen=True, kw_only=True)
class ReleaseNode(UserCommand):
    node_id: str
    drain: bool


@dataclass(frozen=True, kw_only=True)
class CreateNodeToken(GatewayCommand):
    """The launcher asks for a token by which one node's agent joins."""

    token_id: str
    secret_hash: str
    node_id: str
    pool: str
    expires_us: int

    @property
    def actor(self) -> str:
        return "launcher"


@dataclass(frozen=True, kw_only=True)
class SetShare(UserCommand):
    owner: ShareOwner
    name: str
    settings: ShareSettings
    """Fields not set in `settings` stay as they are."""


@dataclass(frozen=True, kw_only=True)
class CloseSlots(UserCommand):
    agent_id: str
    closing: Closing


@dataclass(frozen=True, kw_only=True)
class OpenSlots(UserCommand):
    agent_id: str
    slots: SlotsNamed


@dataclass(frozen=True, kw_only=True)
class CreateJoinToken(UserCommand):
    token_id: str
    secret_hash: str
    """SHA-256 of its secret."""
    pool: str
    expires_us: int
    uses_max: int
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class RevokeJoinToken(UserCommand):
    token_id: str


@dataclass(frozen=True, kw_only=True)
class Enroll(GatewayCommand):
    """An agent asks to join, and shows a token."""

    token_id: str
    secret_hash: str
    agent_id: str
    credential_hash: str
    """SHA-256 of the password that the agent made."""
    taken: bool
    """True: an agent of the name has credentials that did not come from a token."""

    @property
    def actor(self) -> str:
        return f"agent:{self.agent_id}"


@dataclass(frozen=True, kw_only=True)
class RevokeAgent(UserCommand):
    agent_id: str
    has_credentials: bool
    """True: the bus knows a user of the agent, as the gateway saw."""
