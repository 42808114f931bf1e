"""Images: found on the node, or pulled, before a run starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

from tenuto.kernel.tasks import stop_task
from tenuto.schemas.config.environment import Environment
from tenuto.schemas.text import visible
from tenuto.workers.agent.runtimes.docker.credentials import BadCredentials, Credentials, credentials_for, registry_of, without
from tenuto.workers.agent.runtimes.docker.engine import Engine, explanation
from tenuto.workers.agent.runtimes.docker.private_images import PrivateImages, Pull
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable

logger = logging.getLogger(__name__)

PULLS_MAX = 3
"""Most tries of one start to pull an image: if a registry is unreachable for longer, the trial ends with its error."""
PULL_AGAIN_SECONDS = 2.0
"""Pause after the first try; each later one is twice as long."""
PULL_AHEAD_SECONDS_MAX = 1_800.0
"""Longest pull of an image that no run needs yet: one of 20 GB takes ten minutes at 30 MB/s. A run that waits for it goes on."""
_FINAL = (
    "not found",
    "does not exist",
    "denied",
    "unauthorized",
    "no basic auth credentials",
    "manifest unknown",
    "no matching manifest",
    "invalid reference",
)
"""Words of registries and daemons about images that another try would not find either."""


@dataclass(frozen=True)
class Image:
    name: str
    """Name in the configuration."""
    image_id: str
    """Digest of the image's own description: exactly this image is started, even if the name has moved to another by then."""
    resolved: str
    """Name for the record: with the digest that the registry knows it by, or with the image's own if it was never in a
    registry."""


@dataclass(frozen=True)
class _Asker:
    """User and credentials with which a registry is asked for an image."""

    user: str = ""
    """User whose secret has the credentials; empty: they are the operator's, or there are none."""
    secret: str = ""
    """Reference to that secret."""
    credentials: Credentials | None = None


class _Pulling:
    """A pull that goes on as long as a run waits for it."""

    def __init__(self, pull: Callable[[_Pulling], Coroutine[object, object, None]], name: str, *, ahead: bool) -> None:
        self.ahead = ahead
        """True: it began before a run needed the image, so that its tries are not a run's."""
        self.runs = 0
        """Number of runs that wait for it."""
        self.task = asyncio.create_task(pull(self), name=name)
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # perhaps no run waits


