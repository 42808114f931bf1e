"""Images: found on the node, or pulled, before a run starts."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from tenuto.schemas.config.environment import Environment
from tenuto.workers.agent.runtimes.docker.engine import Engine, explanation
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable

logger = logging.getLogger(__name__)

PULLS_MAX = 3
"""Most tries of one start to pull an image: a registry that is away for longer ends the trial with its words."""
PULL_AGAIN_SECONDS = 2.0
"""Pause after the first try; each later one is twice as long."""
_FINAL = (
    "not found",
    "does not exist",
    "denied",
    "unauthorized",
    "manifest unknown",
    "no matching manifest",
    "invalid reference",
)
"""Words of registries and daemons about images that another try would not find either."""


@dataclass(frozen=True)
class Image:
    name: str
    """Name as the configuration has it."""
    image_id: str
    """Digest of the image's own description: what exactly is started, even if the name means another image by then."""
    resolved: str
    """For the record: the name with the digest that the registry knows it by, or with the image's own where it never was in a
    registry."""


class Images:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pulling: dict[str, asyncio.Task[None]] = {}
        """Pulls that go on, by image: trials that start together share one."""

    async def resolve(self, environment: Environment) -> Image:
        """The image on this node, pulled as the configuration asks. Raises OSError and EnvironmentUnusable."""
        name = environment.image
        assert name is not None
        found = await self._engine.image(name)
        if environment.pull == "always" or (found is None and environment.pull == "missing"):
            await self._pull(name)
            found = await self._engine.image(name)
        if found is None:
            raise EnvironmentUnusable(
                f"The image {name} is not on this agent's node, and environment.pull is {environment.pull}: load it there "
                "(docker load, docker pull), or set environment.pull: missing."
            )
        digests = sorted(found.get("RepoDigests") or ())
        own = [digest for digest in digests if digest.partition("@")[0] == _repository(name)] or digests
        return Image(name, str(found["Id"]), own[0] if own else f"{name.partition('@')[0]}@{found['Id']}")

    async def _pull(self, name: str) -> None:
        pulling = self._pulling.get(name)
        if pulling is None:
            pulling = self._pulling[name] = asyncio.create_task(self._try_pull(name), name=f"pull-{name}")
            pulling.add_done_callback(lambda _: self._pulling.pop(name, None))
        await asyncio.shield(pulling)  # a run that is killed meanwhile does not take the image from others

    async def _try_pull(self, name: str) -> None:
        pause = PULL_AGAIN_SECONDS
        for left in reversed(range(PULLS_MAX)):
            try:
                logger.info("pulling the image %s", name)
                await self._engine.pull(name)
                return
            except OSError as error:
                said = explanation(error)
                if not left or any(words in said.lower() for words in _FINAL):
                    raise EnvironmentUnusable(
                        f"The image {name} cannot be pulled: {said[:500]}. Check its name, and that the agent's Docker daemon "
                        "may read it."
                    ) from error
                logger.warning("the image %s cannot be pulled yet: %s", name, said)
            await asyncio.sleep(pause)
            pause *= 2


def _repository(name: str) -> str:
    """The name without tag and digest."""
    name = name.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
