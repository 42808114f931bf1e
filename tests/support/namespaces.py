"""Network namespaces with cables between them, which can be cut: two that are joined by one, or hosts at a switch; and a way into
them for what is outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import litter

FORWARD = Path(__file__).with_name("forward.py")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def add_namespace(name: str) -> None:
    litter.outside("namespace", name)
    ip("netns", "add", name)


def inside(name: str) -> tuple[str, ...]:
    """Prefix of a command that runs in this namespace."""
    return "ip", "netns", "exec", name


@contextlib.contextmanager
def two_namespaces() -> Iterator[tuple[str, str]]:
    """Each with one end of the device `cable`: 10.123.0.1 and 10.123.0.2. Skips the test where they are not allowed."""
    names = (f"tenuto-{os.getpid()}-a", f"tenuto-{os.getpid()}-b")
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` command to make network namespaces with")
    try:
        try:
            for name in names:
                add_namespace(name)
            ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
            ip("netns", "exec", names[0], "true")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
        for index, name in enumerate(names, start=1):
            ip("-n", name, "address", "add", f"10.123.0.{index}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)


class Hosts(NamedTuple):
    """Hosts at a switch, and this machine at the same switch."""

    here: str
    """Address of this machine there."""
    names: tuple[str, ...]
    """Namespaces of the hosts."""
    switch: str

    def cut(self, host: str) -> None:
        """Pulls the host's cable out of the switch."""
        ip("-n", self.switch, "link", "set", f"port{self.names.index(host)}", "down")

    def mend(self, host: str) -> None:
        ip("-n", self.switch, "link", "set", f"port{self.names.index(host)}", "up")


@contextlib.contextmanager
def hosts_at_a_switch(count: int) -> Iterator[Hosts]:
    """The switch is in a namespace of its own, where no rules of this machine's firewall count. Skips the test where namespaces
    are not allowed."""
    mark = os.getpid()
    switch, here = f"tenuto-{mark}-switch", f"tenuto{mark}"
    names = tuple(f"tenuto-{mark}-host{number}" for number in range(1, count + 1))
    network = f"10.{124 + mark // 250 % 100}.{mark % 250}"
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` command to make network namespaces with")
    try:
        try:
            for name in (switch, *names):
                add_namespace(name)
            ip("netns", "exec", switch, "true")
            ip("-n", switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", switch, "link", "set", "bridge", "up")
            litter.outside("device", here)
            ip("link", "add", here, "type", "veth", "peer", "name", "uplink", "netns", switch)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
        for index, name in enumerate(names):
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{index}", "netns", switch)
            ip("-n", name, "address", "add", f"{network}.{index + 2}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
        for port in ("uplink", *(f"port{index}" for index in range(count))):
            ip("-n", switch, "link", "set", port, "master", "bridge", "up")
        ip("address", "add", f"{network}.1/24", "dev", here)
        ip("link", "set", here, "up")
        yield Hosts(f"{network}.1", names, switch)
    finally:
        for name in (*names, switch):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "delete", here)


@contextlib.contextmanager
def reached_at(address: str, port: int) -> Iterator[None]:
    """Makes a port of 127.0.0.1 reachable at that address, too."""
    process = subprocess.Popen([sys.executable, str(FORWARD), f"tcp:{address}:{port}", f"tcp:{port}"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def forwarded(port: int, names: tuple[str, ...], directory: Path) -> Iterator[None]:
    """Makes a local port of this machine reachable in the namespaces, by unix sockets instead of the cable."""
    gate = f"unix:{directory / 'gate'}"
    commands: list[tuple[str, ...]] = [(sys.executable, str(FORWARD), gate, f"tcp:{port}")]
    commands += [(*inside(name), sys.executable, str(FORWARD), f"tcp:{port}", gate) for name in names]
    processes = []
    try:
        for command in commands:
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            processes.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
