"""What the provisioner of Slurm's jobs promises beyond the contract of all provisioners, on real daemons of Slurm."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, ProvisionerError, StartsGroups
from tenuto.services.launcher.adapters.provisioners import slurm as module
from tenuto.services.launcher.adapters.provisioners.slurm import SlurmProvisioner, commands, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.settings import settings_of
from tests.support import slurm as support
from tests.support.provisioner_benches import POOL, SECRET, is_live, order, until, until_over, until_printed
from tests.support.slurm import Slurm
from tests.support.slurm_nodes import SlurmBench
from tests.support.waiting import until_on_loop

pytestmark = pytest.mark.real_part(support.lack())


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if reason := support.why_not():
        pytest.skip(reason)
    with support.slurm() as found:
        yield found


@pytest.fixture
async def bench(tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlurmBench]:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    found = SlurmBench(tmp_path, slurm)
    yield found
    await found.close()
    slurm.empty()


def tokens(bench: SlurmBench) -> list[Path]:
    return sorted(path for path in bench.directory.rglob("agent.env*") if path.is_file())


async def test_a_node_that_waits_says_why_and_takes_a_newer_token(bench: SlurmBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order(f"{POOL}-{number}") for number in (1, 2, 3)])
    running = await until(provisioner, "running", 2)
    [waiting] = await until(provisioner, "pending")
    assert waiting.detail.startswith("pending")
    for node in running:
        await until_printed(provisioner, node, "ready")
    [file] = tokens(bench)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    await provisioner.start([order(waiting.node_id, secret="a-newer-one")])
    assert f"TENUTO_JOIN_TOKEN=a-newer-one-{waiting.node_id}\n" in file.read_text()
    assert len(await provisioner.nodes()) == 3
    await provisioner.stop(waiting)
    await until(provisioner, "ended")
    assert tokens(bench) == []
    assert bench.began(waiting.node_id) == []


async def test_a_job_without_its_token_ends_at_once(bench: SlurmBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    [log] = bench.directory.rglob(f"{node.provider_id}.log")
    options = settings_of(bench.provisioning(), NodeType())
    script = jobs.script_of(jobs.Row((node.node_id,)), str(log.parents[1]), options)
    bench.submit(node.node_id, script, f"{log.parent}/%j.log")
    [ended] = await until(provisioner, "ended")
    assert "another job is this node, or the node was given back" in ended.detail
    assert len(bench.began("gpus-1")) == 1


async def test_nodes_of_one_group_are_one_array_and_end_one_by_one(bench: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = commands.run

    async def counted(*command: str, text: str = "") -> commands.CommandResult:
        ran.append(command[0])
        assert SECRET not in text + " ".join(command)
        return await run(*command, text=text)

    monkeypatch.setattr(commands, "run", counted)
    provisioner = bench.provisioner()
    await provisioner.start([order(f"{POOL}-{number}") for number in (998, 1001, 1000)])
    assert ran.count("sbatch") == 1
    running = await until(provisioner, "running", 2)
    assert [node.node_id for node in running] == ["gpus-998", "gpus-1000"]
    assert {node.provider_id.partition("_")[2] for node in running} == {"0", "2"}
    [waiting] = await until(provisioner, "pending")
    assert (waiting.node_id, waiting.provider_id.partition("_")[2]) == ("gpus-1001", "3")
    for node in running:
        said = await until_printed(provisioner, node, "ready")
        assert "does not say when job" not in said
        assert SECRET not in bench.slurm.run("scontrol", "show", "job", node.provider_id)
    assert SECRET not in bench.slurm.run("scontrol", "write", "batch_script", running[0].provider_id, "-")
    await provisioner.stop(running[0])
    await until_over(provisioner, running[0])
    await until(provisioner, "running", 2)
    assert {node.node_id: node.phase for node in await provisioner.nodes()} == {
        "gpus-998": "ended", "gpus-1000": "running", "gpus-1001": "running",
    }  # fmt: skip
    assert "leaves" in await provisioner.logs(running[0], 10)
    # Another request for the whole group starts nothing; one more node of it is a job of its own.
    await bench.provisioner().start([order(f"{POOL}-{number}") for number in (998, 1000, 1001, 1002)])
    assert ran.count("sbatch") == 2
    assert len(await provisioner.nodes()) == 4


async def test_many_groups_are_taken_as_far_as_there_is_room(bench: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> None:
    provisioner, taken, tries = bench.with_settings({}), list[str](), list[int]()

    async def start(orders: Sequence[Order]) -> None:
        tries.append(len(orders))
        if any(item.node_type.name == "wrong" for item in orders):
            raise ProvisionerError("There is no such partition.", "refused")
        if len(taken) + len(orders) > 77:
            raise ProvisionerError("The account's quota is used up.", "quota")
        taken.extend(item.node_id for item in orders)

    monkeypatch.setattr(provisioner, "start", start)
    wrong = NodeType(name="wrong")
    groups = [[order(f"{POOL}-{number}", wrong if number == 0 else None)] for number in range(200)]
    assert isinstance(provisioner, StartsGroups)
    answers = await provisioner.start_groups(groups)
    assert taken == [f"{POOL}-{number}" for number in range(1, 78)]
    assert [answer.kind if answer else "" for answer in answers] == ["refused", *[""] * 77, *["quota"] * 122]
    assert len(tries) < 20


@pytest.mark.parametrize(
    ("ids", "index_max", "arrays"),
    [
        (("a-1", "a-2", "a-3"), 1000, ["0-2"]),
        (("a-7",), 1000, [""]),
        (("a-1", "b-2"), 1000, ["", ""]),
        (("a-5", "a-9", "a-6"), 1000, ["0-1,4"]),
        (("a-0", "a-1000", "a-1001"), 1000, ["0,1000", ""]),
        (("a-1", "a-2"), 0, ["", ""]),
        (("x", "-1", "a-01"), 1000, ["", "", ""]),
    ],
)
def test_rows(ids: tuple[str, ...], index_max: int, arrays: list[str]) -> None:
    found = jobs.rows(ids, index_max)
    assert sorted(row.array for row in found) == sorted(arrays)
    assert sorted(node_id for row in found for node_id in row.node_ids) == sorted(ids)
    for row in found:
        comment = jobs.comment_of("c/1", "p|2", row)
        for node_id in row.node_ids:
            place = f"5_{int(node_id.rpartition('-')[2]) - row.first}" if row.array else "5"
            [job] = jobs.read([f"{place}|RUNNING|None|n0|{comment}"])
            assert (job.id, job.cluster, job.pool, job.node_id) == (place, "c/1", "p|2", node_id)


async def _none() -> list[object]:
    return []


async def test_the_agents_own_directory_goes_with_its_job(bench: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = bench.directory / "setup.sh"
    setup.write_text(
        f"export TMPDIR={bench.directory} TENUTO_SHARED_DIRECTORY=/data\n"
        f"mkdir {bench.directory}/tenuto-$(id -u)-$node-$SLURM_JOB_ID\n"
    )
    provisioner = bench.with_settings({"setup": str(setup)})
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "TENUTO_SHARED_DIRECTORY")
    assert list(bench.directory.glob("tenuto-*"))
    bench.end("gpus-1", 0)
    [ended] = await until(provisioner, "ended")
    assert ended.detail == "completed"
    assert not list(bench.directory.glob("tenuto-*"))
    old = time.time() - 8 * 86_400
    [place] = {path.parent for path in bench.directory.rglob("*.log")}
    for path in (*place.iterdir(), place):
        os.utime(path, (old, old))
    other = bench.opens(SlurmProvisioner(bench.cluster, POOL, bench.provisioning()))
    await other.start([order("gpus-2")])
    assert place.exists(), "Slurm still knows it"
    monkeypatch.setattr(module.SlurmProvisioner, "_jobs", lambda self: _none())
    await other.start([order("gpus-2")])
    assert not place.exists()


async def test_a_job_removes_what_killed_ones_of_its_user_left_on_the_machine(bench: SlurmBench) -> None:
    setup = bench.directory / "setup.sh"
    setup.write_text(f"export TMPDIR={bench.directory}\n")
    """Also of one that was killed before it had written whose directory it is, or while it removed it: that one is empty."""
    left, locked, named, elsewhere, other = (bench.directory / f"tenuto-{os.getuid()}-gpus-9-{number}" for number in range(1, 6))
    empty = bench.directory / f"tenuto-{os.getuid()}-gpus-9-6"
    empty.mkdir()
    for path in (left, locked, named, elsewhere, other):
        (path / "runs").mkdir(parents=True)
        (path / "job.lock").write_text("another-machine\n" if path == elsewhere else f"{os.uname().nodename}\n")
    (other / "job.lock").unlink()
    worker = await asyncio.create_subprocess_exec("sleep", "600", env={**os.environ, "TENUTO_RUN": f"{named}:1-1-1"})
    try:
        with (locked / "job.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            provisioner = bench.with_settings({"setup": str(setup)})
            await provisioner.start([order()])
            [node] = await until(provisioner, "running")
            await until_printed(provisioner, node, "TENUTO_AGENT_ID")
    finally:
        worker.kill()
        await worker.wait()
    assert not left.exists()
    assert not empty.exists()
    assert all(path.exists() for path in (locked, named, elsewhere, other))


async def test_a_job_that_is_ended_before_its_agent_runs_leaves_nothing(bench: SlurmBench) -> None:
    """It is ended while it waits for the lock of its directory."""
    setup, waits = bench.directory / "setup.sh", bench.directory / "waits"
    setup.write_text(f"export TMPDIR={bench.directory}\nflock() {{ : >{waits}; sleep 600; }}\n")
    provisioner = bench.with_settings({"setup": str(setup)})
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_on_loop(waits.exists)
    assert list(bench.directory.glob("tenuto-*"))
    bench.slurm.run("scancel", node.provider_id)
    await until(provisioner, "ended")
    await until_on_loop(lambda: not list(bench.directory.glob("tenuto-*")))


async def test_a_job_that_is_ended_while_it_runs_ends_its_agent(bench: SlurmBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    bench.slurm.run("scancel", node.provider_id)
    [ended] = await until(provisioner, "ended")
    assert ended.detail.startswith("cancelled")
    assert not any(is_live(pid) for pid in bench.began("gpus-1"))


async def test_a_node_that_is_still_ending_can_be_told_again(bench: SlurmBench) -> None:
    bench.deaf("gpus-1")
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    for _ in range(3):
        await provisioner.stop(node)
        [seen] = await provisioner.nodes()
        assert seen.phase == "running", "it may still cost something"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"partition": "none-such"}, "There is no partition none-such: set partition to one of main."),
        ({"time": "2:00:00"}, "The default partition allows 1:00:00 at most, so such jobs would wait for ever"),
        ({"time": "5"}, "Agents begin nothing in their last 300 s"),
        ({"gres": "gpu:4"}, "No machine of the partition has gpu: set gres to what there is (none)."),
        ({"constraint": "a100"}, "Slurm would not take such a job"),
        ({"directory": "/proc/nodes"}, "The launcher cannot write there"),
        ({"extra": "--uid=0"}, "Setting extra may not have --uid"),
    ],
)
async def test_check_finds_what_is_wrong_and_submits_nothing(bench: SlurmBench, settings: dict[str, str], words: str) -> None:
    problems = [finding.problem for finding in await bench.with_settings(settings).check() if finding.problem]
    assert any(problem.startswith(words) for problem in problems), problems
    assert bench.slurm.run("squeue", "--noheader") == ""


async def test_without_slurm_it_says_what_to_install(bench: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bench.directory))
    provisioner = SlurmProvisioner("c", POOL, Provisioning(provisioner="slurm", settings={"directory": str(bench.directory)}))
    with pytest.raises(
        ProvisionerError, match="There is no squeue where the launcher runs: install Slurm's commands there"
    ) as caught:
        await provisioner.start([order(node_type=NodeType())])
    assert caught.value.kind == "refused"
    assert [finding.problem for finding in await provisioner.check() if "There is no sbatch" in finding.problem]
