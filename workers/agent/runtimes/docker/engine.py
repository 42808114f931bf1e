"""Calls to the Docker daemon, in threads of their own: a pull may take minutes, and the agent's other threads write to its disk.

The `docker` package is imported only here, and only by agents that run images. Its errors are OSErrors already.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tenuto.kernel.optional import NotInstalled, needed
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.runtimes.runtime import RuntimeUnavailable

logger = logging.getLogger(__name__)
T = TypeVar("T")

CALL_SECONDS_MAX = 60
"""Longest call but a pull: a container is made in a fraction of a second, on a busy disk in some."""
CALLS_MAX = 8
"""Most calls at once: a node has some dozen slots, and the daemon works on few containers at a time."""
PULL_SECONDS_MAX = 600
"""Longest silence of the daemon while it pulls: unpacking a layer of many gigabytes is not reported."""
DAEMON_SECONDS_MAX = 20.0
"""Longest wait for the daemon at the agent's start: both may be started with the machine."""
AGAIN_SECONDS = 1.0
LABEL_AGENT, LABEL_ALLOCATION, LABEL_PACKAGES = "tenuto.agent", "tenuto.allocation", "tenuto.packages"
"""Labels of our containers: the agent's directory, the allocation, the version of our packages in it."""
ALIVE = frozenset({"created", "running", "paused", "restarting", "removing"})
"""States of a container whose processes run, or may begin to."""


class Engine:
    def __init__(self, url: str, directory: str) -> None:
        """`directory`: of the agent, by which its containers are known."""
        self._url, self._directory = url, directory
        self._client: Any = None
        self._pool = ThreadPoolExecutor(CALLS_MAX, "docker")
        self._pulls = ThreadPoolExecutor(2, "docker-pull")
        self._closing = threading.Event()
        self._watching: Any = None
        self.changed = Changed()
        """Signal that a container ended, or that the daemon was away for a while."""

    async def open(self) -> None:
        """Connects to the daemon. Raises RuntimeUnavailable."""
        try:
            docker = _docker()
        except NotInstalled as error:
            raise RuntimeUnavailable(f"TENUTO_DOCKER_URL is set, but {error}.") from error
        deadline = time.monotonic() + DAEMON_SECONDS_MAX
        while self._client is None:
            try:
                self._client = await self._run(docker.APIClient, self._url, version="auto", timeout=CALL_SECONDS_MAX)
            except (docker.errors.DockerException, OSError, ValueError) as error:
                if time.monotonic() > deadline or isinstance(error, ValueError):
                    raise RuntimeUnavailable(
                        f"TENUTO_DOCKER_URL is {self._url}, but no Docker daemon answers there ({error}). Start it, or unset the "
                        "variable to run no images."
                    ) from error
                await asyncio.sleep(AGAIN_SECONDS)
        loop = asyncio.get_running_loop()
        notify = self.changed.notify
        thread = threading.Thread(target=self._watch, args=(lambda: loop.call_soon_threadsafe(notify),), daemon=True)
        thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._watching is not None:
            self._watching.close()
        if self._client is not None:
            self._client.close()
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

    async def pull(self, name: str) -> None:
        """Asks the registry for an image. Raises OSError, with the daemon's own words."""

        def pull() -> None:
            docker = _docker()
            repository, tag = docker.utils.parse_repository_tag(name)
            with docker.APIClient(self._url, version=self._client.api_version, timeout=PULL_SECONDS_MAX) as client:
                for line in client.pull(repository, tag=tag or "latest", stream=True, decode=True):
                    if self._closing.is_set():
                        raise OSError("the agent is stopping")
                    if "error" in line:
                        raise OSError(str(line["error"]))

        await asyncio.get_running_loop().run_in_executor(self._pulls, pull)

    async def create(self, name: str, description: Mapping[str, Any]) -> str:
        """Id of the new container. One of the same name, left by an earlier try, is removed. Raises OSError."""
        docker = _docker()
        try:
            made = await self._run(self._client.create_container_from_config, description, name)
        except docker.errors.APIError as error:
            if error.status_code != 409:
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

    async def state(self, container: str) -> Mapping[str, Any] | None:
        """State of a container, with its MemoryLimit in bytes (0: none); None if there is none. Raises OSError."""
        try:
            found = await self._run(self._client.inspect_container, container)
            return {**found["State"], "MemoryLimit": found["HostConfig"].get("Memory") or 0}
        except _docker().errors.NotFound:
            return None

    async def said(self, container: str) -> str:
        """What its first process printed. Raises OSError."""
        printed: bytes = await self._run(self._client.logs, container, tail=20)
        return printed.decode(errors="replace").strip()

    async def containers(self, allocation_id: str | None = None) -> Sequence[Mapping[str, Any]]:
        """The agent's containers in any state, or those of one allocation. Raises OSError."""
        labels = [f"{LABEL_AGENT}={self._directory}"] + ([f"{LABEL_ALLOCATION}={allocation_id}"] if allocation_id else [])
        found: Sequence[Mapping[str, Any]] = await self._run(self._client.containers, all=True, filters={"label": labels})
        return found

    async def kill(self, container: str) -> None:
        """SIGKILL; does nothing if the container does not run. Raises OSError."""
        docker = _docker()
        try:
            await self._run(self._client.kill, container)
        except docker.errors.APIError as error:
            if error.status_code not in (404, 409):
                raise

    async def remove(self, container: str) -> None:
        """Removes a container, killed if it runs; does nothing if there is none. Raises OSError."""
        docker = _docker()
        try:
            await self._run(self._client.remove_container, container, force=True, v=True)
        except docker.errors.APIError as error:
            if error.status_code not in (404, 409):  # gone, or being removed
                raise


def explanation(error: OSError) -> str:
    """The daemon's own words about an error."""
    return str(getattr(error, "explanation", None) or error).strip().rstrip(".")


def _docker() -> Any:
    return needed("docker")
