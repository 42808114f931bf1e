"""Judges the addresses that the gateway connects to for its users: public ones, and those that the operator allows.

A user who makes a webhook chooses where this process sends a request. Inside the cluster's network, a request could reach
services that are closed to that user: databases, a cloud's metadata service, other services of this machine. So each address
is judged when the connection is made, after the name was looked up, and the connection goes to that very address: the same
name may have another one a moment later.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence

from tenuto.kernel.settings import SettingsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
NOT_PUBLIC = tuple(
    ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "2001::/23", "5f00::/16")
)
"""Special-purpose networks that some versions of Python's library call global."""
COMPATIBLE = ipaddress.IPv6Network("::/96")


class AddressRefused(OSError):
    """Refusal of an address; the text names the address and the reason, as the end of a sentence."""


def allowed_networks(text: str) -> tuple[Network, ...]:
    """Networks of TENUTO_WEBHOOK_ADDRESSES, which are separated by commas. Raises SettingsError."""
    found: list[Network] = []
    for part in filter(None, (item.strip() for item in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part, strict=False))
        except ValueError:
            raise SettingsError(
                f"TENUTO_WEBHOOK_ADDRESSES has {part!r}, but must be addresses or networks with commas between, such as "
                "127.0.0.1 or 10.20.0.0/16,fd00::/8."
            ) from None
    return tuple(found)


class Guard:
    """Judges the addresses of one target."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = tuple(allowed)
        self.refused = ""
        """Reason why the last attempt was refused; each attempt begins by emptying it."""

    def check(self, address: str) -> None:
        """Raises AddressRefused."""
        why = refusal(address, self._allowed)
        if why:
            self.refused = why
            raise AddressRefused(why)

    def socket(self, info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        """A socket that will be connected to an address as `getaddrinfo` gives it. Raises AddressRefused."""
        family, kind, protocol, _, place = info
        self.check(str(place[0]))
        return socket.socket(family, kind, protocol)

    def resolved(self, host: str, port: int) -> str:
        """Looks a name up once and returns an address that may be connected to. Raises AddressRefused, and OSError if the name
        cannot be looked up."""
        found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for address in found:
            if not refusal(address, self._allowed):
                return address
        self.check(found[0])
        raise AssertionError("unreachable: the first address was refused")


def refusal(text: str, allowed: Iterable[Network] = ()) -> str:
    """Reason why the gateway must not connect to this address for a user; empty if it may."""
    try:
        # A link-local address may have its zone behind a %.
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return f"{text} is no address"
    meant = _meant(address)
    networks = tuple(allowed)
    if any(_within(item, network) for item in meant for network in networks):
        return ""
    if all(item.is_global and not item.is_multicast and not _special(item) for item in meant):
        return ""
    return f"{address} is no public address; an operator may allow it (TENUTO_WEBHOOK_ADDRESSES of the gateway)"


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


def _special(address: Address) -> bool:
    return any(_within(address, network) for network in NOT_PUBLIC)


def _meant(address: Address) -> tuple[Address, ...]:
    """The address, or the one that it stands for: IPv4 in IPv6 (mapped, compatible, NAT64, 6to4, Teredo)."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    # `::` and `::1` are in COMPATIBLE as well, and stand for no IPv4 address.
    if address in NAT64 or (address in COMPATIBLE and int(address) > 0xFFFF):
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    if address.sixtofour is not None:
        return (address, address.sixtofour)
    if address.teredo is not None:
        return (address, *address.teredo)
    return (address,)
