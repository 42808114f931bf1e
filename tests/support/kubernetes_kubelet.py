"""A kubelet for pods of the tests' API server: a container is a process of this machine, with the environment that its Secret and
its document give it, and is told by SIGTERM when the pod is deleted."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.services.launcher.adapters.provisioners.kubernetes.manifests import PACKAGES
from tests.support.kubernetes_api import KubernetesApi

LOOK_SECONDS = 0.05
END_SECONDS_MAX = 30.0


class Kubelet:
    """Runs pods in `default` until it is cancelled. The image of Tenuto is this machine's Python."""

    def __init__(
        self,
        api: KubernetesApi,
        directory: Path,
        python: str = sys.executable,
        *,
        images: Mapping[str, Path] | None = None,
        **more: str,
    ) -> None:
        """`directory`: has one for each pod, in place of the one that the document names. `python`: what containers run as
        `python`. `images`: directory of `python3` in each other image; those that are not named here cannot be pulled. `more`:
        variables of each container."""
        self._api, self._directory, self._python, self._more = api, directory, python, more
        self._images = images or {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                for pod in self._api.pods():
                    name = pod["metadata"]["name"]
                    if name not in self._running and _secret_of(pod) in self._api.objects:
                        self._running[name] = tasks.create_task(self._run(name, pod))
                await asyncio.sleep(LOOK_SECONDS)

    def said(self) -> str:
        return "\n".join(file.read_text(errors="replace") for file in sorted(self._directory.glob("*.log")))

    async def _run(self, name: str, pod: dict[str, Any]) -> None:
        [container] = pod["spec"]["containers"]
        own = self._directory / name
        if (first := pod["spec"].get("initContainers")) and container["image"] not in self._images:
            self._api.schedule(name)
            self._api.waits(name, "ErrImagePull", f'failed to pull image "{container["image"]}": not found')
            while not self._api.pod(name)["metadata"].get("deletionTimestamp"):  # noqa: ASYNC110 - the API has no events here
                await asyncio.sleep(LOOK_SECONDS)
            self._api.finish(name, 0)
            return
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TENUTO_")} | self._more
        data = self._api.objects[_secret_of(pod)]["data"]
        environment |= {key: base64.b64decode(value).decode() for key, value in data.items()}
        environment |= {item["name"]: item["value"] for item in container["env"]}
        environment |= {"TENUTO_AGENT_DIRECTORY": str(own), "HOME": os.environ["HOME"]}
        log, packages = self._directory / f"{name}.log", self._directory / f"{name}-packages"
        programs = {"python": self._python}
        if first:
            packages.mkdir()
            programs["python3"] = f"{self._images[container['image']]}/python3"
            environment["PATH"] = f"{self._images[container['image']]}:{environment['PATH']}"
            await self._bring(first[0]["command"], packages)
        words = [word.replace(PACKAGES, str(packages), 1) if word.startswith(PACKAGES) else word for word in container["command"]]
        command = [programs[words[0]], *words[1:]]
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=output, stderr=output)
        if ("pods", "default", name) not in self._api.objects:  # deleted while its process began
            await _end(process)
            return
        self._api.run(name)
        ended = asyncio.create_task(process.wait())
        try:
            while not ended.done() and not self._api.pod(name)["metadata"].get("deletionTimestamp"):
                await asyncio.wait({ended}, timeout=LOOK_SECONDS)
                self._api.logs[name] = log.read_text(errors="replace")
            if not ended.done():
                process.terminate()
            await asyncio.wait_for(ended, pod["spec"]["terminationGracePeriodSeconds"])
        finally:
            await _end(process)
        self._api.logs[name] = text = log.read_text(errors="replace")
        self._api.finish(name, ended.result(), message=text[-2_000:])

    async def _bring(self, command: list[str], packages: Path) -> None:
        """The container that comes before the agent's, with the pod's volume as its directory."""
        assert command == ["python", *command[1:-1], PACKAGES]
        process = await asyncio.create_subprocess_exec(self._python, *command[1:-1], str(packages))
        assert await process.wait() == 0


def _secret_of(pod: dict[str, Any]) -> tuple[str, str, str]:
    [container] = pod["spec"]["containers"]
    [source] = container["envFrom"]
    return "secrets", "default", source["secretRef"]["name"]


async def _end(process: asyncio.subprocess.Process) -> None:
    """So that nothing that the agent began is left."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_SECONDS_MAX)
        process.kill()
