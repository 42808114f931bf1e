"""What is Google's own in nodes on Compute Engine: zones, late failures, lists that lag behind, names, checks; against its
stand-in."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from google.cloud import compute_v1

from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner, ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners import gcp as module
from tenuto.services.launcher.adapters.provisioners.gcp import checks, door, machines
from tests.support.compute_engine import Faults
from tests.support.compute_engine_rules import PROJECT, ZONES
from tests.support.gcp_bench import KEY, GcpBench
from tests.support.provisioner_benches import POOL, SECRET, order, until
from tests.support.waiting import SECONDS_MAX

pytestmark = pytest.mark.xdist_group("provisioners")
TWO = ",".join(ZONES[:2])
CHECKED = (
    f"project {PROJECT}",
    f"zone {ZONES[1]}",
    "image family tenuto",
    "accelerator nvidia-tesla-t4",
    "network default",
    "machine type n1-standard-4",
    "CPUS 0 of 16",
    "PREEMPTIBLE_NVIDIA_T4_GPUS 0 of 4",
    "rights in project",
)
T4 = NodeType(name="t4", slots=1, device="Tesla T4", settings={"accelerator": "nvidia-tesla-t4:1", "spot": "true"})


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[GcpBench]:
    """Its instances run nothing."""
    made = await GcpBench.begun(tmp_path, operation_seconds=0.0)
    made.engine.boots = made.engine.shuts = None
    yield made
    await made.close()


def orders(*numbers: int, node_type: NodeType | None = None) -> list[Order]:
    return [order(f"{POOL}-{number}", node_type) for number in numbers]


async def failure(call: object) -> ProvisionerError:
    with pytest.raises(ProvisionerError) as caught:
        await call  # type: ignore[misc]
    assert SECRET not in str(caught.value)
    return caught.value


async def so_that(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            if what():
                return
            await asyncio.sleep(0.02)


def name_of(bench: GcpBench, number: int) -> str:
    return machines.name_of(bench.cluster, f"{POOL}-{number}")


async def test_an_instance_is_what_the_settings_say(bench: GcpBench) -> None:
    settings = {"labels": "team=vision", "tags": "no-ssh", "external_ip": "false", "subnetwork": "default", "disk_gb": "50"}
    await bench.having(T4, **settings).start(orders(1, node_type=T4))
    [item] = bench.engine.instances.values()
    assert item.scheduling.provisioning_model == "SPOT"
    assert item.scheduling.instance_termination_action == "DELETE"
    assert item.scheduling.on_host_maintenance == "TERMINATE"
    assert not item.scheduling.automatic_restart
    assert item.scheduling.max_run_duration.seconds == 168 * 3_600 + machines.LIFETIME_MARGIN_SECONDS
    assert [(one.accelerator_type.rpartition("/")[2], one.accelerator_count) for one in item.guest_accelerators] == [
        ("nvidia-tesla-t4", 1)
    ]
    ends = datetime.strptime(item.labels.pop("tenuto-ends"), "%Y-%m-%d-%H%M").replace(tzinfo=UTC).timestamp()
    assert abs(ends - time.time() - item.scheduling.max_run_duration.seconds) < 3_600
    assert dict(item.labels) == {
        "team": "vision", "tenuto-cluster": bench.cluster, "tenuto-pool": POOL, "tenuto-node": f"{POOL}-1",
    }  # fmt: skip
    assert list(item.tags.items) == ["no-ssh"]
    assert [list(one.access_configs) for one in item.network_interfaces] == [[]]
    assert list(item.service_accounts) == []
    assert item.disks[0].auto_delete
    metadata = {entry.key: entry.value for entry in item.metadata.items}
    assert metadata["block-project-ssh-keys"] == "TRUE"
    assert [key for key, value in metadata.items() if SECRET in value] == ["startup-script"]


async def test_a_zone_without_room_is_left_for_the_next_one_by_the_whole_group(bench: GcpBench) -> None:
    bench.engine.room[ZONES[0]] = 1
    provisioner = bench.having(zones=TWO)
    await provisioner.start(orders(1, 2))
    assert len(bench.engine.names(ZONES[1])) == 2
    nodes = await until(provisioner, "running", 2)
    assert {node.provider_id.split("/")[1] for node in nodes} == {ZONES[1]}
    assert bench.engine.names(ZONES[0]) == []


async def test_no_room_anywhere_is_said_in_googles_words_and_leaves_nothing(bench: GcpBench) -> None:
    bench.engine.room |= dict.fromkeys(ZONES, 1)
    error = await failure(bench.having(zones=TWO).start(orders(1, 2)))
    assert error.kind == "capacity"
    assert "does not have enough resources available" in str(error)
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in str(error)
    await so_that(lambda: not bench.engine.names())


async def test_a_quota_is_not_taken_for_a_lack_of_room(bench: GcpBench) -> None:
    bench.engine.quotas["CPUS"] = 6.0
    provisioner = bench.provisioner()
    await provisioner.start(orders(1))
    error = await failure(provisioner.start(orders(2)))
    assert error.kind == "quota"
    assert "Quota 'CPUS' exceeded" in str(error)
    [problem] = [finding.problem for finding in await provisioner.check() if finding.problem]
    assert "CPUS has 2 of 6 left, and one node needs 4" in problem


@pytest.mark.parametrize("hidden", [0, 3])
async def test_a_launcher_that_is_killed_while_google_answers_starts_no_second_node(bench: GcpBench, hidden: int) -> None:
    """Also where lists do not show yet what there is."""
    bench.engine.faults = Faults(1.0, kinds=("late",), late_seconds=1.0)
    bench.engine.hidden[name_of(bench, 1)] = hidden
    killed = asyncio.create_task(bench.having(zones=TWO).start(orders(1)))
    await so_that(lambda: bool(bench.engine.instances))
    killed.cancel()
    bench.engine.faults = Faults()
    provisioner = bench.having(zones=TWO)
    await provisioner.start([order(secret="another")])
    assert bench.engine.names() == [name_of(bench, 1)]
    assert [node.node_id for node in await until(provisioner, "running")] == [f"{POOL}-1"]


async def test_what_was_begun_of_a_group_says_where_the_rest_goes(bench: GcpBench) -> None:
    await bench.having(zones=ZONES[1]).start(orders(1))
    await bench.having(zones=TWO).start(orders(1, 2))
    assert len(bench.engine.names(ZONES[1])) == 2


async def test_an_attempt_after_one_that_failed_is_carried_out(bench: GcpBench) -> None:
    """Google remembers requests by their ids, failed ones, too."""
    bench.engine.room[ZONES[0]] = 0
    provisioner = bench.provisioner()
    assert (await failure(provisioner.start(orders(1)))).kind == "capacity"
    bench.engine.room.clear()
    await provisioner.start([order(secret="another")])
    assert len(await until(provisioner, "running")) == 1


async def test_somebody_elses_instance_of_that_name_is_neither_used_nor_deleted(bench: GcpBench) -> None:
    name = name_of(bench, 1)
    bench.engine.put(ZONES[0], compute_v1.Instance(name=name, zone=ZONES[0], status="RUNNING"))
    error = await failure(bench.provisioner().start(orders(1)))
    assert error.kind == "refused"
    assert "is not a node of this cluster" in str(error)
    assert bench.engine.names() == [name]
    assert await bench.provisioner().nodes() == []


async def test_lists_come_in_pages_and_one_question_is_enough_for_all_zones(bench: GcpBench) -> None:
    bench.engine.quotas |= {"CPUS": 1e6, "INSTANCES": 1e6}
    provisioner = bench.provisioner()
    await provisioner.start(orders(1))
    [first] = bench.engine.instances.values()
    for number in range(2, 1_001):
        copy = compute_v1.Instance(first)
        copy.name, copy.description = name_of(bench, number), first.description.replace(f"{POOL}-1", f"{POOL}-{number}")
        bench.engine.put(ZONES[number % 3], copy)
    bench.engine.asked.clear()
    nodes = await provisioner.nodes()
    assert len({node.node_id for node in nodes}) == len(nodes) == 1_000
    assert Counter(bench.engine.asked) == {f"GET /compute/v1/projects/{PROJECT}/aggregated/instances": 2}


async def test_a_zone_that_google_cannot_see_now_is_not_taken_for_empty(bench: GcpBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start(orders(1))
    bench.engine.unreachable.add(ZONES[0])
    error = await failure(provisioner.nodes())
    assert error.kind == "unreachable"
    assert ZONES[0] in str(error)


async def test_a_preempted_instance_is_gone_and_one_that_turned_itself_off_is_deleted_later(
    bench: GcpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    provisioner = bench.provisioner()
    await provisioner.start(orders(1, 2))
    await until(provisioner, "running", 2)
    bench.engine.lose(ZONES[0], name_of(bench, 1))
    bench.engine.turned_off(ZONES[0], name_of(bench, 2))
    bench.engine.guest[name_of(bench, 2)] = {"tenuto/log": "first\nno such file\n", "tenuto/why": "The agent has ended."}
    [node] = await provisioner.nodes()
    assert (node.node_id, node.phase) == (f"{POOL}-2", "ended")
    assert node.detail == "TERMINATED; The agent has ended.; no such file"
    bench.engine.asked.clear()
    assert await provisioner.nodes() == [node]
    assert len(bench.engine.asked) == 1, "last words are asked for once"
    monkeypatch.setattr(module, "ENDED_SECONDS_MAX", -1.0)
    await provisioner.nodes()
    await so_that(lambda: not bench.engine.names())
    assert await provisioner.logs(node, 5) == ""
    await provisioner.stop(node)


@pytest.mark.parametrize("seed", range(3))
async def test_with_a_fifth_of_the_answers_wrong_nodes_come_once_and_all_go(bench: GcpBench, seed: int) -> None:
    """A keeper's loop: what is not there is started again, with another token, until it is; then all is stopped."""
    bench.engine.faults = Faults(0.2, seed, late_seconds=0.05)
    bench.engine.quotas |= {"CPUS": 1e6, "INSTANCES": 1e6}
    provisioner, chance = bench.having(zones=TWO), random.Random(seed)
    groups = [[1], [2, 3], [4, 5, 6], [7]]
    kinds: Counter[str] = Counter()

    async def attempt(call: Callable[[], object]) -> object:
        try:
            return await call()  # type: ignore[misc]
        except ProvisionerError as error:
            kinds[error.kind] += 1
            return None

    async def seen() -> list[RealNode]:
        while True:
            found = await attempt(provisioner.nodes)
            if found is not None:
                return found  # type: ignore[return-value]

    async with asyncio.timeout(SECONDS_MAX):
        while len(there := {node.node_id for node in await seen() if node.phase == "running"}) < 7:
            lacking = [group for group in groups if not {f"{POOL}-{number}" for number in group} <= there]
            if lacking:
                group = [order(f"{POOL}-{number}", secret=str(chance.random())) for number in chance.choice(lacking)]
                await attempt(lambda group=group: provisioner.start(group))  # type: ignore[misc]
        assert max(Counter(name for _, name in bench.engine.instances).values()) == 1
        while nodes := await seen():
            for node in nodes:
                await attempt(lambda node=node: provisioner.stop(node))  # type: ignore[misc]
    assert set(kinds) == {"unreachable"}
    assert bench.engine.instances == {}


