"""A name server for a real Kubernetes of the tests' own, as a program: it knows the addresses of services, and nothing else."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
import struct
import sys
import urllib.request
from pathlib import Path
from typing import cast

DOMAIN = ".svc.cluster.local"
OK, NO_NAME, ADDRESS, INTERNET = 0, 3, 1, 1


class Names(asyncio.DatagramProtocol):
    """`kubeconfig` is not read: it is given the API server's address, a file with its certificate, and one with a token."""

    def __init__(self, url: str, authority: str, token: str) -> None:
        self._url, self._token = url, token
        self._context = ssl.create_default_context(cafile=authority)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """One question; the rest of the message is left out of the answer."""
        labels, position = [], 12
        while length := data[position]:
            labels.append(data[position + 1 : position + 1 + length].decode())
            position += 1 + length
        question = data[12 : position + 5]
        kind, _ = struct.unpack(">HH", question[-4:])
        address = self._address(".".join(labels))
        answers = [] if address is None or kind != ADDRESS else [address]
        head = struct.pack(
            ">HHHHHH", *struct.unpack(">H", data[:2]), 0x8580 | (OK if address else NO_NAME), 1, len(answers), 0, 0
        )
        rows = [struct.pack(">HHHIH", 0xC00C, ADDRESS, INTERNET, 1, 4) + item.packed for item in answers]
        self._transport.sendto(head + question + b"".join(rows), addr)

    def _address(self, name: str) -> ipaddress.IPv4Address | None:
        if not name.endswith(DOMAIN):
            return None
        service, _, namespace = name.removesuffix(DOMAIN).partition(".")
        request = urllib.request.Request(
            f"{self._url}/api/v1/namespaces/{namespace}/services/{service}", headers={"Authorization": f"Bearer {self._token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._context) as answer:
                return ipaddress.IPv4Address(json.loads(answer.read())["spec"]["clusterIP"])
        except (OSError, ValueError):
            return None


async def main(url: str, authority: str, token: str, address: str) -> None:
    names = Names(url, authority, Path(token).read_text().strip())
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: names, (address, 53))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
