"""A submitted script that looks for whatever is not its own. It writes what it found to SPY_REPORT, and fails."""

import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


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


def environment_of(pid: int) -> list[str]:
    """Names of variables with a secret in them."""
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return []
    names = [entry.partition(b"=")[0].decode() for entry in block.split(b"\0")]
    return [name for name in names if any(word in name for word in ("PASSWORD", "TOKEN", "DATABASE_URL"))]


def traced(pid: int) -> bool:
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        return False
    with contextlib.suppress(OSError):
        os.waitpid(pid, 0x40000000)  # __WALL
    libc.ptrace(PTRACE_DETACH, pid, None, None)
    return True


def signalled(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def main() -> None:
    targets = json.loads(Path("targets.json").read_text())
    mine, leader = os.getpid(), os.getppid()
    others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (mine, leader)]
    found = {
        "user": os.getuid(),
        "groups": os.getgroups(),
        "own_secrets": [name for name in os.environ if "TOKEN" in name or "PASSWORD" in name or name == "TENUTO_DATABASE_URL"],
        "home": os.environ["HOME"],
        "read": [path for path in targets["files"] if opened(path, os.O_RDONLY)],
        "written": [path for path in targets["files"] if opened(path, os.O_WRONLY)],
        "listed": [path for path in targets["directories"] if listed(path)],
        "environments": {pid: names for pid in others if (names := environment_of(pid))},
        "memory": [pid for pid in others if opened(f"/proc/{pid}/mem", os.O_RDONLY)],
        "traced": [pid for pid in others if traced(pid)],
        "signalled": [pid for pid in targets["cluster"] if signalled(pid)],
    }
    # What the agent reads in our name: a link to a secret, and a pipe that nobody writes to.
    output = Path(os.readlink("/proc/self/fd/1"))
    error = Path(os.environ["TENUTO_ERROR_FILE"])
    for path in (output, error):
        path.unlink(missing_ok=True)
        path.symlink_to(targets["secret"])
    errors = Path(os.readlink("/proc/self/fd/2"))
    errors.unlink()
    os.mkfifo(errors)
    partial = Path(os.environ["SPY_REPORT"] + ".partial")
    partial.write_text(json.dumps(found))
    partial.rename(os.environ["SPY_REPORT"])
    sys.stdout.flush()
    os._exit(7)


main()
