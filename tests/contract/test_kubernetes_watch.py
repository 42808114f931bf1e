"""How the provisioner of pods is told of changes, on the tests' API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners.kubernetes import watching
from tests.support.kubernetes_nodes import Bench, bench_of, order, pod_name
from tests.support.waiting import SECONDS_MAX

PODS = ("GET", "/api/v1/namespaces/default/pods")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_of(tmp_path) as found:
        yield found


async def test_changes_are_told_at_once_also_after_a_cut_and_a_forgotten_version(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PAUSE_SECONDS", 0.01)
    provisioner, name = bench.provisioner(), pod_name("gpus-1")
    told = provisioner.changes()
    async with asyncio.timeout(SECONDS_MAX):
        await anext(told)  # what was changed before may not have been seen
        asking = asyncio.create_task(anext(told))
        await provisioner.start([order()])
        await asking
        asked = bench.api.requests.count(PODS)
        asking = asyncio.create_task(anext(told))
        await bench.api.cut()
        bench.api.schedule(name)
        await asking
        assert bench.api.requests.count(PODS) == asked + 1, "the watch went on, and nothing was listed"
        bench.api.forget()
        await bench.api.cut()
        await anext(told)
        assert bench.api.requests.count(PODS) == asked + 3, "a watch that is refused, and a list"
        asking = asyncio.create_task(anext(told))
        bench.api.finish(name, 0)
        await asking
    await told.aclose()
    await provisioner.close()


async def test_changes_end_where_they_are_not_allowed_or_the_server_is_gone(bench: Bench) -> None:
    provisioner = bench.provisioner()
    bench.api.forbidden.add(("watch", "pods"))
    told = provisioner.changes()
    await anext(told)
    with pytest.raises(ProvisionerError, match=r"does not watch the pods of pool gpus .*is forbidden") as caught:
        await anext(told)
    assert caught.value.kind == "refused"
    await bench.api.stop()
    with pytest.raises(ProvisionerError, match="cannot be reached") as caught:
        await anext(provisioner.changes())
    assert caught.value.kind == "unreachable"
    await provisioner.close()
