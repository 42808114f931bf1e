"""Images of a registry that asks for a password: who gets them, from a real registry by a real daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tenuto.kernel.settings import Settings
from tenuto.schemas.config.environment import Environment
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.docker.engine import Engine
from tenuto.workers.agent.runtimes.docker.images import Image, Images
from tenuto.workers.agent.runtimes.docker.opening import opened
from tenuto.workers.agent.runtimes.opening import Opening
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable
from tests.support import private_registry
from tests.support.docker_daemon import IMAGE, Daemon
from tests.support.private_registry import OTHER_PASSWORD, OTHER_USER, PASSWORD, USER, Registry
from tests.support.waiting import SECONDS_MAX

pytestmark = pytest.mark.real_part(private_registry.lack())
OLGAS = json.dumps({"username": USER, "password": PASSWORD})
PAULS = json.dumps({"username": OTHER_USER, "password": OTHER_PASSWORD})


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with private_registry.registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture
async def engine(docker_daemon: Daemon, tmp_path: Path) -> AsyncIterator[Engine]:
    engine = Engine(docker_daemon.url, str(tmp_path))
    await engine.open()
    yield engine
    engine.close()


@pytest.fixture
def images(engine: Engine, tmp_path: Path) -> Images:
    return Images(engine, tmp_path / "images.json")


async def get(images: Images, name: str, user: str = "", secret: str = "", pull: str = "missing") -> Image:
    auth = {"registry_auth": f"{user}/registry"} if user else {}
    return await images.resolve(Environment.model_validate({"image": name, "pull": pull, **auth}), secret)


async def refused(images: Images, name: str, user: str = "", secret: str = "", pull: str = "missing") -> str:
    with pytest.raises(EnvironmentUnusable) as error:
        await get(images, name, user, secret, pull)
    return str(error.value)


async def dying_engine(daemon: Daemon, directory: Path) -> tuple[Engine, asyncio.Event]:
    """An engine whose agent is killed after a pull and before it has noted what that brought; the event comes then."""
    pulled = asyncio.Event()

    class Dies(Engine):
        async def pull(
            self, name: str, credentials: Mapping[str, str] | None = None, wanted: Callable[[], bool] = lambda: True
        ) -> None:
            await super().pull(name, credentials, wanted)
            pulled.set()
            await asyncio.Event().wait()

    dying = Dies(daemon.url, str(directory))
    await dying.open()
    return dying, pulled


async def test_an_image_is_for_those_whose_credentials_its_registry_accepts(
    docker_daemon: Daemon, registry: Registry, images: Images, engine: Engine, tmp_path: Path
) -> None:
    name = registry.store(docker_daemon.client, "team/private")
    words = await refused(images, name)
    assert words.startswith(f"The image {name} cannot be pulled: ")
    assert "environment.registry_auth" in words
    assert "cannot be pulled" in await refused(images, name, "olga", json.dumps({"username": USER, "password": "wrong-word"}))
    assert "wrong-word" not in await refused(images, name, "olga", json.dumps({"username": USER, "password": "wrong-word"}))

    got = await get(images, name, "olga", OLGAS)
    assert got.resolved.startswith(f"{registry.host}/team/private@sha256:")
    by_id = got.image_id
    docker_daemon.client.tag(got.image_id, "alias/of", tag="1")
    for other in (name, by_id, "alias/of:1"):
        assert await refused(images, other), "it is on the node now, and still asked for"
        assert "another user's credentials" in await refused(images, other, pull="never")
    assert (await get(images, name, "olga", OLGAS, "never")).image_id == by_id, "it is hers, whatever its registry does now"
    assert (await get(images, name, "paul", PAULS)).image_id == by_id
    assert (await get(images, name, "paul", PAULS, "never")).image_id == by_id

    assert PASSWORD not in (tmp_path / "images.json").read_text()
    later = Images(engine, tmp_path / "images.json")
    assert await refused(later, name), "the next agent knows it, too"
    assert (await get(later, IMAGE, pull="never")).image_id, "what the operator has loaded is for all"
    docker_daemon.client.remove_image("alias/of:1")


async def test_an_image_that_came_while_the_agent_was_killed_is_for_nobody_yet(
    docker_daemon: Daemon, registry: Registry, images: Images, engine: Engine, tmp_path: Path
) -> None:
    name = registry.store(docker_daemon.client, "team/interrupted")
    dying, pulled = await dying_engine(docker_daemon, tmp_path)
    pulling = asyncio.create_task(get(Images(dying, tmp_path / "images.json"), name, "olga", OLGAS))
    await pulled.wait()
    assert await refused(images, name), "nor before its end is noted"
    pulling.cancel()
    dying.close()
    later = Images(engine, tmp_path / "images.json")
    assert await refused(later, name)
    assert await get(later, name, "olga", OLGAS)
    assert await get(later, name, "olga", OLGAS, "never")


async def test_what_everybody_may_have_stays_so(
    docker_daemon: Daemon, registry: Registry, images: Images, engine: Engine, tmp_path: Path
) -> None:
    """An image that the operator has loaded, and that a user pulls again with credentials."""
    name = registry.store(docker_daemon.client, "team/loaded")
    docker_daemon.client.pull(name.rpartition(":")[0], tag="1", auth_config={"username": USER, "password": PASSWORD})
    assert await get(images, name, pull="never")
    assert await get(images, name, "olga", OLGAS, "always")
    assert await get(images, name, pull="never")
    dying, pulled = await dying_engine(docker_daemon, tmp_path)
    pulling = asyncio.create_task(get(Images(dying, tmp_path / "images.json"), name, "olga", OLGAS, "always"))
    await pulled.wait()
    assert await get(Images(engine, tmp_path / "images.json"), name, pull="never"), (
        "also after an agent that was killed meanwhile"
    )
    pulling.cancel()
    dying.close()


async def test_another_registry_cannot_give_an_image_away(
    docker_daemon: Daemon, registry: Registry, images: Images, tmp_path: Path
) -> None:
    """A daemon takes an image that it has from any registry that names its digest."""
    name = registry.store(docker_daemon.client, "team/kept")
    got = await get(images, name, "olga", OLGAS)
    (tmp_path / "second").mkdir()
    with private_registry.registry(tmp_path / "second") as second:
        elsewhere = f"{second.host}/mine:1"
        docker_daemon.client.tag(got.image_id, f"{second.host}/mine", tag="1")
        second.push(docker_daemon.client, elsewhere)
        words = await refused(images, elsewhere, "paul", PAULS)
        assert "from another registry" in words
    assert await refused(images, name)


async def test_the_operators_credentials_are_for_all(
    docker_daemon: Daemon, registry: Registry, engine: Engine, tmp_path: Path
) -> None:
    name = registry.store(docker_daemon.client, "team/for-all")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"auths": {registry.host: {"auth": "b2xnYTp3b3JkLW9mLW9sZ2E="}}}))
    images = Images(engine, tmp_path / "images.json", str(file))
    assert await get(images, name)
    assert await get(images, name, pull="never")


async def test_an_agent_begins_to_pull_an_image_as_it_starts(
    docker_daemon: Daemon, registry: Registry, engine: Engine, tmp_path: Path
) -> None:
    """With the operator's credentials: those of users come with their trials."""
    name = registry.store(docker_daemon.client, "team/ahead")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"auths": {registry.host: {"username": USER, "password": PASSWORD}}}))
    given = {"DOCKER_URL": docker_daemon.url, "DOCKER_PULL_IMAGE": name, "DOCKER_CREDENTIALS_FILE": str(file)}
    settings = Settings.from_environment({f"TENUTO_{variable}": value for variable, value in given.items()})
    runtime = opened(Opening(settings, AgentNode("a", tmp_path), None, (), {}))
    assert runtime is not None
    runtime._images._engine = engine
    await runtime.warm_up()
    assert runtime._images._pulling_ahead is not None
    async with asyncio.timeout(SECONDS_MAX):
        await runtime._images._pulling_ahead
    assert (await get(runtime._images, name, pull="never")).resolved.startswith(f"{registry.host}/team/ahead@sha256:")
    await runtime._images.close()
    runtime._engine.close()
