"""Two network namespaces with a cable between them, which can be cut; and a way into them for what is outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FORWARD = Path(__file__).with_name("forward.py")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


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
                ip("netns", "add", name)
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