class Images:
    def __init__(self, engine: Engine, notes: Path, credentials_file: str = "", ahead: str = "") -> None:
        """`notes`: file of the agent. `credentials_file`: the operator's credentials for registries; empty: none. `ahead`: image
        that `pull_ahead` pulls; empty: none."""
        self._engine, self._private, self._credentials_file = engine, PrivateImages(notes), credentials_file
        self._pulling: dict[tuple[str, str], _Pulling] = {}
        """Pulls that go on, by image and secret: trials that start together share one."""
        self._settling, self._settled = asyncio.Lock(), False
        self._ahead = ahead
        self._pulling_ahead: asyncio.Task[None] | None = None

    def pull_ahead(self) -> None:
        """Begins to pull the image that runs will need, if the node does not have it. Does not wait; a run that needs it shares
        the pull."""
        if self._ahead and self._pulling_ahead is None:
            self._pulling_ahead = asyncio.create_task(self._pulled_ahead(self._ahead), name=f"pull-ahead-{self._ahead}")

    async def _pulled_ahead(self, name: str) -> None:
        """Raises nothing: whatever hinders it, the run that needs the image finds and tells."""
        try:
            async with asyncio.timeout(PULL_AHEAD_SECONDS_MAX):
                asker = self._asker(Environment(image=name), "")
                await self._settle()
                if await self._engine.image(name) is None:
                    await self._pull(name, asker, ahead=True)
        except (OSError, EnvironmentUnusable, TimeoutError, ValueError) as error:
            logger.info("the image %s is not pulled ahead: %s", visible(name), str(error) or type(error).__name__)

    async def close(self) -> None:
        await stop_task(self._pulling_ahead)

    async def resolve(self, environment: Environment, secret_value: str = "") -> Image:
        """The image on this node, pulled as the configuration asks. `secret_value`: of its registry_auth. Raises OSError and
        EnvironmentUnusable."""
        name = environment.image
        assert name is not None
        await self._settle()
        asker = self._asker(environment, secret_value)
        found = await self._engine.image(name)
        others = found is not None and str(found["Id"]) in await self._hidden(asker.user)
        if others and environment.pull == "never":
            raise EnvironmentUnusable(
                f"The image {name} came to this agent's node by another user's credentials, so the registry has to be asked "
                "whether you may have it: leave out environment.pull: never, and name your credentials in "
                "environment.registry_auth."
            )
        if environment.pull == "always" or others or (found is None and environment.pull == "missing"):
            await self._pull(name, asker)
            found = await self._engine.image(name)
            if found is not None and str(found["Id"]) in await self._hidden(asker.user):
                raise EnvironmentUnusable(
                    f"The image {name} is one that came to this agent's node by another user's credentials, from another "
                    "registry: name it as it is called there, with your credentials in environment.registry_auth."
                )
        if found is None:
            raise EnvironmentUnusable(
                f"The image {name} is not on this agent's node, and environment.pull is {environment.pull}: load it there "
                "(docker load, docker pull), or set environment.pull: missing."
            )
        digests = sorted(found.get("RepoDigests") or ())
        own = [digest for digest in digests if digest.partition("@")[0] == _repository(name)] or digests
        return Image(name, str(found["Id"]), own[0] if own else f"{name.partition('@')[0]}@{found['Id']}")

    def _asker(self, environment: Environment, secret_value: str) -> _Asker:
        """Raises OSError and EnvironmentUnusable."""
        name, reference = environment.image or "", environment.registry_auth
        if reference:
            user, _, secret = reference.rpartition("/")
            try:
                credentials = credentials_for(name, secret_value)
            except BadCredentials as error:
                raise EnvironmentUnusable(f"The secret {secret}, which environment.registry_auth names, {error}.") from error
            if credentials is None:
                raise EnvironmentUnusable(
                    f"The secret {secret}, which environment.registry_auth names, has nothing for the registry "
                    f"{registry_of(name)} of the image {name}."
                )
            return _Asker(user, reference, credentials)
        if not self._credentials_file:
            return _Asker()
        try:
            return _Asker(credentials=credentials_for(name, Path(self._credentials_file).read_text()))
        except BadCredentials as error:
            raise OSError(f"the file that TENUTO_DOCKER_CREDENTIALS_FILE names {error}") from error

    async def _hidden(self, user: str) -> set[str]:
        """Images of the node that the user may not use without asking their registry."""
        found = {image_id for image_id in self._private.images if not self._private.may_use(image_id, user)}
        for pull in self._private.pulling:
            image_id = await self._id(pull.name)
            if image_id not in (None, pull.open_image) and not (user and self._private.may_use(image_id or "", user)):
                found.add(image_id or "")
        return found

    async def _id(self, name: str) -> str | None:
        found = await self._engine.image(name)
        return str(found["Id"]) if found is not None else None

    async def _settle(self) -> None:
        """Hides images of pulls whose agent died in the middle from all users, until the registry allows them."""
        async with self._settling:
            if self._settled:
                return
            for pull in self._private.pulling:
                image_id = await self._id(pull.name)
                self._private.end(pull, None if image_id == pull.open_image else image_id)
            self._private.keep(await self._engine.image_ids())
            self._settled = True

    async def _pull(self, name: str, asker: _Asker, *, ahead: bool = False) -> None:
        key = name, asker.secret
        pulling = self._pulling.get(key)
        if pulling is None or pulling.task.done():
            pulling = _Pulling(lambda pulling: self._brought(name, asker, pulling), f"pull-{name}", ahead=ahead)
            self._pulling[key] = pulling
        pulling.runs += 1
        try:
            await asyncio.shield(pulling.task)  # a run that is killed meanwhile does not take the image from others
        except EnvironmentUnusable:
            if ahead or not pulling.ahead:
                raise
            await self._pull(name, asker)  # the run has tries of its own
        finally:
            pulling.runs -= 1
            if not pulling.runs and self._pulling.get(key) is pulling:
                del self._pulling[key]  # it is given up, and the next run begins anew

    async def _brought(self, name: str, asker: _Asker, pulling: _Pulling) -> None:
        """Pulls the image, and notes the user whose credentials brought it."""
        registry = registry_of(name)
        if not asker.user:
            await self._try_pull(name, asker.credentials, pulling)
            if (image_id := await self._id(name)) is not None:
                self._private.give_to_all(image_id, registry)
            return
        before = await self._engine.image_ids() - await self._hidden("")  # everybody may use these, and so it stays
        now = await self._id(name)
        pull = Pull(name, registry, now if now is not None and now in before else "")
        self._private.begin(pull)
        try:
            await self._try_pull(name, asker.credentials, pulling)
        except EnvironmentUnusable:
            self._private.end(pull)
            raise
        image_id = await self._id(name)
        self._private.end(pull, None if image_id in before else image_id, asker.user)

    async def _try_pull(self, name: str, credentials: Credentials | None, pulling: _Pulling) -> None:
        pause = PULL_AGAIN_SECONDS
        for left in reversed(range(PULLS_MAX)):
            try:
                logger.info("pulling the image %s", name)
                await self._engine.pull(name, credentials, lambda: pulling.runs > 0)
                return
            except OSError as error:
                said = without(explanation(error), credentials)
                if not left or not pulling.runs or any(words in said.lower() for words in _FINAL):
                    known = "" if credentials else ", with environment.registry_auth if it is private"
                    raise EnvironmentUnusable(
                        f"The image {name} cannot be pulled: {said[:500]}. Check its name, and that the agent's Docker daemon "
                        f"may read it{known}."
                    ) from None
                logger.warning("the image %s cannot be pulled yet: %s", name, said)
            await asyncio.sleep(pause)
            pause *= 2


def _repository(name: str) -> str:
    """The name without tag and digest."""
    name = name.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
