"""Calls to the Docker daemon, in threads of their own: a pull may take minutes, and the agent's other threads write to its disk.

The `docker` package is imported only here, and only by agents that run images. Its errors are OSErrors already.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tenuto.kernel.optional import NotInstalled, needed
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.runtimes.docker.presence import PING_SECONDS_MAX, DaemonAway, Presence
from tenuto.workers.agent.runtimes.runtime import RuntimeUnavailable

logger = logging.getLogger(__name__)
T = TypeVar("T")

CALL_SECONDS_MAX = 60
"""Longest call but a pull: a container is made in a fraction of a second, on a busy disk in some."""
CALLS_MAX = 8
"""Most calls at once: a node has some dozen slots, and the daemon works on few containers at a time."""
PULLS_AT_ONCE_MAX = 64
"""Most pulls at once: a registry that gives nothing holds one for minutes, and it must not be in the way of others."""
PULL_SECONDS_MAX = 600
"""Longest silence of the daemon while it pulls: unpacking a layer of many gigabytes is not reported."""
DAEMON_SECONDS_MAX = 20.0
"""Longest wait for the daemon at the agent's start: both may be started with the machine."""
AGAIN_SECONDS = 1.0
LABEL_AGENT, LABEL_ALLOCATION, LABEL_PACKAGES = "tenuto.agent", "tenuto.allocation", "tenuto.packages"
LABEL_WARM = "tenuto.warm"
"""Labels of our containers: the agent's directory, the allocation, the version of our packages; the name of a warm one, which
has no allocation on a label, because several follow each other in it."""
ALIVE = frozenset({"created", "running", "paused", "restarting", "removing"})
"""States of a container whose processes run, or may begin to."""


