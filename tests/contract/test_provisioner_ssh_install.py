"""Installations on hosts that have nothing but Python, on a real sshd, by a real pip. The wheel of Tenuto is a stand-in."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from tenuto.services.launcher.adapters.provisioners import ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners.ssh import SshProvisioner, installation
from tenuto.version import __version__
from tests.support import sshd as support
from tests.support.provisioner_benches import is_live, order, until, until_over, until_printed
from tests.support.ssh_nodes import SshBench
from tests.support.sshd import Sshd
from tests.support.waiting import SECONDS_MAX

pytestmark = [pytest.mark.timeout(400), pytest.mark.real_part(support.lack())]
WHEEL = f"tenuto-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with support.sshd(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture
async def bench(tmp_path: Path, sshd: Sshd) -> AsyncIterator[SshBench]:
    found = SshBench(tmp_path, sshd)
    yield found
    await found.close()


def write_wheel(path: Path, files: dict[str, str], needs: str = "") -> None:
    name, version, *_ = path.name.split("-")
    about = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{about}/RECORD", "".join(f"{file},,\n" for file in (*files, f"{about}/RECORD")))


def tenuto(bench: SshBench, *, says: str = "one", needs: str = "") -> None:
    """Puts a wheel whose agent is the bench's stand-in, and says which it is, among the launcher's files."""
    main = (
        "import os, sys\nif __name__ == '__main__':\n"
        f"    print('installation {says}', flush=True)\n"
        f"    given = [{str(bench.directory / 'stand_in.py')!r}, {str(bench.directory)!r}, '-m', 'tenuto.cli.main']\n"
        "    os.execv(sys.executable, [sys.executable, *given, *sys.argv[1:]])\n"
    )
    files = {
        "tenuto/__init__.py": "", "tenuto/cli/__init__.py": "", "tenuto/cli/main.py": main,
        "tenuto/version.py": f"__version__ = {__version__!r}\n",
    }  # fmt: skip
    part = bench.secrets / f"{WHEEL}.part" / WHEEL
    part.parent.mkdir(exist_ok=True)
    write_wheel(part, files, needs)
    part.replace(bench.secrets / WHEEL)


def installs(bench: SshBench, **settings: str) -> SshProvisioner:
    return bench.with_settings({"python": sys.executable, "install": WHEEL, **settings})


def of_host(bench: SshBench, host: str = "h0") -> Path:
    return bench.directory / host / os.uname().nodename


async def problems(provisioner: SshProvisioner) -> dict[str, str]:
    return {finding.what: finding.problem for finding in await provisioner.check() if finding.what.startswith(("host", "set"))}


async def end(provisioner: SshProvisioner, node: RealNode) -> None:
    await provisioner.stop(node)
    await until_over(provisioner, node)


async def test_a_bare_host_is_made_ready_kept_and_brought_to_the_next_version(bench: SshBench) -> None:
    """The one long road, as an installation takes seconds."""
    (bench.secrets / "wheels").mkdir()
    write_wheel(bench.secrets / "wheels/needed-1.0-py3-none-any.whl", {})
    tenuto(bench, needs="needed==1.0")
    bench.write_hosts(bench.host("h0"))
    provisioner = installs(bench, wheelhouse="wheels")
    free = f"host h0: Tenuto {__version__} to be installed by its first node, free"
    assert await problems(provisioner) == {free: ""}
    # Half of the wheel came before a connection was cut.
    data = (bench.secrets / WHEEL).read_bytes()
    files = of_host(bench) / "files"
    (files / f"{hashlib.sha256(data).hexdigest()}.part").write_bytes(data[:300])
    await provisioner.start([order()])
    [node] = await provisioner.nodes()
    if node.phase == "pending":
        assert node.detail.startswith("Tenuto is being installed for ")
    [node] = await until(provisioner, "running")
    said = await until_printed(provisioner, node, "ready")
    assert "Successfully installed needed-1.0 tenuto" in said, "what pip said is in the node's log"
    assert "installation one" in said
    assert list(files.iterdir()) == [], "what was sent is not needed any more"
    assert await problems(provisioner) == {f"host h0: Tenuto {__version__} installed, has node gpus-1": ""}
    [first] = (of_host(bench) / "versions").glob("*.json")

    # Another wheel of that version: the agent that runs is not touched.
    tenuto(bench, says="two", needs="needed==1.0")
    [seen] = await provisioner.nodes()
    assert (seen.phase, seen.outdated) == ("running", True)
    assert first.exists()
    await end(provisioner, node)
    assert not any(is_live(pid) for pid in bench.began("gpus-1"))
    await provisioner.start([order("gpus-2")])
    [node] = await until(provisioner, "running")
    assert not node.outdated
    assert "installation two" in await until_printed(provisioner, node, "ready")
    kept = {path.stem for path in (of_host(bench) / "versions").glob("*.json")}
    assert len(kept) == 2
    assert first.stem in kept, "the way back"
    await end(provisioner, node)

    # A third, whose builder is killed: nothing of it is taken for ready, and nothing of it stays.
    tenuto(bench, says="three", needs="needed==1.0")
    await provisioner.start([order("gpus-3")])
    keeper = (await _builder(bench)).parent()
    assert keeper is not None
    keeper.send_signal(signal.SIGKILL)
    ended = await until_over(provisioner, next(item for item in await provisioner.nodes() if item.node_id == "gpus-3"))
    assert ended is not None
    assert ended.detail == "it was killed"
    await provisioner.start([order("gpus-4")])
    await until(provisioner, "running")
    versions = of_host(bench) / "versions"
    assert len(list(versions.glob("*.json"))) == 2, "the older of the two that were not used is gone"
    assert len([path for path in versions.iterdir() if path.is_dir()]) == 2


async def _builder(bench: SshBench) -> psutil.Process:
    """The program that makes a virtual environment."""
    versions = str(of_host(bench) / "versions")
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            for process in psutil.process_iter(["cmdline"]):
                command = process.info["cmdline"] or []
                if "venv" in command and command[-1].startswith(versions):
                    return process
            await asyncio.sleep(0.02)


async def test_one_that_is_given_back_while_it_installs_ends(bench: SshBench) -> None:
    tenuto(bench)
    slow = bench.directory / "slow"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *venv*versions*) sleep 600;; esac\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    provisioner = installs(bench, python=str(slow))
    await provisioner.start([order()])
    [node] = await until(provisioner, "pending")
    assert node.detail.startswith("Tenuto is being installed")
    await provisioner.stop(node)
    [ended] = await until(provisioner, "ended")
    assert ended.detail == "it was told to end"
    assert bench.began("gpus-1") == []
    assert [path for path in (of_host(bench) / "versions").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("old", "is Python 3.9.1, and Tenuto needs 3.11 or later: install one, or set python"),
        ("bare", "makes no virtual environments (ModuleNotFoundError: No module named 'ensurepip'): install"),
        ("full", "has room for"),
    ],
)
async def test_a_host_that_cannot_install_is_told_before_anything_is_sent(
    bench: SshBench, case: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenuto(bench)
    says = {"old": "echo 3.9.1; exit 3", "bare": "echo \"ModuleNotFoundError: No module named 'ensurepip'\" >&2; exit 1"}
    python = bench.directory / "odd"
    python.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*) {says.get(case, "true")};; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    if case == "full":
        real = installation.SentFile
        monkeypatch.setattr(installation, "SentFile", lambda name, sha256, size: real(name, sha256, 1 << 60))
        monkeypatch.setattr(installation, "BYTES_MAX", 1 << 70)
    bench.write_hosts(bench.host("h0"))
    provisioner = installs(bench, python=str(python))
    found = await problems(provisioner)
    assert words in found["host h0"]
    with pytest.raises(ProvisionerError) as caught:
        await provisioner.start([order()])
    assert words in str(caught.value)
    assert caught.value.kind == "refused"
    assert await provisioner.nodes() == []


async def test_an_installation_that_fails_says_why_and_leaves_nothing(bench: SshBench) -> None:
    tenuto(bench, needs="none-such-at-all")
    (bench.secrets / "wheels").mkdir()
    (bench.secrets / "wheels" / "other-1.0-py3-none-any.whl").write_bytes(b"no wheel, and not needed")
    provisioner = installs(bench, wheelhouse="wheels")
    await provisioner.start([order()])
    [ended] = await until(provisioner, "ended")
    words = "pip does not install it: No matching distribution found for none-such-at-all"
    assert ended.detail.startswith(f"Tenuto cannot be installed: {words}")
    assert list((of_host(bench) / "versions").iterdir()) == []


async def test_what_arrives_with_other_contents_is_refused(bench: SshBench) -> None:
    tenuto(bench)
    data = (bench.secrets / WHEEL).read_bytes()
    bench.write_hosts(bench.host("h0"))
    provisioner = installs(bench)
    await provisioner.check()
    part = of_host(bench) / "files" / f"{hashlib.sha256(data).hexdigest()}.part"
    part.write_bytes(b"x" * 300)
    with pytest.raises(ProvisionerError, match="arrived with other contents than were sent"):
        await provisioner.start([order()])
    assert not part.exists()
    assert await provisioner.nodes() == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"install": "tenuto-9.9-py3-none-any.whl"}, "asks for Tenuto 9.9, and the launcher is"),
        ({"install": "tenuto==9.9"}, "asks for Tenuto 9.9, and the launcher is"),
        ({"install": WHEEL}, "which is not in the launcher's directory of secrets"),
        ({"install": "tenuto", "wheelhouse": "none"}, "names none, which is no directory with wheels"),
        ({"install": "--index-url=http://x"}, "Setting install must be a wheel of Tenuto"),
        ({"install": "tenuto", "install_extras": "torch;id"}, "Setting install_extras must be"),
        ({"constraints": "file"}, "give install, such as install=tenuto"),
    ],
)
async def test_settings_that_are_wrong(bench: SshBench, settings: dict[str, str], words: str) -> None:
    with pytest.raises(ProvisionerError) as caught:
        await bench.with_settings(settings).start([order()])
    assert words in str(caught.value)
    assert caught.value.kind == "refused"
