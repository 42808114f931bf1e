"""Helper of an agent that runs as root: brings directories of the node into running containers, and takes them away again.

Docker adds no mount to a container that runs. The kernel does: a copy of a mount is made here, and attached after this process
has entered the container's mount namespace (open_tree, setns, move_mount). Each request is done by a fork, which ends with it.

A file of its own that imports nothing of ours and is run by its path (`python -I -S`): it runs nothing that a container has, and
after it has entered one, no import may look for a file there. It ends when its socket closes.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

REQUEST_BYTES_MAX = 1 << 20
"""Most bytes of a request: some dozen paths."""
# Numbers of system calls, the same on all machines; the C library of Debian 12 has no functions for the first ones.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC, _MOVE_MOUNT_F_EMPTY_PATH = 1, os.O_CLOEXEC, 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_MS_PRIVATE = 1 << 18
_CLONE_NEWNS = 0x20000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    ]


def main() -> NoReturn:
    channel = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent says when it ends
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES_MAX, 1)
        if not data:
            os._exit(0)
        channel.send(_done_in_fork(json.loads(data), descriptors[0]))
        for descriptor in descriptors:
            os.close(descriptor)


def _done_in_fork(request: Any, container: int) -> bytes:
    """Empty if all is done, else the error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = b"it ended"
        try:
            said = _do(request, container)
        except BaseException as error:
            said = str(error).encode() or b"unknown error"
        finally:
            os.write(writing, said[:4096])
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 4096)
    os.close(reading)
    os.waitpid(pid, 0)
    return b"-" + said


def _do(request: Any, container: int) -> bytes:
    trees = [(_copy(source, writable), target.encode()) for source, target, writable in request["attach"]]
    leaving = [target.encode() for target in request["detach"]]
    _check(_libc.setns(container, _CLONE_NEWNS), "setns")
    for target in leaving:
        _check(_libc.umount2(target, _MNT_DETACH | _UMOUNT_NOFOLLOW), "umount2")
    for tree, target in trees:
        _check(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, target, _MOVE_MOUNT_F_EMPTY_PATH), "move_mount")
    return b""


def _copy(source: str, writable: bool) -> int:
    """Descriptor of a copy of the mount at this path."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    tree: int = _check(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags), "open_tree")
    attributes = _Attributes(set=_ATTR_NOSUID | _ATTR_NODEV | (0 if writable else _ATTR_RDONLY), propagation=_MS_PRIVATE)
    size = ctypes.sizeof(attributes)
    flags = _AT_EMPTY_PATH | _AT_RECURSIVE
    _check(_libc.syscall(_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(attributes), size), "mount_setattr")
    return tree


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, what + ": " + os.strerror(number))
    return result


if __name__ == "__main__":
    main()
