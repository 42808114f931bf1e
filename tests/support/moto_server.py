"""moto's server of AWS's interfaces, in a thread of this process."""

from __future__ import annotations

import functools
import socket
import threading
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

REGION = "us-east-1"
_starting = threading.Lock()
_servers: list[tuple[str, int]] = []


def moto_url() -> str:
    """One server for all tests of this process: it holds instances of many clusters. Another one where it does not answer any
    more: tests that use up all descriptors of this process end its thread."""
    with _starting:
        if not _servers or not _answers(_servers[-1]):
            server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
            server.start()
            _servers.append(server.get_host_and_port())
        host, port = _servers[-1]
    return f"http://{host}:{port}"


def _answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=30).close()
    except OSError:
        return False
    return True


def client(service: str = "ec2") -> Any:
    """Past the proxy."""
    return _client(service, moto_url())


@functools.cache
def _client(service: str, url: str) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
    return boto3.client(service, region_name=REGION, endpoint_url=url, **keys)


@functools.cache
def linux_image() -> str:
    return next(
        item["ImageId"]
        for item in client().describe_images(Filters=[{"Name": "name", "Values": ["al2023-ami-2023*-x86_64"]}])["Images"]
        if item["Architecture"] == "x86_64"
    )
