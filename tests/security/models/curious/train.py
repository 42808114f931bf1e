"""A submitted script that runs as root, and looks for the cluster's secrets. It writes what it found to SPY_REPORT, and ends."""

import contextlib
import ctypes
import json
import os
import socket
import struct
from pathlib import Path

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
CONNECT_SECONDS_MAX = 10.0
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def content(path: str) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return file.read()
    except OSError:
        return b""


def opened(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def listed(path: str) -> bool:
    try:
        os.listdir(path)
    except OSError:
        return False
    return True


def names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def traced(pid: int) -> bool:
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        return False
    with contextlib.suppress(OSError):
        os.waitpid(pid, 0x40000000)  # __WALL
    libc.ptrace(PTRACE_DETACH, pid, None, None)
    return True


def regained() -> dict[str, str]:
    """What programs that it starts can do: none gets back what it has not."""
    status = Path("/proc/self/status").read_text().splitlines()
    started = os.popen("cat /proc/self/status").read().splitlines()
    return {
        name: line.split(":")[1].strip()
        for name, lines in (("itself", status), ("started", started))
        for line in lines
        if line.startswith("CapEff")
    }


def said_by_postgres(port: int) -> str:
    """First answer to somebody who names the owner and has no password: R with 0 means "come in"."""
    words = b"user\0tenuto_owner\0database\0tenuto\0\0"
    with socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS_MAX) as connection:
        connection.sendall(struct.pack("!ii", len(words) + 8, 196_608) + words)
        answer = connection.recv(64)
    return answer[:1].decode() + str(struct.unpack("!i", answer[5:9])[0])


def said_by_nats(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS_MAX) as connection:
        connection.sendall(b'CONNECT {"verbose":true}\r\nPING\r\n')
        said = b""
        while b"PONG" not in said and b"-ERR" not in said and (piece := connection.recv(4096)):
            said += piece
    return "PONG" if b"PONG" in said else said.rpartition(b"-ERR")[2].decode().strip()


def main() -> None:
    targets = json.loads(Path("targets.json").read_text())
    found = {
        "user": os.getuid(),
        "rights": regained(),
        "read": [path for path in targets["files"] if opened(path, os.O_RDONLY)],
        "written": [path for path in targets["files"] if opened(path, os.O_WRONLY)],
        "listed": [path for path in targets["directories"] if listed(path)],
        "environments": [pid for pid in targets["processes"] if content(f"/proc/{pid}/environ")],
        "memory": [pid for pid in targets["processes"] if opened(f"/proc/{pid}/mem", os.O_RDONLY)],
        "threads": [
            pid
            for pid in targets["processes"]
            for thread in names(f"/proc/{pid}/task")
            if opened(f"/proc/{pid}/task/{thread}/mem", os.O_RDONLY)
        ],
        "descriptors": [
            pid
            for pid in targets["processes"]
            for descriptor in names(f"/proc/{pid}/fd")
            if opened(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY)
        ],
        "traced": [pid for pid in targets["processes"] if traced(pid)],
        "postgres": said_by_postgres(targets["postgres"]),
        "nats": said_by_nats(targets["nats"]),
    }
    partial = Path(os.environ["SPY_REPORT"] + ".partial")
    partial.write_text(json.dumps(found))
    partial.rename(os.environ["SPY_REPORT"])
    os._exit(7)


main()
