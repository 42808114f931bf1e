"""Root without its rights over other accounts: how users' code runs where the agent is root, and no other account can be used.

A program that is started through this file is still root, so that it can use an interpreter in root's home. But it may not pass
over the permissions of files, change owners, change its user, or look into processes that have more rights than itself; and
it, and all that it starts, never get those rights back. What belongs to another account and is closed is closed to it, and so are
`/proc/<pid>/environ` and the memory of services and agents.

This file is run as a program, by its path and with the standard library alone, in an environment in which nothing of the user's
counts yet: a library that LD_PRELOAD names would otherwise be loaded with all rights.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PREFIX = "TENUTO_CONFINED_"
"""Beginning of the names of the program's variables, until it is started."""
_OWN_VARIABLES = ("LD_LIBRARY_PATH", "PATH")
"""Variables of the agent itself, without which an interpreter may not start."""
_CHOWN, _DAC_OVERRIDE, _FOWNER, _IPC_LOCK, _SYS_PTRACE, _SYS_NICE, _SYS_RESOURCE = 0, 1, 3, 14, 19, 23, 24
"""linux/capability.h"""
KEPT = 1 << _IPC_LOCK | 1 << _SYS_NICE | 1 << _SYS_RESOURCE
"""Capabilities that stay, where root has them: locked memory for networks, priorities, and limits of its own. None of them reads
or changes what belongs to others."""
NEEDED = 1 << _CHOWN | 1 << _DAC_OVERRIDE | 1 << _FOWNER
"""Capabilities that the cluster itself needs to keep files as another account's, and still use them."""
_CAP_LAST_MAX = 63
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
"""linux/prctl.h"""
_CAPABILITY_VERSION_3 = 0x20080522
OF_CONTAINERS = "nobody"
"""Account of trials in containers, where the agent is root. Their checkpoints are open to its group, so that a trial that goes on
from one as a process can read it; its group is the only one that a program gets."""
EXIT_NOT_CONFINED = 126
"""Exit code where the kernel leaves rights to the program, which then is not started."""


def confined(command: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Command and environment that start `command`, whose first word is a path, with that environment as root without rights."""
    own = {name: os.environ[name] for name in _OWN_VARIABLES if name in os.environ}
    theirs = {f"{_PREFIX}{name}": value for name, value in environment.items()}
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), *command], own | theirs


def can_confine() -> bool:
    """True if this process is root, with the rights that it withholds from the code that it starts."""
    return os.geteuid() == 0 and capabilities() & NEEDED == NEEDED


def sees_private_processes() -> bool:
    """True if this process may look at processes that hide from others of their account."""
    return bool(capabilities() >> _SYS_PTRACE & 1)


def capabilities() -> int:
    """Capabilities in force of this process, as a set of bits. 0 where the system has none."""
    return _status("CapEff")


def _status(name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1], 16)
    return 0


def _groups() -> list[int]:
    try:
        return [pwd.getpwnam(OF_CONTAINERS).pw_gid]
    except KeyError:
        return []


def _drop() -> bool:
    """Gives up all rights but KEPT, for good. False: that is not possible here."""
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(OSError):
        os.setgroups(_groups())  # and no others: one may be that of the disks
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(_CAP_LAST_MAX + 1):
        if not KEPT >> capability & 1:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # needs CAP_SETPCAP; without it the flag above is enough
    left = _status("CapPrm") & KEPT
    low, high = left & 0xFFFFFFFF, left >> 32
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    return libc.capset(header, data) == 0 and not (_status("CapPrm") | _status("CapEff") | _status("CapInh")) & ~KEPT


def main() -> None:
    if not _drop():
        print("root's rights could not be given up here", file=sys.stderr)
        sys.exit(EXIT_NOT_CONFINED)
    prefix = _PREFIX.encode()
    environment = {name.removeprefix(prefix): value for name, value in os.environb.items() if name.startswith(prefix)}
    os.execve(sys.argv[1], sys.argv[1:], environment)


if __name__ == "__main__":
    main()
