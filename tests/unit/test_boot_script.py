"""The boot script of clouds' machines, run by bash: what the agent is told arrives as it is, and the machine always ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.adapters.provisioners import Order
from tenuto.services.launcher.adapters.provisioners.boot import KNOWN, BootSettings, boot_script, boot_settings
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting, read
from tests.support.cloud_machine import Machine
from tests.support.waiting import SECONDS_MAX

TOKEN = "tenuto-join-a-secret-of-the-tests"
AGENT = """#!/bin/sh
[ "$1" = -m ] || exit 9
if [ "$2" = pip ]; then echo "pip $*"; exit 0; fi
env -0 >{directory}/said
printf '%s\\0' "$@" >{directory}/arguments
case "{does}" in
    joins) touch "$TENUTO_AGENT_DIRECTORY/joined.json.new"; echo x >"$TENUTO_AGENT_DIRECTORY/joined.json"; sleep 1.2; exit 7 ;;
    stays) echo x >"$TENUTO_AGENT_DIRECTORY/joined.json"; exec sleep 60 ;;
    waits) exec sleep 60 ;;
esac
"""
ACCOUNT = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def _python(directory: Path, does: str) -> str:
    file = directory / "python"
    file.write_text(AGENT.format(directory=directory, does=does))
    file.chmod(0o755)
    return str(file)


async def _run(directory: Path, given: BootSettings, does: str = "joins", *, boot_seconds: int = 60, **more: str) -> Machine:
    machine = Machine(directory / "machine")
    environment = {"TENUTO_AGENT_ID": "gpus-1", "TENUTO_JOIN_TOKEN": TOKEN, **more}
    made = replace(given, python=_python(directory, does), directory=str(directory / "state"))
    order = Order("gpus-1", NodeType(), environment)
    script = boot_script(order, made, end_notice="aws", boot_seconds=boot_seconds, stop_seconds=90)
    process = await machine.boot(script)
    (directory / "script.pid").write_text(str(process.pid))
    async with asyncio.timeout(SECONDS_MAX):
        await process.wait()
    return machine


def _said(directory: Path) -> dict[str, str]:
    return dict(item.split("=", 1) for item in (directory / "said").read_bytes().decode().split("\0") if item)


async def test_an_agent_from_its_start_to_the_end_of_its_machine(tmp_path: Path) -> None:
    machine = await _run(tmp_path, BootSettings(user=ACCOUNT, install=("tenuto[torch]", "tenuto@https://example.org/a.whl")))
    told = _said(tmp_path)
    assert told["TENUTO_END_NOTICE"] == "aws"
    assert told["TENUTO_JOIN_TOKEN"] == TOKEN
    assert (tmp_path / "arguments").read_text().split("\0")[:-1] == ["-m", "tenuto.cli.main", "agent", "run", "--name", "gpus-1"]
    assert "pip -m pip install --quiet -- tenuto[torch] tenuto@https://example.org/a.whl" in machine.console()
    assert machine.is_off
    assert machine.commands()[0] == "shutdown -h +2", "before anything can fail"
    assert "shutdown -c" in machine.commands(), "once the agent has joined"
    assert (tmp_path / "state/gpus-1/agent.log").read_text() == machine.console()
    assert TOKEN not in machine.console() + "".join(machine.commands())
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "said" and TOKEN in path.read_text()]
    assert left == []


async def test_a_machine_that_starts_again_is_no_node(tmp_path: Path) -> None:
    await _run(tmp_path, BootSettings(user=ACCOUNT))
    (tmp_path / "said").unlink()
    machine = await _run(tmp_path, BootSettings(user=ACCOUNT))
    assert not (tmp_path / "said").exists()
    assert machine.is_off
    assert "this machine has been this node before" in machine.console()


async def test_a_machine_whose_agent_never_joins_ends(tmp_path: Path) -> None:
    machine = await _run(tmp_path, BootSettings(user=ACCOUNT), "waits", boot_seconds=1)
    assert machine.is_off
    assert "has not joined within 1 s" in machine.console()


async def test_a_machine_that_is_told_to_end_says_so(tmp_path: Path) -> None:
    booted = asyncio.create_task(_run(tmp_path, BootSettings(user=ACCOUNT), "stays"))
    said = tmp_path / "machine/commands"
    while not said.exists() or "shutdown -c" not in said.read_text():  # it has seen that the agent joined
        assert not booted.done()
        await asyncio.sleep(0.05)
    os.kill(int((tmp_path / "script.pid").read_text()), signal.SIGTERM)
    machine = await booted
    assert machine.is_off
    assert "tenuto: The machine was told to end, and its agent with it. The machine turns itself off." in machine.console()


async def test_a_setup_that_ends_the_script_ends_the_machine(tmp_path: Path) -> None:
    (tmp_path / "setup").write_text("export FROM_SETUP=x\n")
    machine = await _run(tmp_path, BootSettings(user=ACCOUNT, setup=str(tmp_path / "setup")))
    assert _said(tmp_path)["FROM_SETUP"] == "x"
    (tmp_path / "again").mkdir()
    (tmp_path / "setup").write_text("exit 3\n")
    machine = await _run(tmp_path / "again", BootSettings(user=ACCOUNT, setup=str(tmp_path / "setup")))
    assert machine.is_off
    assert not (tmp_path / "again/said").exists()


async def test_trials_have_an_account_without_the_metadata_service(tmp_path: Path) -> None:
    machine = await _run(tmp_path, BootSettings(user=ACCOUNT, worker_user="none-such"))
    assert _said(tmp_path)["TENUTO_WORKER_USER"] == "none-such"
    assert [line for line in machine.commands() if line.startswith("useradd") or " OUTPUT " in line] == [
        "useradd --system --user-group --create-home --shell /bin/sh -- none-such",
        "iptables -w 5 -I OUTPUT -m owner --uid-owner none-such -d 169.254.169.254 -p tcp ! --dport 53 -j REJECT",
        *(
            f"ip6tables -w 5 -I OUTPUT -m owner --uid-owner none-such -d {address} -p tcp ! --dport 53 -j REJECT"
            for address in ("fd00:ec2::254", "fd20:ce::254")
            if Path("/proc/net/if_inet6").exists()
        ),
    ]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60) | st.sampled_from(
    ["$(touch owned)", "`touch owned`", "'; touch owned; '", "\n\ntouch owned\n", "\\", "'", '"', "!!", "$HOME", "a\nEOF\n", "-n"]
)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXTS, min_size=20, max_size=60))
def test_values_arrive_as_they_are(texts: list[str]) -> None:
    """Many in one boot, as a boot takes a second."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        given_values = {f"TENUTO_VALUE_{number}": text for number, text in enumerate(texts)}
        machine = asyncio.run(_run(directory, BootSettings(user=ACCOUNT), "ends", **given_values))
        assert _said(directory).items() >= given_values.items()
        assert machine.is_off
        assert not list(directory.rglob("owned"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("python", "/opt/$(id)/python"), ("python", "python3 -c"), ("install", "-r /etc/passwd"), ("install", "a;b -i x"),
        ("install", "tenuto $(id)"), ("setup", "/a b"), ("user", "a b"), ("user", "-x"), ("worker_user", "a;b"),
        ("directory", "relative"), ("directory", "/a/../b"), ("lifetime_hours", "0"), ("lifetime_hours", "9" * 20),
    ],
)  # fmt: skip
def test_settings_that_are_refused(name: str, text: str) -> None:
    with pytest.raises(BadSetting, match=name):
        boot_settings(read("aws", KNOWN, {name: text}, {}))


def test_accounts() -> None:
    assert boot_settings({}).worker_user == "tenuto-worker"
    assert boot_settings({"user": "ubuntu"}) == BootSettings(user="ubuntu")
    with pytest.raises(BadSetting, match="worker_user"):
        boot_settings({"user": "ubuntu", "worker_user": "nobody"})
    assert boot_settings({"worker_user": "root"}).worker_user == "", "trials run as the agent's own account"


def test_the_script_is_small() -> None:
    """EC2 takes 16 KiB."""
    order = Order("gpus-1", NodeType(), {"TENUTO_JOIN_TOKEN": json.dumps("x" * 300)})
    assert len(boot_script(order, BootSettings(), end_notice="aws", boot_seconds=900, stop_seconds=90)) < 9_000
