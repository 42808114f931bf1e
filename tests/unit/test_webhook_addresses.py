"""Which addresses the gateway connects to for its users."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tenuto.kernel.settings import SettingsError
from tenuto.schemas.webhooks import Url
from tenuto.services.gateway.notices.adapters.addresses import AddressRefused, Guard, allowed_networks, refusal

PRIVATE = [
    "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.5.5", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "192.0.0.8", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "203.0.113.5", "::", "::1", "fe80::1",
    "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::1", "::127.0.0.1", "100::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "151.101.1.69", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_refused(address: str) -> None:
    assert "no public address" in refusal(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_allowed(address: str) -> None:
    assert refusal(address) == ""


@given(st.ip_addresses(v=4))
def test_an_address_in_another_dress_is_the_same_address(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for dressed in (ipaddress.IPv6Address((0xFFFF << 32) | number), ipaddress.IPv6Address((0x64FF9B << 96) | number)):
        assert bool(refusal(str(dressed))) == bool(refusal(str(address)))


def stands_for(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Itself, and the IPv4 addresses in it: mapped, compatible, NAT64, 6to4, Teredo."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    dressed = ("::ffff:0:0/96", "64:ff9b::/96", "::/96")
    inside = any(address in ipaddress.IPv6Network(network) for network in dressed) and int(address) > 0xFFFF
    last = [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)] if inside else []
    return [address, *last, *([address.sixtofour] if address.sixtofour else []), *(address.teredo or ())]


@example(ipaddress.ip_address("64:ff9b::7f00:0"))
@example(ipaddress.ip_address("2002:7f00:1::"))
@given(st.ip_addresses())
def test_what_the_operator_allows_is_allowed_and_nothing_else(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    allowed = allowed_networks("127.0.0.0/8, 10.1.2.3 ,fd00::/8")
    if any(item.version == network.version and item in network for item in stands_for(address) for network in allowed):
        assert refusal(str(address), allowed) == ""
    else:
        assert refusal(str(address), allowed) == refusal(str(address))


def test_what_is_no_address() -> None:
    assert refusal("example.com")
    with pytest.raises(SettingsError, match="TENUTO_WEBHOOK_ADDRESSES has 'nonsense'"):
        allowed_networks("127.0.0.1,nonsense")


def test_a_name_is_looked_up_once_and_a_public_address_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["10.0.0.1", "8.8.8.8"], ["10.0.0.1"]]

    def looked_up(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    guard = Guard(())
    assert guard.resolved("rebinding.example", 443) == "8.8.8.8"
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1 is no public address"):
        guard.resolved("rebinding.example", 443)
    assert guard.refused


def test_a_socket_is_made_for_allowed_addresses_only() -> None:
    guard = Guard(allowed_networks("127.0.0.1"))
    guard.socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))).close()
    with pytest.raises(AddressRefused):
        guard.socket((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::ffff:169.254.169.254", 80, 0, 0)))


URLS: TypeAdapter[str] = TypeAdapter(Url)


@given(st.from_regex(r"^https?://[^\s/?#@]+([/?#]\S*)?$", fullmatch=True))
@example("https://C\u0106[\u0107V\u009b")
@example("https://h:99999/")
@example("https://h:/")
@example("http://:80/")
@example("http://..")
@example("https://\u2100.example.org/")
@example(f"http://{'a' * 64}.example.org/")
def test_a_url_that_is_kept_can_be_taken_apart_and_asked(url: str) -> None:
    try:
        kept = URLS.validate_python(url)
    except ValidationError:
        return
    parts = urlsplit(kept)
    assert parts.hostname
    assert parts.port != 0


@pytest.mark.parametrize(
    "url",
    ["https://u", "http://127.0.0.1:8080/x?y#z", "https://[::1]:8443/", "https://b\u00fccher.example.org/a", "http://h:/"],
)
def test_a_right_url_is_kept_as_it_is(url: str) -> None:
    assert URLS.validate_python(url) == url
