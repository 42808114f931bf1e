"""What the provisioner of Slurm's jobs promises by slurmrestd beyond the contract of all provisioners, on real daemons."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners.slurm import SlurmProvisioner, by_rest, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.by_rest import Rest
from tenuto.services.launcher.adapters.provisioners.slurm.controller import JobSubmission
from tenuto.services.launcher.adapters.provisioners.slurm.rest_bodies import body_of
from tenuto.services.launcher.adapters.provisioners.slurm.settings import JobSettings, RestSettings
from tests.support import slurm as support
from tests.support.provisioner_benches import POOL, order, until, until_over
from tests.support.slurm import REST_ACCOUNT, Slurm
from tests.support.slurm_nodes import RestBench

REAL = pytest.mark.real_part(support.rest_lack())
PARENT = JobSettings(directory="/d")
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjF9.c2ln"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if reason := support.why_not():
        pytest.skip(reason)
    with support.slurm() as found:
        yield found


@pytest.fixture
async def bench(tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RestBench]:
    directory = slurm.directory / tmp_path.name
    directory.mkdir()
    found = RestBench(directory, slurm, monkeypatch)
    yield found
    await found.close()
    slurm.empty()


@REAL
async def test_tasks_of_an_array_end_one_by_one_also_before_they_begin(bench: RestBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order(f"{POOL}-{number}") for number in (7, 8, 10, 11)])
    running = await until(provisioner, "running", 2)
    assert [node.provider_id.partition("_")[2] for node in running] == ["0", "1"]
    assert len({node.provider_id.partition("_")[0] for node in await provisioner.nodes()}) == 1
    waiting = await until(provisioner, "pending", 2)
    assert [node.node_id for node in waiting] == ["gpus-10", "gpus-11"]
    await provisioner.stop(waiting[0])
    await until_over(provisioner, waiting[0])
    assert [node.node_id for node in await provisioner.nodes() if node.phase == "pending"] == ["gpus-11"]
    await provisioner.stop(running[0])
    await until(provisioner, "running", 2)
    assert bench.began("gpus-10") == []


@REAL
@pytest.mark.parametrize(
    ("case", "words", "kind"),
    [
        ("foreign", "Slurm does not list jobs", "unreachable"),
        ("ended", "The token in slurm.jwt has ended: put a new one there", "refused"),
        ("none", "File slurm.jwt of the launcher's secrets cannot be read", "refused"),
        ("words", "File slurm.jwt has no token: write there what `scontrol token` prints", "refused"),
    ],
)
async def test_tokens_that_are_not_taken(bench: RestBench, case: str, words: str, kind: str) -> None:
    file = bench.secrets / "slurm.jwt"
    if case == "foreign":
        head, _, _ = file.read_text().strip().rpartition(".")
        file.write_text(f"{head}.AAAA")
    elif case == "ended":
        file.write_text(bench.slurm.run("scontrol", "token", f"username={REST_ACCOUNT}", "lifespan=1"))
        await asyncio.sleep(2.1)
    elif case == "none":
        file.unlink()
    else:
        file.write_text("my secret")
    with pytest.raises(ProvisionerError) as caught:
        await bench.provisioner().nodes()
    assert words in str(caught.value)
    assert caught.value.kind == kind
    assert "my secret" not in str(caught.value)
    assert any(finding.problem for finding in await bench.provisioner().check())


@REAL
async def test_a_socket_that_sees_who_asks_needs_no_token(bench: RestBench) -> None:
    settings = RestSettings("http://slurmrestd", str(bench.slurm.rest("rest_auth/local")))
    os.seteuid(pwd.getpwnam(REST_ACCOUNT).pw_uid)
    rest = Rest(settings, None)
    try:
        assert await rest.version() == 38
        row = jobs.Row(("gpus-1",))
        comment = jobs.comment_of(bench.cluster, POOL, row)
        job = await rest.submit(JobSubmission("gpus-1", comment, "/dev/null", "#!/bin/sh\nsleep 600\n", PARENT))
        assert [item.id for item in await rest.jobs() if item.cluster == bench.cluster] == [job]
        await rest.cancel([job, "999999"])
    finally:
        await rest.close()
        os.seteuid(0)


async def test_of_the_versions_of_a_daemon_the_newest_known_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    rest, said = Rest(RestSettings("http://x", "/x"), None), [f"/slurm/v0.0.{n}/jobs/" for n in (30, 39, 41, 99)]

    async def request(*given: object) -> dict[str, object]:
        return {"paths": {path: {} for path in (*said, "/slurmdb/v0.0.44/jobs/")}}

    monkeypatch.setattr(rest, "_request", request)
    assert await rest.version() == 41
    other = Rest(RestSettings("http://x", "/x"), None)
    monkeypatch.setattr(other, "_request", request)
    said[:] = said[:1]
    with pytest.raises(ProvisionerError, match=r"slurmrestd has v0.0.30 of its interface, and v0.0.37 to v0.0.44 are known here"):
        await other.version()


def test_a_job_as_each_version_is_told_of_it() -> None:
    settings = JobSettings(
        directory="/d", partition="gpu", time="1-0:00:30", gres="gpu:a100:4", cpus_per_task=8, mem="3G", constraint="a100",
        extra=("--exclusive", "--nice=5"),
    )  # fmt: skip
    wanted = JobSubmission("gpus-1..3", "tenuto/c/gpus/gpus/1", "/d/%A_%a.log", "#!/bin/sh\n", settings, "0-2")
    old, new = body_of(wanted, 38)["job"], body_of(wanted, 41)["job"]
    same = {
        "name": "gpus-1..3", "comment": "tenuto/c/gpus/gpus/1", "array": "0-2", "partition": "gpu", "constraints": "a100",
        "cpus_per_task": 8, "nice": 5, "nodes": "1", "tasks": 1, "requeue": False, "standard_output": "/d/%A_%a.log",
    }  # fmt: skip
    assert same.items() <= old.items()
    assert same.items() <= new.items()
    assert (old["time_limit"], old["memory_per_node"], old["gres"], old["exclusive"]) == (1441, 3072, "gpu:a100:4", "exclusive")
    assert new["time_limit"] == {"set": True, "number": 1441}
    assert new["memory_per_node"] == {"set": True, "number": 3072}
    assert (new["tres_per_node"], new["shared"]) == ("gres/gpu:a100:4", ["none"])
    assert new["kill_warning_flags"] == ["BATCH_JOB"]
    assert new["script"] == "#!/bin/sh\n"


def test_jobs_as_later_versions_show_them() -> None:
    def number(value: int | None) -> dict[str, object]:
        return {"set": value is not None, "infinite": False, "number": value or 0}

    row = {
        "job_id": 12, "array_job_id": number(10), "array_task_id": number(3), "array_task_string": "", "job_state": ["RUNNING"],
        "state_reason": "None", "nodes": "n1", "comment": "tenuto/c/gpus/gpus/7",
    }  # fmt: skip
    [job] = by_rest._jobs(row)
    assert (job.id, job.node_id, job.phase) == ("10_3", "gpus-10", "running")
    [job] = by_rest._jobs({**row, "job_state": ["CANCELLED", "COMPLETING"]})
    assert job.phase == "running", "it may still cost something"
    waiting = {**row, "job_id": 10, "array_task_id": number(None), "array_task_string": "1-2,5%4", "job_state": ["PENDING"]}
    assert [(job.id, job.node_id) for job in by_rest._jobs(waiting)] == [
        ("10_1", "gpus-8"),
        ("10_2", "gpus-9"),
        ("10_5", "gpus-12"),
    ]
    single = {**row, "array_job_id": number(None), "array_task_id": number(None), "comment": "tenuto/c/gpus/gpus-9"}
    assert [job.id for job in by_rest._jobs(single)] == ["12"]
    assert by_rest._jobs({**row, "comment": "my own"}) == []
    assert by_rest._jobs({}) == []
    assert len(by_rest._indexes("0-999999999")) <= by_rest.NODES_MAX


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"restd": "https://slurm:6820"}, "Setting restd_token is required where slurmrestd is reached by the network"),
        ({"restd": "http://slurm:6820", "restd_token": "t"}, "Setting restd must be"),
        ({"restd_token": "t"}, "give restd, such as"),
        ({"restd": "http+unix:///s", "extra": "--gpus=2"}, "Setting extra may have --exclusive"),
        ({"restd": "http+unix:///s", "restd_token": "../t"}, "Setting restd_token must be"),
        ({"restd": "http+unix:///s", "restd_token": f"SLURM_JWT={TOKEN}"}, "Setting restd_token must be"),
        ({"restd": "http+unix:///s", "restd_token": TOKEN}, "Setting restd_token must be"),
    ],
)
async def test_settings_that_are_wrong(settings: dict[str, str], words: str) -> None:
    provisioning = Provisioning(provisioner="slurm", settings={"directory": "/nowhere", **settings})
    with pytest.raises(ProvisionerError) as caught:
        await SlurmProvisioner("c", POOL, provisioning).start([order(node_type=NodeType())])
    assert words in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert caught.value.kind == "refused"
    assert [finding.problem for finding in await SlurmProvisioner("c", POOL, provisioning).check()]
