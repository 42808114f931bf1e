"""People who wait for a node are told why its provider cannot be asked, and no longer when it can."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.schemas.node_questions import NodeWords
from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.adapters.provisioners import Finding, Order, Provisioner, ProvisionerError, RealNode
from tenuto.services.launcher.handlers.nodes import words_of
from tests.support.kept_nodes import KeptNodes, hurry, until

LOST, NO_TOKEN, NO_KEY = "The controller does not answer.", "The host did not answer in time.", "There is no file slurm.jwt."


def test_words_on_a_node_are_told_once_however_often_the_settings_changed() -> None:
    seen = [RealNode("gpus-1", "pod", "pending", "ErrImagePull"), RealNode("gpus-2", "pod", "ended", "gone")]
    keepers: Any = SimpleNamespace(of=lambda _: [SimpleNamespace(seen=seen), SimpleNamespace(seen=seen)])
    assert words_of(keepers, "gpus") == (NodeWords(node_id="gpus-1", words="ErrImagePull"),)


class Provider:
    """One that is away, or starts nothing, as long as the test says so."""

    waits_long = False

    def __init__(self) -> None:
        self.looks, self.starts = LOST, NO_TOKEN

    async def check(self) -> Sequence[Finding]:
        return ()

    async def nodes(self) -> Sequence[RealNode]:
        if self.looks:
            raise ProvisionerError(self.looks, "unreachable")
        return ()

    async def start(self, orders: Sequence[Order]) -> None:
        if self.starts:
            raise ProvisionerError(self.starts, "unreachable")

    async def stop(self, node: RealNode) -> None: ...

    async def logs(self, node: RealNode, lines_max: int) -> str:
        return ""

    async def close(self) -> None: ...


async def test_trouble_with_a_provider_is_told_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    provider, missing = Provider(), [NO_KEY]

    def opened(*_: object) -> Provisioner:
        if missing:
            raise ProvisionerError(missing[0], "refused")
        return provider

    kept = KeptNodes("gpus", opened)
    settings, kinds = {"directory": "/d"}, (NodeType(name="a", slots=1),)
    await kept.say(PoolProvisioned(pool="gpus", provisioner="slurm", settings=settings, node_types=kinds, nodes_max=2))
    await kept.want(1)
    async with kept.launcher():
        await until(lambda: kept.keepers.trouble_of("gpus") == NO_KEY)
        assert kept.keepers.trouble_of("others") == ""
        missing.clear()
        await until(lambda: kept.keepers.trouble_of("gpus") == LOST)
        provider.looks = ""
        await until(lambda: kept.keepers.trouble_of("gpus") == NO_TOKEN)
        provider.starts = ""
        await until(lambda: kept.keepers.trouble_of("gpus") == "")
