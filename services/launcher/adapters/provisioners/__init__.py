"""The port of provisioners: what starts nodes with an agent each, and ends them. One plug-in per kind, one contract suite.

An adapter keeps no state of its own: all that it knows of its nodes it reads from the provider, by the tags that it gave them. It
does not retry, wait or decide; what is to be done follows from the record and from `nodes()`, which the launcher compares.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from tenuto.kernel import plugins
from tenuto.kernel.plugins import PluginError
from tenuto.schemas.provisioning import NodeType, Provisioning

logger = logging.getLogger(__name__)

GROUP = "tenuto.provisioners"
"""Group of entry points for plug-ins. A plug-in is called with the cluster, the pool, its provisioning and the directory of
secrets (None: no such directory), and returns its Provisioner."""
Phase = Literal["pending", "running", "ended"]


NO_IMAGES = (
    "Nodes of provisioner {} cannot run in a trial's image as a whole: leave out node_images; where they have Docker, say"
    " images: true."
)


class ProvisionerError(Exception):
    """The provider did not carry out a request. `str(error)` is one sentence for the user, without secrets.

    `kind`: capacity (it has none now), quota (our quota is used up), refused (it rejects such requests: a retry does not help),
    unreachable (it may have carried it out or not; `nodes()` will tell).
    """

    def __init__(self, message: str, kind: Literal["capacity", "quota", "refused", "unreachable"]) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Order:
    """One node to start."""

    node_id: str
    """Name of the node and of its agent; no other machine ever has it."""
    node_type: NodeType
    environment: Mapping[str, str] = field(repr=False)
    """Environment variables of its agent: TENUTO_AGENT_ID, TENUTO_JOIN_TOKEN (a secret that admits this one agent), labels,
    slots. The adapter starts `python -m tenuto.cli.main agent run --name NODE_ID` with them, and with
    TENUTO_LEAVE_SIGNAL_SECONDS, the time from its SIGTERM until it kills: without that an agent leaves without a word, and its
    node ends only with its lease."""
    image: str = ""
    """Image in which the node is to run as a whole, in place of the settings' own. Empty: the settings' own."""


@dataclass(frozen=True)
class RealNode:
    """A node as the provider knows it."""

    node_id: str
    provider_id: str
    phase: Phase
    """pending: it waits in the provider's own queue, or boots. ended: nothing of it runs or is paid for."""
    detail: str = ""
    """The provider's words on why it is pending or has ended."""
    outdated: bool = False
    """True if it was started with another installation than nodes are started with now."""
    image_missing: bool = False
    """True if it does not get on because the image of its order cannot be pulled, as `detail` says."""


@dataclass(frozen=True)
class Finding:
    """Result of one check of a pool's settings."""

    what: str
    """Subject of the check, such as `partition gpu`."""
    problem: str = ""
    """Fault and its remedy, as a sentence. Empty: no fault."""


class Provisioner(Protocol):
    """Made for one pool of one cluster; its nodes are tagged with both. Every call is bounded in time (raises ProvisionerError
    unreachable), and may be broken off."""

    @property
    def waits_long(self) -> bool:
        """True if a node may wait for long before its agent starts, in the provider's own queue or for its installation: its
        join token lives as long. False where it starts within the pool's time to join, so that a token in a boot script, which
        clouds keep, is soon worth nothing."""
        ...

    async def check(self) -> Sequence[Finding]:
        """Findings about what nodes of this pool need (rights, partition, image, quota), present or missing; starts nothing."""
        ...

    async def start(self, orders: Sequence[Order]) -> None:
        """Starts the nodes of one group: all or none, as far as the provider can. Idempotent by node id: an order whose node
        the provider already has starts nothing. Raises ProvisionerError."""
        ...

    async def nodes(self) -> Sequence[RealNode]:
        """All nodes of this pool that the provider has, also two of one id, and those that ended as long as it remembers them.
        Raises ProvisionerError."""
        ...

    async def stop(self, node: RealNode) -> None:
        """Ends the node; its agent is told by SIGTERM, or the provider's own notice, where that can be. One that is gone is no
        error. Raises ProvisionerError."""
        ...

    async def logs(self, node: RealNode, lines_max: int) -> str:
        """Last lines of what the node's agent, or its boot, has printed; empty if there is nothing. Raises ProvisionerError."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class StartsGroups(Protocol):
    """A provisioner that starts many groups by one request."""

    async def start_groups(self, groups: Sequence[Sequence[Order]]) -> Sequence[ProvisionerError | None]:
        """Starts each group as `start` does. Returns for each the error with which it was not started, or None."""
        ...


@runtime_checkable
class StartsImages(Protocol):
    """A provisioner that starts a node in the image that its order names (`NodeType.node_images`)."""

    @property
    def starts_images(self) -> Literal[True]: ...


@runtime_checkable
class Watched(Protocol):
    """A provisioner whose provider tells by itself when nodes change. It only makes looks come sooner: nothing depends on it."""

    def changes(self) -> AsyncIterator[None]:
        """Yields when nodes of this pool have changed, or may have, until it raises ProvisionerError."""
        ...


def check_known(name: str) -> None:
    """Raises ProvisionerError if no plug-in of that name is installed here. Nothing is imported."""
    if name not in (known := plugins.names(GROUP)):
        raise ProvisionerError(
            f"The launcher has no provisioner {name} (it has: {', '.join(known) or 'none'}): name one of these, or install the "
            "package that declares it where the launcher runs, and restart the launcher.",
            "refused",
        )
    try:
        plugins.find(GROUP, name)
    except PluginError as error:
        raise ProvisionerError(f"Where the launcher runs, {error}", "refused") from error


def open_provisioner(cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> Provisioner:
    """Provisioner of one pool. `secrets_directory`: where its keys and lists are. Raises ProvisionerError if the plug-in is not
    installed, or cannot be used."""
    name = provisioning.provisioner
    check_known(name)
    try:
        made: Provisioner = plugins.load(GROUP, name)(cluster, pool, provisioning, secrets_directory)
    except PluginError as error:
        raise ProvisionerError(f"Where the launcher runs, {error}", "refused") from error
    except Exception as error:  # a defect of a plug-in must not end the service
        logger.exception("provisioner %s cannot be opened", name)
        raise ProvisionerError(
            f"Provisioner {name} cannot be opened ({type(error).__name__}: {error}); the launcher's log says more.", "refused"
        ) from error
    return made


def no_images(provisioning: Provisioning, provisioner: Provisioner) -> str:
    """Sentence if the pool's nodes are to run in images as a whole, and its provisioner starts none so; else empty."""
    if not provisioning.node_images or isinstance(provisioner, StartsImages):
        return ""
    return NO_IMAGES.format(provisioning.provisioner)
