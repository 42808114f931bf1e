"""Choice of the connection that gives way to a new one when there is no more room. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

NETWORK_V6_BITS = 64
"""Bits of an IPv6 address that identify its holder: one holder has all addresses with the same beginning."""


@dataclass(frozen=True)
class IdleConnection:
    """A connection that waits for its client: it has no request, only a part of one, or its last one was answered."""

    address: str
    asked: bool
    """True: it brought a whole request before."""
    since_seconds: float
    """Time at which it was made, by a clock that never goes back."""


def gives_way(held: Sequence[IdleConnection]) -> int | None:
    """Index of the one that is closed: of the address that holds the most, so that a flood is in its own way; there one that
    never asked for anything, before one that is kept for a next request; of these the oldest. None: there is none."""
    counts = Counter(item.address for item in held)
    if not counts:
        return None
    most = max(counts.values())
    return min(
        (index for index, item in enumerate(held) if counts[item.address] == most),
        key=lambda index: (held[index].asked, held[index].since_seconds),
    )


def holder(address: str) -> str:
    """Holder of a connection's address: the address itself, or the network of an IPv6 address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> (128 - NETWORK_V6_BITS) << (128 - NETWORK_V6_BITS)))
    return str(parsed if not isinstance(parsed, IPv6Address) else parsed.ipv4_mapped)