class Engine:
    def __init__(self, url: str, directory: str) -> None:
        """`directory`: the agent's, which marks its containers."""
        self._url, self._directory = url, directory
        self._connected: Any = None
        self._presence: Presence | None = None
        self._pool = ThreadPoolExecutor(CALLS_MAX, "docker")
        self._pulls = ThreadPoolExecutor(PULLS_AT_ONCE_MAX, "docker-pull")
        self._closing = threading.Event()
        self._watching: Any = None
        self.changed = Changed()
        """Signal that a container ended, or that the daemon answers again after an interruption."""
        self.changes_shares = True
        """False once the daemon has shown that it never changes a container's share of the processors."""

    @property
    def _client(self) -> Any:
        """Raises DaemonAway."""
        if self._connected is None or self.away:
            raise DaemonAway(self.away)
        return self._connected

    @property
    def away(self) -> str:
        """Sentence that says that the daemon does not answer; empty while it does."""
        return self._presence.away if self._presence is not None else ""

    def keep_tidy(self, tidy: Callable[[], Awaitable[None]]) -> None:
        """Has `tidy` called when the daemon is back, and from time to time. It raises OSError."""
        assert self._presence is not None
        self._presence.begin(tidy)

    async def open(self, *, required: bool = True) -> None:
        """Connects to the daemon. Raises RuntimeUnavailable. `required`: False if the daemon may be unreachable now, and start
        later."""
        try:
            _docker()
        except NotInstalled as error:
            raise RuntimeUnavailable(f"TENUTO_DOCKER_URL is set, but {error}.") from error
        deadline = time.monotonic() + (DAEMON_SECONDS_MAX if required else 0.0)
        while self._connected is None:
            try:
                await self._run(self._connect, CALL_SECONDS_MAX if required else PING_SECONDS_MAX)
            except (OSError, ValueError) as error:
                if time.monotonic() > deadline or isinstance(error, ValueError):
                    if not required and not isinstance(error, ValueError):
                        logger.warning("%s: its containers are looked for when it is back", error)
                        break
                    raise RuntimeUnavailable(
                        f"TENUTO_DOCKER_URL is {self._url}, but no Docker daemon answers there ({error}). Start it, or unset the "
                        "variable to run no images."
                    ) from error
                await asyncio.sleep(AGAIN_SECONDS)
        self._presence = Presence(self._url, self._ping, here=self._connected is not None)
        loop = asyncio.get_running_loop()
        notify = self.changed.notify
        thread = threading.Thread(target=self._watch, args=(lambda: loop.call_soon_threadsafe(notify),), daemon=True)
        thread.start()

    def _connect(self, seconds_max: float) -> None:
        """Raises OSError."""
        docker = _docker()
        try:
            client = docker.APIClient(self._url, version="auto", timeout=seconds_max)
        except docker.errors.DockerException as error:
            raise OSError(str(error)) from error
        client.timeout, self._connected = CALL_SECONDS_MAX, client

    def _ping(self) -> None:
        """Raises OSError."""
        if self._connected is None:
            self._connect(PING_SECONDS_MAX)
        with _docker().APIClient(self._url, version=self._connected.api_version, timeout=PING_SECONDS_MAX) as client:
            client.ping()

    def close(self) -> None:
        self._closing.set()
        if self._presence is not None:
            self._presence.close()
        if self._watching is not None:
            self._watching.close()
        if self._connected is not None:
            self._connected.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pulls.shutdown(wait=False, cancel_futures=True)

    async def _run(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(*args, **options))

    def _watch(self, notify: Callable[[], object]) -> None:
        """Notes each end of a container of ours. `wait` looks for itself from time to time, so a lost event costs only time."""
        filters = {"type": "container", "event": ["die", "destroy"], "label": f"{LABEL_AGENT}={self._directory}"}
        while not self._closing.is_set():
            try:
                client = _docker().APIClient(self._url, version=self._client.api_version, timeout=None)
                with client:
                    self._watching = client.events(filters=filters, decode=True)
                    for _ in self._watching:
                        notify()
            except Exception as error:  # the daemon stops, or the stream was closed by `close`
                if not self._closing.is_set():
                    logger.debug("the events of the Docker daemon end: %s", error)
            try:
                notify()
            except RuntimeError:  # the agent's event loop is closed
                return
            self._closing.wait(AGAIN_SECONDS)

    async def image(self, name: str) -> Mapping[str, Any] | None:
        """Description of an image of the node; None if there is none of this name. Raises OSError."""
        try:
            found: Mapping[str, Any] = await self._run(self._client.inspect_image, name)
            return found
        except _docker().errors.NotFound:
            return None

    async def image_ids(self) -> set[str]:
        """All images of the node. Raises OSError."""
        return set(await self._run(self._client.images, all=True, quiet=True))

    async def pull(
        self, name: str, credentials: Mapping[str, str] | None = None, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Pulls an image from its registry. `credentials`: for the registry; the daemon does not keep them. None: none, even if
        the agent's account has a config.json of Docker's. `wanted`: returns False once no run waits for the image. Raises
        OSError, with the daemon's own words."""

        def pull() -> None:
            docker = _docker()
            repository, tag = docker.utils.parse_repository_tag(name)
            with docker.APIClient(self._url, version=self._client.api_version, timeout=PULL_SECONDS_MAX) as client:
                options = {"auth_config": dict(credentials or {}), "stream": True, "decode": True}
                for line in client.pull(repository, tag=tag or "latest", **options):
                    if self._closing.is_set():
                        raise OSError("the agent is stopping")
                    if not wanted():
                        raise OSError("no run waits for it any more")
                    if "error" in line:
                        raise OSError(str(line["error"]))

        await asyncio.get_running_loop().run_in_executor(self._pulls, pull)

    async def create(self, name: str, description: Mapping[str, Any]) -> str:
        """Id of the new container. One of the same name, left by an earlier try, is removed. Raises OSError."""
        docker = _docker()
        try:
            made = await self._run(self._client.create_container_from_config, description, name)
        except docker.errors.APIError as error:
            if not _name_is_taken(error):
                raise
            await self.remove(name)
            made = await self._run(self._client.create_container_from_config, description, name)
        return str(made["Id"])

    async def attach(self, container: str) -> Any:
        """The standard input of a container that was not started yet, as a socket. Raises OSError."""

        def attach() -> Any:
            opened = self._client.attach_socket(container, {"stdin": 1, "stream": 1})
            return getattr(opened, "_sock", opened)

        return await self._run(attach)

    async def start(self, container: str) -> None:
        """Raises OSError."""
        await self._run(self._client.start, container)

    async def share_processors(self, container: str, shares: int) -> bool:
        """Changes the share of the processors that a container gets while others compete for them. False: this daemon never does,
        as podman before 5.1. Raises OSError."""
        try:
            await self._run(self._client.update_container, container, cpu_shares=shares)
        except _docker().errors.APIError as error:
            unknown = error.status_code in (404, 405, 501) or "not supported" in explanation(error).lower()
            if not unknown or await self.state(container) is None:
                raise
            self.changes_shares = False
        return self.changes_shares

    async def state(self, container: str, *, patient: bool = False) -> Mapping[str, Any] | None:
        """State of a container, with its MemoryLimit in bytes (0: none); None if there is none. `patient`: waits for a daemon
        that does not answer. Raises OSError."""
        errors, presence = _docker().errors, self._presence
        assert presence is not None
        while True:
            answered = presence.answered.next()
            try:
                found = await self._run(self._client.inspect_container, container)
                return {**found["State"], "MemoryLimit": found["HostConfig"].get("Memory") or 0}
            except errors.NotFound:
                return None
            except errors.APIError:
                raise
            except OSError as error:
                if not patient:
                    raise
                logger.debug("the state of the container %s is not known: %s", container, error)
            await answered.wait()

    async def has_network(self, name: str) -> bool:
        """True if containers can be on this network: also if the node belongs to a swarm, which may know it. Raises OSError."""
        try:
            await self._run(self._client.inspect_network, name)
        except _docker().errors.NotFound:
            about = await self._run(self._client.info)
            return bool((about.get("Swarm") or {}).get("LocalNodeState") == "active")
        return True

    async def address(self, container: str) -> str:
        """Address of a running container on its network; empty if it has none. Raises OSError."""
        found = await self._run(self._client.inspect_container, container)
        addresses = [
            str(place.get("IPAddress") or place.get("GlobalIPv6Address") or "")
            for place in found["NetworkSettings"]["Networks"].values()
        ]
        return next(filter(None, addresses), "")

    async def said(self, container: str) -> str:
        """Last lines that its first process printed. Raises OSError."""
        printed: bytes = await self._run(self._client.logs, container, tail=20)
        return printed.decode(errors="replace").strip()

    async def containers(self) -> Sequence[Mapping[str, Any]]:
        """The agent's containers in any state. Raises OSError."""
        labels = [f"{LABEL_AGENT}={self._directory}"]
        found: Sequence[Mapping[str, Any]] = await self._run(self._client.containers, all=True, filters={"label": labels})
        return found

    async def has_containers(self) -> bool:
        """True if the agent has containers, or if the daemon does not answer."""
        try:
            return self._connected is None or bool(self.away) or bool(await self.containers())
        except OSError:
            return True

    async def kill(self, container: str) -> None:
        """SIGKILL; does nothing if the container does not run. Raises OSError."""
        docker = _docker()
        try:
            await self._run(self._client.kill, container)
        except docker.errors.APIError as error:
            if not _does_not_run(error):
                raise

    async def remove(self, container: str) -> None:
        """Removes a container, killed if it runs; does nothing if there is none. Raises OSError."""
        docker = _docker()
        try:
            await self._run(self._client.remove_container, container, force=True, v=True)
        except docker.errors.APIError as error:
            if error.status_code not in (404, 409):  # gone, or being removed
                raise


def _does_not_run(error: Any) -> bool:
    """Docker answers 404 or 409; podman 4.3 has 500 for a container that has ended."""
    said = explanation(error).lower()
    return bool(error.status_code in (404, 409) or (error.status_code == 500 and "can only kill running containers" in said))


def _name_is_taken(error: Any) -> bool:
    """Docker answers 409; podman, until 2026, 500 with a sentence."""
    said = explanation(error).lower()
    return bool(error.status_code == 409 or (error.status_code == 500 and "name" in said and "already in use" in said))


def explanation(error: OSError) -> str:
    """The daemon's own words about an error."""
    return str(getattr(error, "explanation", None) or error).strip().rstrip(".")


def _docker() -> Any:
    return needed("docker")