# Checks.


async def problems(provisioner: Provisioner) -> list[str]:
    return [finding.problem for finding in await provisioner.check() if finding.problem]


async def test_a_check_names_what_there_is_and_asks_for_no_more(bench: GcpBench) -> None:
    found = await bench.having(T4, zones=TWO, service_account="agents@tenuto-tests.iam.gserviceaccount.com").check()
    assert [finding.problem for finding in found if finding.problem] == []
    said = "\n".join(finding.what for finding in found)
    for words in CHECKED:
        assert words in said
    assert bench.engine.instances == {}


@pytest.mark.parametrize(
    ("settings", "node_type", "words"),
    [
        ({"zones": "europe-west9-a"}, NodeType(), "europe-west9-a"),
        ({"machine_type": "n9-mega"}, NodeType(), "There is no machine type n9-mega in europe-west4-a"),
        ({"accelerator": "nvidia-none:1"}, NodeType(), "There is no accelerator nvidia-none"),
        ({"accelerator": "nvidia-tesla-t4:8"}, NodeType(slots=8), "may have at most 4 of nvidia-tesla-t4"),
        ({"accelerator": "nvidia-tesla-t4:2"}, NodeType(), "nodes of type default have slots 1: set 2"),
        ({"machine_type": "g2-standard-12"}, NodeType(device="cpu"), "has 1 accelerators, but"),
        ({}, NodeType(device="Tesla T4"), "but nodes of type default have the device Tesla T4"),
        ({"image_family": "none"}, NodeType(), "There is no image family none"),
        ({"image_family": "", "image": "none"}, NodeType(), "There is no image none"),
        ({"disk_gb": "10"}, NodeType(), "needs a disk of 20 GB: set disk_gb=20"),
        ({"network": "none"}, NodeType(), "There is no network none"),
        ({"subnetwork": "none"}, NodeType(), "There is no subnetwork none in europe-west4"),
        ({"disk_type": "pd-none"}, NodeType(), "There is no disk type pd-none"),
        ({"project": "another-project"}, NodeType(), "Required 'compute.projects.get' permission"),
        ({"project": ""}, NodeType(), "Setting project is required"),
        ({"zone": "a"}, NodeType(), "Setting zone is unknown"),
        ({"credentials_file": "none.json"}, NodeType(), "The file of credentials none.json cannot be used"),
    ],
)  # fmt: skip
async def test_a_check_finds_what_is_missing(bench: GcpBench, settings: dict[str, str], node_type: NodeType, words: str) -> None:
    found = await problems(bench.having(node_type, **settings))
    assert [problem for problem in found if words in problem], found
    assert all(problem.endswith(".") for problem in found)


