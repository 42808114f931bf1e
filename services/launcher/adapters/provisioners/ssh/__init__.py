"""Nodes on the hosts of a list: the port of provisioners by SSH. Needs the extra `ssh`.

What there is stands on the hosts (`host.py`), which are asked with each look. A host that does not answer says nothing of its
node, so what was last seen there still counts: it is unreachable, and not gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tenuto.schemas.provisioning import Provisioning
from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Finding, Order, ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting
from tenuto.services.launcher.adapters.provisioners.ssh.connections import Connections, HostAway
from tenuto.services.launcher.adapters.provisioners.ssh.duplicate_hosts import identity_in, twins_of, words_of
from tenuto.services.launcher.adapters.provisioners.ssh.installation import Installation, in_thread, send_missing
from tenuto.services.launcher.adapters.provisioners.ssh.inventory import Host, SshSettings, inventory_of, settings_of
from tenuto.version import __version__

logger = logging.getLogger(__name__)
T = TypeVar("T")

TOGETHER_MAX = 32
"""Most hosts that are asked at once: each is a handshake at first, and a thousand would be a burst of processor time."""
AWAY_SECONDS = 30.0
"""Time for which a host that did not answer is not asked for its nodes again: each that is down takes one of those turns for
seconds, and a look at the others must not wait for them."""
UNSEEN_SECONDS_MAX = 120.0
"""Time for which a host that never answered is waited for: a node of before the launcher's start may be on it. A host that is
down for weeks must not stop the others."""
DETAIL_MAX = 300


class SshProvisioner:
    """Provisioner of one pool of one cluster on hosts that are reached by SSH."""

    def __init__(self, cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> None:
        """`secrets_directory`: where the list of hosts, the key and the hosts' keys are read from."""
        self._cluster, self._pool, self._provisioning, self._secrets = cluster, pool, provisioning, secrets_directory
        self._made: Connections | None = None
        self._seen: dict[str, list[dict[str, Any]]] = {}
        """Nodes of each host, of whatever pool, as it last said."""
        self._identities: dict[str, str] = {}
        """Identity of each host, as it last said."""
        self._twins: dict[str, str] = {}
        """Hosts of the list that are one before them, with the name of that one."""
        self._away: dict[str, tuple[Host, HostAway, float]] = {}
        """Hosts that did not answer, as the list had them, with the reason and the time of the next try."""
        self._being_given: set[str] = set()
        """Hosts of starts that are under way: another start beside them would take the same ones for free."""
        self._since = time.monotonic()

    @property
    def waits_long(self) -> bool:
        return "install" in self._provisioning.settings

    async def check(self) -> Sequence[Finding]:
        try:
            settings, hosts, connections = await self._open()
            wanted = await self._installations(settings, hosts)
        except ProvisionerError as error:
            return [Finding("settings", str(error))]

        identities: dict[str, str] = {}

        async def one(host: Host) -> list[Finding]:
            install = wanted[host.known_as]
            request = {**settings.request(host, "check"), **({"install": install.spec} if install else {})}
            try:
                said = await connections.ask(host, request)
            except HostAway as error:
                return [Finding(f"host {host.known_as}", str(error))]
            identities[host.known_as] = identity_in(said)
            return [_found(host, host.python or settings.python, said, install)]

        answers = await _together(hosts, one)
        twins = twins_of((host.known_as for host in hosts), identities)
        found: list[Finding] = []
        for host, rows in zip(hosts, answers, strict=True):
            first = twins.get(host.known_as)
            found += rows if first is None else [Finding(f"host {host.known_as}", words_of(first))]
        for node_type in self._provisioning.node_types:
            count = sum(host.serves(node_type) for host in hosts if host.known_as not in twins)
            problem = "" if count else "No host serves it: see slots and types in the list of hosts."
            found.append(Finding(f"type {node_type.name}: {count} hosts", problem))
        return found

    async def start(self, orders: Sequence[Order]) -> None:
        settings, hosts, connections = await self._open()
        wanted = await self._installations(settings, hosts)
        away = await self._look(settings, hosts, connections)
        mine = {node["node_id"] for nodes in self._seen.values() for node in nodes if self._is_mine(node)}
        self._wait_for_unseen(away)
        missing = [order for order in orders if order.node_id not in mine]
        free = [
            host for host in hosts
            if host.known_as not in (away.keys() | self._being_given | self._twins.keys())
            and all(node["phase"] == "ended" for node in self._seen.get(host.known_as, []))
        ]  # fmt: skip
        chosen = self._chosen(missing, free, hosts, away)
        with self._giving(host for _, host in chosen):
            await self._begin(chosen, wanted, settings, connections)

    @contextlib.contextmanager
    def _giving(self, hosts: Iterable[Host]) -> Iterator[None]:
        names = {host.known_as for host in hosts}
        self._being_given |= names
        try:
            yield
        finally:
            self._being_given -= names

    async def _begin(
        self,
        chosen: Sequence[tuple[Order, Host]],
        wanted: Mapping[str, Installation | None],
        settings: SshSettings,
        connections: Connections,
    ) -> None:
        """Raises ProvisionerError."""

        async def prepare(item: tuple[Order, Host]) -> ProvisionerError | None:
            install = wanted[item[1].known_as]
            try:
                if install is not None:
                    await send_missing(connections, settings, item[1], install)
            except HostAway as error:
                return error.as_provisioners()
            except ProvisionerError as error:
                return error
            return None

        async def one(item: tuple[Order, Host]) -> ProvisionerError | None:
            order, host = item
            install = wanted[host.known_as]
            request = settings.start_request(host, self._cluster, self._pool, order, install.spec if install else None)
            try:
                said = await connections.ask(host, request)
            except HostAway as error:
                return error.as_provisioners()
            if said.get("state") == "busy":
                return ProvisionerError(f"Host {host.known_as} was taken meanwhile.", "capacity")
            if said.get("state") == "missing":
                return ProvisionerError(f"Host {host.known_as} lacks files again that were sent to it.", "unreachable")
            # For a start that asked the host before this one, and chooses after it.
            own = {"cluster": self._cluster, "pool": self._pool, "node_id": order.node_id, "phase": "pending"}
            self._seen.setdefault(host.known_as, []).append({**own, "entry": "", "detail": "", "install": ""})
            logger.info("node %s is on host %s", order.node_id, host.known_as)
            return None

        # What takes long comes before the first of a group is begun.
        failures = [error for error in await _together(chosen, prepare) if error is not None]
        if failures:
            raise failures[0]
        done = await _together(chosen, one)
        failures = [error for error in done if error is not None]
        if failures:
            await self._take_back(settings, connections, chosen)
            raise failures[0]

    async def nodes(self) -> Sequence[RealNode]:
        settings, hosts, connections = await self._open()
        away = await self._look(settings, hosts, connections)
        self._wait_for_unseen(away)
        wanted: dict[str, Installation | None] = {}
        with contextlib.suppress(ProvisionerError):  # nodes are there all the same, and their versions are known
            wanted = await self._installations(settings, hosts)
        found = []
        for host in hosts:
            for node in self._seen.get(host.known_as, []):
                if self._is_mine(node):
                    gone = away.get(host.known_as)
                    own = node["detail"] or ("" if node["phase"] == "ended" else f"on {host.known_as}")
                    detail = own if gone is None else str(gone)
                    provider_id = f"{host.known_as}/{node['entry']}"
                    install = wanted.get(host.known_as)
                    names = (install.name,) if install is not None else (f"{__version__}-",)
                    old = bool(node["install"]) and not node["install"].startswith(names)
                    found.append(RealNode(node["node_id"], provider_id, node["phase"], visible(detail)[:DETAIL_MAX], old))
        return found

    async def stop(self, node: RealNode) -> None:
        await self._ask_about(node, "stop")

    async def logs(self, node: RealNode, lines_max: int) -> str:
        return str((await self._ask_about(node, "logs", lines_max=max(1, lines_max))).get("text") or "")

    async def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.close()

    async def _open(self) -> tuple[SshSettings, tuple[Host, ...], Connections]:
        """Settings, hosts as the list has them now, and connections. Raises ProvisionerError."""
        try:
            settings = settings_of(self._provisioning)
            if self._secrets is None:
                raise BadSetting(
                    "The launcher has no directory of secrets, where the list of hosts is: set it, and start it anew."
                )
            inventory = await asyncio.to_thread(inventory_of, self._secrets / settings.hosts)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error
        except OSError as error:
            raise ProvisionerError(f"The list of hosts {settings.hosts} cannot be read: {error.strerror}.", "refused") from error
        if self._made is None:
            self._made = Connections(settings, self._secrets)
        return settings, inventory.hosts, self._made

    async def _installations(self, settings: SshSettings, hosts: Sequence[Host]) -> dict[str, Installation | None]:
        """Installation that each host should have. Raises ProvisionerError."""
        assert self._secrets is not None
        try:
            return await in_thread(settings, hosts, self._secrets)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error
        except OSError as error:
            raise ProvisionerError(f"A file to install cannot be read: {error.strerror}.", "refused") from error

    async def _look(self, settings: SshSettings, hosts: Sequence[Host], connections: Connections) -> dict[str, HostAway]:
        """Asks all hosts for their nodes; those that do not answer, with the reason."""

        async def one(host: Host) -> tuple[str, HostAway] | None:
            name = host.known_as
            known = self._away.get(name)
            if known is not None and known[0] == host and time.monotonic() < known[2]:
                return name, known[1]
            try:
                said = await connections.ask(host, settings.request(host, "look"))
            except HostAway as error:
                self._away[name] = host, error, time.monotonic() + AWAY_SECONDS
                return name, error
            self._seen[name], self._identities[name] = _nodes(said), identity_in(said)
            self._away.pop(name, None)
            return None

        away = dict(item for item in await _together(hosts, one) if item is not None)
        names = {host.known_as for host in hosts}
        self._seen = {name: nodes for name, nodes in self._seen.items() if name in names}
        self._away = {name: item for name, item in self._away.items() if name in names}
        self._twins = twins_of((host.known_as for host in hosts), self._identities)
        self._seen.update({name: [] for name in self._twins})  # its nodes are those of the host before it
        return away

    def _wait_for_unseen(self, away: dict[str, HostAway]) -> None:
        """Raises ProvisionerError."""
        unseen = [error for name, error in away.items() if name not in self._seen]
        if unseen and time.monotonic() - self._since < UNSEEN_SECONDS_MAX:
            raise ProvisionerError(str(unseen[0]), "refused" if len(unseen) == len(away) and unseen[0].refused else "unreachable")

    def _is_mine(self, node: dict[str, Any]) -> bool:
        return (node["cluster"], node["pool"]) == (self._cluster, self._pool)

    def _chosen(
        self, orders: Sequence[Order], free: Sequence[Host], hosts: Sequence[Host], away: dict[str, HostAway]
    ) -> list[tuple[Order, Host]]:
        """A host for each order: of those that fit, the one with the fewest slots. Raises ProvisionerError."""
        left, chosen = sorted(free, key=lambda host: host.slots or 0), []
        for order in sorted(orders, key=lambda order: -order.node_type.slots):
            fitting = [host for host in left if host.serves(order.node_type)]
            if not fitting:
                serving = sum(host.serves(order.node_type) for host in hosts if host.known_as not in self._twins)
                raise ProvisionerError(
                    f"No host is free for node {order.node_id}: {serving} of {len(hosts)} hosts serve its type"
                    f" {order.node_type.name}, and {len(away)} of all do not answer.",
                    "capacity" if serving else "refused",
                )
            left.remove(fitting[0])
            chosen.append((order, fitting[0]))
        return chosen

    async def _take_back(self, settings: SshSettings, connections: Connections, chosen: Sequence[tuple[Order, Host]]) -> None:
        """Ends what was begun of a group. What cannot be ended now is found by `nodes`."""
        hosts = [host for _, host in chosen]
        ids = {order.node_id for order, _ in chosen}

        async def one(host: Host) -> None:
            try:
                for node in _nodes(await connections.ask(host, settings.request(host, "look"))):
                    if self._is_mine(node) and node["node_id"] in ids and node["phase"] != "ended":
                        await connections.ask(host, {**settings.request(host, "stop"), "entry": node["entry"]})
            except HostAway as error:
                logger.warning("a node of a group that did not start whole could not be ended: %s", error)

        await _together(hosts, one)

    async def _ask_about(self, node: RealNode, do: str, **more: object) -> dict[str, Any]:
        """Raises ProvisionerError."""
        settings, hosts, connections = await self._open()
        name, _, entry = node.provider_id.rpartition("/")
        host = next((host for host in hosts if host.known_as == name), None)
        if host is None:
            raise ProvisionerError(
                f"Host {visible(name[:100])} of node {node.node_id} is no longer in the list of hosts.", "refused"
            )
        try:
            return await connections.ask(host, {**settings.request(host, do), "entry": entry, **more})
        except HostAway as error:
            raise error.as_provisioners() from error


