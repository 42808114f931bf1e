"""The process in which apprise sends one message: an order in JSON on standard input, an answer in JSON on standard output.

An audit hook of the interpreter judges each action of a plugin before it happens: a connection by the gateway's rules, with the
address that is connected to (so redirects, and names that get another address, are judged, too); no other program is started,
no file is written, and none is read but those of Python and its packages, as a plugin's address may name a file.
"""

from __future__ import annotations

import ipaddress
import json
import os
import resource
import signal
import sys
from typing import Any

from tenuto.kernel.optional import NotInstalled, needed
from tenuto.services.gateway.notices.adapters.addresses import AddressRefused, Guard

MEMORY_BYTES_MAX = 1 << 30
"""Largest address space, in bytes: four times what apprise needs with its largest libraries."""
PROCESSOR_SECONDS_MAX = 20
FILES_MAX = 64
ORDER_BYTES_MAX = 1 << 20
CONNECTING = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
FORBIDDEN = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn",
    "socket.bind", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "os.chown", "os.listdir", "os.scandir", "os.putenv", "os.kill", "ctypes.dlopen", "ctypes.dlsym", "ftplib.connect",
    "shutil.", "winreg.", "glob.",
)  # fmt: skip
"""Prefixes of the names of audit events that are refused."""


class Judge:
    """The audit hook. Until `armed` it judges only connections, so that Python can import what is needed."""

    def __init__(self, guard: Guard) -> None:
        self._guard, self.armed = guard, False
        places = [sys.prefix, sys.base_prefix, *sys.path, os.environ.get("SSL_CERT_FILE", ""), "/usr/share/zoneinfo"]
        here = os.path.realpath(__file__)
        self._readable = tuple(os.path.realpath(place) for place in (*places, os.path.dirname(here)) if place)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in CONNECTING:
            self._connect(arguments[1])
        elif not self.armed:
            return
        elif event == "open":
            self._open(*arguments)
        elif event.startswith(FORBIDDEN) and not (event in LISTING and self._may_read(arguments[0])):
            raise PermissionError(f"{event} is not allowed here")

    def _connect(self, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) and address else None
        if isinstance(host, bytes):
            host = host.decode("ascii", "replace")
        try:
            ipaddress.ip_address(str(host).partition("%")[0])
        except ValueError:  # a name would be looked up unjudged; a path is a socket of this machine
            self._guard.refused = "it leads to no address of a network"
            raise AddressRefused(self._guard.refused) from None
        self._guard.check(str(host))

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int):
            return
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        if writes and os.fsdecode(path) != os.devnull:
            raise PermissionError("no file is written here")
        if not self._may_read(path):
            raise PermissionError("this file is not read here")

    def _may_read(self, path: Any) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        real = os.path.realpath(os.fsdecode(path))
        return real == os.devnull or any(real == place or real.startswith(f"{place}{os.sep}") for place in self._readable)


LISTING = frozenset({"os.listdir", "os.scandir"})
"""Audit events that imports need; allowed in folders that may be read."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS_MAX, PROCESSOR_SECONDS_MAX))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
    order = json.loads(sys.stdin.buffer.read(ORDER_BYTES_MAX))
    signal.alarm(int(order["seconds"]) + 1)  # ends this process even if the gateway is killed meanwhile
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a plugin prints is no answer
    guard = Guard([ipaddress.ip_network(text) for text in order["allowed"]])
    judge = Judge(guard)
    sys.addaudithook(judge)
    told = _sent(order, judge)
    told["refused"] = guard.refused
    answer.write(json.dumps(told).encode())
    answer.flush()
    os._exit(0)  # threads of plugins are not waited for


def _sent(order: dict[str, Any], judge: Judge) -> dict[str, Any]:
    try:
        apprise = needed("apprise")
    except NotInstalled:
        return {"missing": True}
    asset = apprise.AppriseAsset(
        storage_mode=apprise.PersistentStoreMode.MEMORY, allow_templates=False, service_timeout=order["seconds"] - 1
    )
    asset.http_redirects = False
    asset.pgp_autogen = asset.pem_autogen = False
    try:
        judge.armed = True
        plugin = apprise.Apprise.instantiate(order["url"], asset=asset)
    except Exception:
        plugin = None
    if plugin is None:
        return {"unknown": True}
    plugin.overflow_mode = apprise.OverflowMode.TRUNCATE  # a message is one message
    try:
        taken = plugin.notify(body=order["body"], title=order["title"], notify_type=apprise.NotifyType(order["kind"]))
    except Exception:
        taken = False
    return {"taken": bool(taken)}


if __name__ == "__main__":
    main()
