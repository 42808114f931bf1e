"""What Docker is given to make a container: devices, limits and account of a run, cold and warm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.account import Account
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.docker.description import (
    PROCESSES_MAX,
    ContainerFacts,
    ContainerLimits,
    described,
    environment_of,
)
from tenuto.workers.agent.runtimes.docker.images import Image
from tenuto.workers.agent.runtimes.docker.mounts import Bind
from tenuto.workers.agent.runtimes.docker.ulimits import read_ulimits
from tenuto.workers.agent.runtimes.docker.warm_description import recipe_of
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.runtime import Work
from tests.support.control_plane import AGENT, make_assignment, make_config

DIRECTORY = Path("/agent")
GPUS = (
    Slot(slot_id=0, kind="cuda", device="H100", uuid="GPU-a"),
    Slot(slot_id=1, kind="cuda", device="H100", uuid="GPU-b"),
    Slot(slot_id=2, kind="cuda", device="H100", uuid="GPU-c"),
)
CPUS = tuple(Slot(slot_id=number, kind="cpu", device="cpu") for number in range(3))
IMAGE = Image("image:1", "sha256:1", "image@1")
SOME = ContainerLimits(4 << 30, 1.5, 1 << 30, read_ulimits("nofile=1024:4096,memlock=-1"))


def facts(slots: tuple[Slot, ...] = GPUS, limits: ContainerLimits = SOME) -> ContainerFacts:
    account = Account("worker", 7, 8)
    return ContainerFacts(
        AgentNode(AGENT, DIRECTORY), slots, account, 7, 8, "none", limits, DIRECTORY / "packages/1", "unix:/s", {}
    )


def work(*slots: int, **environment: Any) -> Work:
    config = make_config(environment={"image": "image:1", **environment})
    return Work(make_assignment("0" * 64, slots=slots, config=config), DIRECTORY / "contexts" / ("0" * 64), "token")


def cold(given: ContainerFacts, of: Work) -> dict[str, Any]:
    return described(given, of, IMAGE, [Bind("/agent/packages/1", "/tenuto")])


def warm(given: ContainerFacts, of: Work) -> dict[str, Any]:
    files = RunFiles(DIRECTORY / "containers" / of.allocation_id)
    made = recipe_of(given, of, IMAGE, [], [Bind("/agent/packages/1", "/tenuto")], files, "torch")
    assert made is not None
    return made.description


@pytest.mark.parametrize("describe", [cold, warm])
def test_a_container_has_the_gpus_and_the_share_of_its_slots(describe: Any) -> None:
    host = describe(facts(), work(0, 2))["HostConfig"]
    assert host["DeviceRequests"] == [{"DeviceIDs": ["GPU-a", "GPU-c"], "Capabilities": [["gpu"]]}]
    assert (host["Memory"], host["MemorySwap"]) == (8 << 30, 8 << 30), "no swap beyond the memory"
    assert host["NanoCpus"] == 3_000_000_000
    assert host["ShmSize"] == 1 << 30
    assert host["PidsLimit"] == PROCESSES_MAX
    assert host["Ulimits"] == [
        {"Name": "nofile", "Soft": 1024, "Hard": 4096},
        {"Name": "memlock", "Soft": -1, "Hard": -1},
    ]


@pytest.mark.parametrize("describe", [cold, warm])
def test_what_nobody_set_is_left_to_the_daemon(describe: Any) -> None:
    host = describe(facts(CPUS, ContainerLimits()), work(0))["HostConfig"]
    assert {"DeviceRequests", "Memory", "MemorySwap", "NanoCpus", "Ulimits", "ReadonlyRootfs"} & host.keys() == set()
    assert host["ShmSize"] == 2 << 30, "PyTorch's loaders need more than the 64 MiB of Docker"


@pytest.mark.parametrize("describe", [cold, warm])
def test_a_container_has_no_rights_and_the_account_that_it_is_given(describe: Any) -> None:
    found = describe(facts(), work(0))
    assert found["User"] == "7:8"
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    assert found["HostConfig"]["SecurityOpt"] == ["no-new-privileges"]
    assert not {"Privileged", "CapAdd", "Devices", "PidMode", "IpcMode", "UsernsMode"} & found["HostConfig"].keys()
    assert not found.get("Env"), "what is told to a run must not lie on the daemon's disk"


def test_a_gpu_without_uuid_is_named_by_its_number() -> None:
    named = tuple(slot.model_copy(update={"uuid": ""}) for slot in GPUS)
    [request] = cold(facts(named), work(1))["HostConfig"]["DeviceRequests"]
    assert request["DeviceIDs"] == ["1"]


@pytest.mark.parametrize(("slots", "seen"), [(GPUS, "GPU-b"), (CPUS, "")])
def test_a_worker_sees_the_devices_of_its_container_whatever_its_configuration_says(slots: tuple[Slot, ...], seen: str) -> None:
    given, of = facts(slots), work(1, variables={"CUDA_VISIBLE_DEVICES": "0,1,2"})
    told = environment_of(given, of, IMAGE, RunFiles(DIRECTORY / "containers/1"), "/tmp/run")
    assert told["CUDA_VISIBLE_DEVICES"] == seen


@pytest.mark.parametrize("by_operator", [True, False])
def test_the_operator_or_the_configuration_makes_a_root_read_only(by_operator: bool) -> None:
    limits = replace(SOME, read_only=by_operator)
    assert cold(facts(limits=limits), work(0, read_only=not by_operator))["HostConfig"]["ReadonlyRootfs"] is True