def _found(host: Host, python: str, said: dict[str, Any], install: Installation | None) -> Finding:
    """Result of a check that a host has answered."""
    what = f"host {host.known_as}"
    version, problem = (visible(str(said.get(name) or ""))[:DETAIL_MAX].rstrip(".") for name in ("version", "problem"))
    busy = [node for node in _nodes(said) if node["phase"] != "ended"]
    now = f"has node {visible(busy[0]['node_id'])}" if busy else "free"
    if install is not None:
        if problem:
            return Finding(what, f"Tenuto cannot be installed: {problem}.")
        state = "installed" if said.get("ready") else "to be installed by its first node"
        return Finding(f"{what}: Tenuto {__version__} {state}, {now}")
    if not version:
        return Finding(
            what, f"{python} there cannot import Tenuto ({problem or 'no words'}): install it there, or set install or python."
        )
    if version != __version__:
        return Finding(what, f"It has Tenuto {version}, and the launcher {__version__}: install the same there, or set install.")
    return Finding(f"{what}: Tenuto {version}, {now}")


def _nodes(said: dict[str, Any]) -> list[dict[str, Any]]:
    """Nodes that a host speaks of, without what cannot be one."""
    found = said.get("nodes")
    names = ("cluster", "pool", "node_id", "entry", "phase", "detail")
    return [
        {"install": str(node.get("install") or "")[:DETAIL_MAX], **{name: node[name] for name in names}}
        for node in (found if isinstance(found, list) else [])
        if isinstance(node, dict)
        and all(isinstance(node.get(name), str) and len(node[name]) <= 500 for name in names)
        and node["phase"] in ("pending", "running", "ended")
    ]


async def _together(items: Sequence[Any], one: Callable[[Any], Awaitable[T]]) -> list[T]:
    slots = asyncio.Semaphore(TOGETHER_MAX)

    async def turn(item: Any) -> T:
        async with slots:
            return await one(item)

    return list(await asyncio.gather(*(turn(item) for item in items)))
