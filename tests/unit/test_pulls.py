"""Pulls that several runs wait for, or nobody any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from tenuto.schemas.config.environment import Environment
from tenuto.workers.agent.runtimes.docker.engine import Engine
from tenuto.workers.agent.runtimes.docker.images import Images
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable


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
