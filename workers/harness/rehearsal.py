"""Rehearsal of a waiting worker: it makes the first steps of a run in advance, without using their results.

A fork shares its memory with the process that it was forked from until it writes there; Python writes even where it only reads,
because it counts references. So the first network call, batch and step of a run cost thousands of page copies, some 30 ms. They
are made here, ahead of need. Only the copies remain: no Python thread, no file, and no state of a generator that a run would see,
because those are seeded anew at its beginning.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import warnings

from tenuto.workers.harness.frameworks import imported

CALL_SECONDS_MAX = 0.2
"""Longest call to a socket without a listener: it is refused at once."""


def rehearse(link: socket.socket) -> None:
    """Rehearses until everything is done, or a job arrives. Never raises: a failure here happens again in the run, where it is
    reported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in (*(part for framework in imported() for part in framework.rehearsals()), _network):
            if select.select([link], [], [], 0)[0]:
                return
            with contextlib.suppress(Exception):
                part()


def _network() -> None:
    import grpc

    from tenuto.kernel.clock import SystemClock
    from tenuto.schemas.wire import worker_pb2 as pb
    from tenuto.workers.connection.agent_client import AgentClient

    client = AgentClient(f"unix:/nonexistent/{os.getpid()}", "", "", 0, SystemClock())
    with contextlib.suppress(grpc.RpcError):
        client._stub.Hello(pb.HelloRequest(), timeout=CALL_SECONDS_MAX)
    client.close()
