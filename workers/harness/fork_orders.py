"""Orders by which a waiting fork becomes a run, and the mark by which the run is found."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

MARK_VARIABLE = "TENUTO_RUN"
MARK_BYTES = 2_048
"""Bytes reserved for the mark: the agent's directory and an allocation id."""
JOB_BYTES_MAX = 4 << 20
"""Most bytes of a job: an environment has at most a few hundred kilobytes."""
KEPT = b"k"
"""Word of a leader to its agent: the run has ended, and its worker waits for another one."""
_FIELD_ENVIRONMENT_START = 47
"""Field 50 of /proc/<pid>/stat, counted from the process state; field 51 is its end."""


class ForkOrder(TypedDict):
    environment: dict[str, str]
    cwd: str
    mark: str
    """Empty: the processes of the run are found otherwise."""
    exit_file: str
    stdout: str
    stderr: str
    gang: NotRequired[bool]
    """True: the trial trains on several slots, so the supervisor of its ranks is started."""
    unset: NotRequired[list[str]]
    """Variables that a run does not have of those of the zygote, to which its own are added; without this key they replace all
    of them."""
    command: NotRequired[list[str]]
    """Program that is run in place of our own harness."""
    keeps: NotRequired[bool]
    """True: if the run ends in order, its worker may take over the next run of its experiment."""
    shared: NotRequired[list[str]]
    """Directories that runs which follow each other share: whatever is new in them at the end of the run is removed."""


def write_mark(mark: str) -> None:
    """Writes the run's mark into the memory that others read as this process's environment (/proc/<pid>/environ): a fork
    otherwise shows the environment that its ancestor was started with. Later forks show the mark, too, so a stray helper is
    found and killed."""
    if not mark:
        return
    name = f"{MARK_VARIABLE}=".encode()
    value = mark.encode()
    stat = Path("/proc/self/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    start, end = (int(fields[index]) for index in (_FIELD_ENVIRONMENT_START, _FIELD_ENVIRONMENT_START + 1))
    # Read from memory: a private process (launch/memory_protection.py) may not even open its own /proc/self/environ.
    offset = (b"\0" + ctypes.string_at(start, end - start)).index(b"\0" + name) + len(name)
    if len(value) > MARK_BYTES:
        raise ValueError(f"the mark {mark!r} is longer than {MARK_BYTES} bytes")
    ctypes.memmove(start + offset, value + b"\0" * (MARK_BYTES - len(value)), MARK_BYTES)


def read_line(control: socket.socket) -> bytes:
    """One line; empty at the end of the stream."""
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = control.recv(65_536)
        if not piece or len(data) > JOB_BYTES_MAX:
            return b""
        data += piece
    return bytes(data[:-1])


def take_order(line: bytes, link: socket.socket) -> ForkOrder:
    """The order in this line. The worker shows its mark from now on, and its leader is told that over `link`."""
    job: ForkOrder = json.loads(line)
    write_mark(job["mark"])
    link.sendall(b"m")
    return job


def begin_run(job: ForkOrder, environment: Mapping[str, str]) -> None:
    """Gives this process the output files, variables, directory and arguments of a run. `environment`: variables that the process
    was started with."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for target, path, flags in ((0, os.devnull, os.O_RDONLY), (1, job["stdout"], append), (2, job["stderr"], append)):
        descriptor = os.open(path, flags, 0o666)
        os.dup2(descriptor, target)
        os.close(descriptor)
    # The environment of this process is the zygote's; the run's replaces it completely, so nothing is inherited by accident.
    os.environ.clear()
    if "unset" in job:
        os.environ.update({name: value for name, value in environment.items() if name not in job["unset"]})
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    tempfile.tempdir = None  # an import may have asked for it, and the answer is remembered
    sys.argv = [str(Path(__file__).with_name("__main__.py"))]
