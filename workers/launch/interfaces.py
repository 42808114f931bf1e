"""The network interface of a supervisor's address. An agent does not know it if its ranks are in a container, which has its own
interfaces: one for each of its networks, in no guaranteed order."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from dataclasses import replace
from pathlib import Path

from tenuto.workers.launch.layout import GangPart

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 16
"""Length of an interface's name in the kernel's structures; the address follows a family and a port."""


def on_interface(part: GangPart) -> GangPart:
    """The part with the interface of its address, where that was not known."""
    return part if part.interface else replace(part, interface=interface_of(part.address))


def named(address: str, port: int) -> str:
    """`host:port`, as in a URL."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def interface_of(address: str) -> str:
    """Name of the interface with this address; empty if there is none."""
    wanted = ipaddress.ip_address(address)
    if wanted.version == 6:
        with contextlib.suppress(OSError):
            for line in Path("/proc/net/if_inet6").read_text().splitlines():
                packed, *_, name = line.split()
                if bytes.fromhex(packed) == wanted.packed:
                    return name
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack(f"{_NAME_BYTES}s24x", name.encode()))
                if found[_NAME_BYTES + 4 : _NAME_BYTES + 8] == wanted.packed:
                    return name
    return ""