async def test_a_check_finds_which_rights_are_missing(bench: GcpBench) -> None:
    bench.engine.rights = {*checks.RIGHTS, "compute.subnetworks.useExternalIp"} - {"compute.instances.create"}
    [problem] = await problems(bench.provisioner())
    assert "may not compute.images.useReadOnly, compute.instances.create:" in problem
    error = await failure(bench.provisioner().start(orders(1)))
    assert error.kind == "refused"
    assert "compute.instances.create" in str(error)


@pytest.mark.parametrize("kind", ["other key", "no json", "no key"])
async def test_credentials_that_are_not_valid_are_refused_and_not_shown(bench: GcpBench, kind: str) -> None:
    file = bench.directory / KEY
    document = json.loads(file.read_text())
    document |= {"client_email": "somebody@else.iam.gserviceaccount.com"} if kind == "other key" else {"private_key": "-----"}
    file.write_text("-----SECRET" if kind == "no json" else json.dumps(document))
    error = await failure(bench.provisioner().nodes())
    assert error.kind == "refused"
    assert "-----" not in str(error)
    assert await problems(bench.provisioner())


async def test_without_credentials_it_is_said_where_they_may_come_from(bench: GcpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(bench.directory))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    [problem] = await problems(bench.having(credentials_file=""))
    assert "GOOGLE_APPLICATION_CREDENTIALS" in problem
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(bench.directory / KEY))
    assert await bench.having(credentials_file="").nodes() == []


# Answers that harm.


@pytest.mark.parametrize(("bound", "value"), [("ANSWER_SECONDS_MAX", 0.2), ("ANSWER_BYTES_MAX", 100)])
async def test_an_answer_that_comes_too_late_or_is_too_large_is_none(
    bench: GcpBench, monkeypatch: pytest.MonkeyPatch, bound: str, value: float
) -> None:
    provisioner = bench.provisioner()
    await provisioner.start(orders(1))
    monkeypatch.setattr(door, bound, value)
    bench.engine.faults = Faults(1.0 if bound == "ANSWER_SECONDS_MAX" else 0.0, kinds=("late",), late_seconds=2.0)
    error = await failure(provisioner.nodes())
    assert error.kind == "unreachable"


async def test_a_redirect_does_not_take_the_credentials_elsewhere(bench: GcpBench) -> None:
    """Such as that of a proxy that wants its users to sign in."""
    bench.engine.faults = Faults(1.0, kinds=("redirect",))
    error = await failure(bench.provisioner().nodes())
    assert error.kind == "unreachable"
    assert not [asked for asked in bench.engine.asked if "elsewhere" in asked]
