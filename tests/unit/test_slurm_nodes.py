"""Nodes as jobs of Slurm, without Slurm: settings, kinds of refusals, what is read from `squeue`."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting
from tenuto.services.launcher.adapters.provisioners.slurm import commands, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.settings import JobSettings, seconds_of, settings_of


def read(**settings: str) -> JobSettings:
    given = {"directory": "/project/nodes", **settings}
    return settings_of(Provisioning(provisioner="slurm", settings=given), NodeType())


def test_each_setting_is_one_option() -> None:
    found = read(
        partition="gpu,big", time="1-12", gres="gpu:a100:4", cpus_per_task="8", mem="64G", extra="--exclusive --nice=100"
    )
    assert found.options() == [
        "--partition=gpu,big", "--time=1-12", "--gres=gpu:a100:4", "--cpus-per-task=8", "--mem=64G", "--exclusive", "--nice=100",
    ]  # fmt: skip


def test_a_type_goes_before_its_pool() -> None:
    node_type = NodeType(settings={"gres": "gpu:8"})
    provisioning = Provisioning(
        provisioner="slurm", settings={"directory": "/d", "gres": "gpu:4", "qos": "long"}, node_types=(node_type,)
    )
    assert settings_of(provisioning, node_type).options() == ["--qos=long", "--gres=gpu:8"]


@pytest.mark.parametrize(
    "extra",
    ["--uid=0", "--wrap=id", "--exp=ALL", "--output=/etc/x", "--job-n=x", "-p gpu", "gpu", "--bb=/etc/passwd", "--dep=singleton",
     "--no", "--clusters=b", "--nice=`id`", "--nice=$(id)", "--test-only", "--array=1-9", "'--time=5", "--comment=x"],
)  # fmt: skip
def test_options_that_settings_may_not_have(extra: str) -> None:
    with pytest.raises(BadSetting, match="Setting extra"):
        read(extra=extra)


@pytest.mark.parametrize(
    ("name", "value"),
    [("partition", "--wrap=id"), ("time", "soon"), ("directory", "nodes"), ("directory", "/a/../b"), ("python", "python -c x"),
     ("setup", "/a b"), ("colour", "red"), ("directory", "/a/%u"), ("account", "a b"), ("cpus_per_task", "-1"),
     ("gres", "gpu;4")],
)  # fmt: skip
def test_settings_that_are_wrong_are_named(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"Setting {name}"):
        read(**{name: value})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 300), ("5:30", 330), ("1:00:00", 3_600), ("2-00:00:00", 172_800), ("1-12", 129_600), ("infinite", float("inf")),
     ("n/a", None), ("", None)],
)  # fmt: skip
def test_times_of_slurm(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Unable to contact slurm controller (connect failure)", "unreachable"),
        ("Socket timed out on send/recv operation", "unreachable"),
        ("Munge encode failed: Failed to access", "unreachable"),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "quota"),
        ("QOSMaxSubmitJobPerUserLimit", "quota"),
        ("AssocMaxSubmitJobLimit", "quota"),
        ("Required node not available (down, drained or reserved)", "capacity"),
        ("Slurm temporarily unable to accept job, sleeping and retrying", "capacity"),
        ("Invalid partition name specified", "refused"),
        ("Invalid account or account/partition combination specified", "refused"),
        ("Invalid generic resource (gres) specification", "refused"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "refused"),
        ("Requested node configuration is not available", "refused"),
    ],
)
def test_kinds_of_refusals(words: str, kind: str) -> None:
    said = commands.CommandResult(1, "", f"sbatch: error: {words}\nsbatch: error: Batch job submission failed: {words}\n")
    error = said.error("take the job of node gpu-1")
    assert error.kind == kind
    assert str(error).startswith(f"Slurm does not take the job of node gpu-1: {words}")


def test_what_is_read_from_squeue() -> None:
    lines = [
        f"12|PENDING|Resources||{jobs.comment_of('c/1', 'gpu', jobs.Row(('gpu-1',)))}",
        f"13|RUNNING|None|n7|{jobs.comment_of('c/1', 'gpu', jobs.Row(('gpu-2',)))}",
        f"14|CANCELLED|None||{jobs.comment_of('c/1', 'gpu', jobs.Row(('gpu-3',)))}",
        f"15|NEWSTATE|None||{jobs.comment_of('c/1', 'gpu', jobs.Row(('gpu-4',)))}",
        "16|RUNNING|None|n1|my own | words",
        "17|RUNNING|None|n1|(null)",
        "slurm says something",
    ]
    found = [job.node() for job in jobs.read(lines)]
    assert [(node.node_id, node.provider_id, node.phase, node.detail) for node in found] == [
        ("gpu-1", "12", "pending", "pending: it waits for free nodes"),
        ("gpu-2", "13", "running", "on n7"),
        ("gpu-3", "14", "ended", "cancelled"),
        ("gpu-4", "15", "running", "newstate"),
    ]
    assert {job.cluster for job in jobs.read(lines)} == {"c/1"}


def test_the_launchers_own_variables_are_not_those_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TENUTO_DATABASE_URL", "SBATCH_ACCOUNT", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    assert not {"TENUTO_DATABASE_URL", "SBATCH_ACCOUNT", "AWS_SECRET_ACCESS_KEY"} & commands.environment().keys()


def test_the_environment_is_read_by_the_jobs_shell_as_it_was_written(tmp_path: Path) -> None:
    text = jobs.environment_text(Order("gpu-1", NodeType(), {"A": 'it\'s $HOME `id` "x"\nsecond', "B": ""}))
    script = tmp_path / "said.sh"
    script.write_text(f'said=$(cat {tmp_path}/agent.env)\nset -a\neval "$said"\nprintf \'%s|%s\' "$A" "$B"')
    (tmp_path / "agent.env").write_text(text)
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == 'it\'s $HOME `id` "x"\nsecond|'


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_command_may_end_without_reading_what_it_is_given(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        for _ in range(5):
            assert runner.run(commands.run("true", text="x" * 1_000_000)) == commands.CommandResult(0, "", "")
        assert runner.run(commands.run("cat", text="all of it")).output == "all of it"
