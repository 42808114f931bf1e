"""Pulls that several runs wait for, or nobody any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tenuto.schemas.config.environment import Environment
from tenuto.workers.agent.runtimes.docker import images as images_module
from tenuto.workers.agent.runtimes.docker.engine import Engine
from tenuto.workers.agent.runtimes.docker.images import Images
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable
from tests.support.waiting import until_on_loop


class Registry:
    """An engine whose pulls end when they are told to, or when nobody wants them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.given_up: list[str] = []
        self.there: set[str] = set()

    async def image(self, name: str) -> Mapping[str, Any] | None:
        return {"Id": name} if name in self.there else None

    async def image_ids(self) -> set[str]:
        return set(self.there)

    async def pull(self, name: str, credentials: object, wanted: Callable[[], bool]) -> None:
        self.begun.append(name)
        while name not in self.there:
            if not wanted():
                self.given_up.append(name)
                raise OSError("no run waits for it any more")
            await asyncio.sleep(0)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_pull_goes_on_for_whoever_waits_and_ends_with_the_last(tmp_path: Path) -> None:
    registry = Registry()
    images = Images(cast(Engine, registry), tmp_path / "images.json")
    slow = Environment(image="example.com/slow:1")
    first, second = (asyncio.create_task(images.resolve(slow)) for _ in range(2))
    await settle()
    await cancel(first)
    await settle()
    assert (registry.begun, registry.given_up) == ([slow.image], []), "both wait for one, and one still does"
    await cancel(second)
    third = asyncio.create_task(images.resolve(slow))
    await settle()
    assert (registry.begun, registry.given_up) == ([slow.image] * 2, [slow.image])
    registry.there.add(str(slow.image))
    assert (await third).image_id == slow.image


async def test_what_a_registry_refuses_is_told_to_all_who_wait(tmp_path: Path) -> None:
    class Refusing(Registry):
        async def pull(self, name: str, credentials: object, wanted: Callable[[], bool]) -> None:
            await asyncio.sleep(0)
            raise OSError("manifest unknown")

    images = Images(cast(Engine, Refusing()), tmp_path / "images.json")
    answers = await asyncio.gather(*(images.resolve(Environment(image="x:1")) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [EnvironmentUnusable] * 3


async def test_a_pull_ahead_is_shared_by_the_run_that_needs_the_image(tmp_path: Path) -> None:
    registry = Registry()
    images = Images(cast(Engine, registry), tmp_path / "images.json", ahead="example.com/slow:1")
    images.pull_ahead()
    await settle()
    run = asyncio.create_task(images.resolve(Environment(image="example.com/slow:1")))
    await settle()
    assert (registry.begun, run.done()) == (["example.com/slow:1"], False)
    registry.there.add("example.com/slow:1")
    assert (await run).image_id == "example.com/slow:1"
    images.pull_ahead()
    await settle()
    assert registry.begun == ["example.com/slow:1"]
    await images.close()


async def test_a_pull_ahead_ends_with_its_agent_and_takes_nothing_from_a_run(tmp_path: Path) -> None:
    registry = Registry()
    images = Images(cast(Engine, registry), tmp_path / "images.json", ahead="example.com/slow:1")
    images.pull_ahead()
    await settle()
    await images.close()
    await settle()
    assert registry.given_up == ["example.com/slow:1"]
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_a_pull_ahead_that_fails_leaves_the_run_its_own_tries(tmp_path: Path) -> None:
    fails = asyncio.Event()

    class Late(Registry):
        async def pull(self, name: str, credentials: object, wanted: Callable[[], bool]) -> None:
            self.begun.append(name)
            if len(self.begun) == 1:
                await fails.wait()
                raise OSError("manifest unknown")
            self.there.add(name)

    registry = Late()
    images = Images(cast(Engine, registry), tmp_path / "images.json", ahead="x:1")
    images.pull_ahead()
    await settle()
    runs = [asyncio.create_task(images.resolve(Environment(image="x:1"))) for _ in range(2)]
    await settle()
    assert registry.begun == ["x:1"]
    fails.set()
    assert [image.image_id for image in await asyncio.gather(*runs)] == ["x:1", "x:1"]
    assert registry.begun == ["x:1"] * 2, "the runs share one, too"
    await images.close()


@pytest.mark.parametrize("name", ["", "no image", "-x", "away/always:1"])
async def test_what_cannot_be_pulled_ahead_is_no_error(tmp_path: Path, name: str) -> None:
    class Away(Registry):
        async def image(self, name: str) -> Mapping[str, Any] | None:
            raise OSError("the daemon does not answer")

    images = Images(cast(Engine, Away()), tmp_path / "images.json", ahead=name)
    images.pull_ahead()
    await settle()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await images.close()


async def test_a_pull_ahead_is_given_up_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module, "PULL_AHEAD_SECONDS_MAX", 0.01)
    registry = Registry()
    images = Images(cast(Engine, registry), tmp_path / "images.json", ahead="x:1")
    images.pull_ahead()
    await until_on_loop(lambda: registry.given_up)
    await images.close()
