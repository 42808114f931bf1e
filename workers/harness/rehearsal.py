"""Rehearsal of a waiting worker: it makes the first steps of a run in advance, without using their results.

A fork shares its memory with the process that it was forked from until it writes there; Python writes even where it only reads,
because it counts references. So the first network call, batch and step of a run cost thousands of page copies, some 30 ms. They
are made here, ahead of need. Only the copies remain: no Python thread, no file, and no state of a generator that a run would see,
because those are seeded anew at its beginning. Threads of gRPC's own end some milliseconds later (`threads_ended`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import warnings

from tenuto.workers.harness.frameworks import imported

CALL_SECONDS_MAX = 0.2
"""Longest call to a socket without a listener: it is refused at once."""
THREADS_SECONDS_MAX = 10.0
"""Longest wait for the threads of the call to end. They need some milliseconds, and on a busy machine some hundred."""
THREADS_POLL_SECONDS = 0.002

_BEFORE_CALL: list[frozenset[str]] = []
"""Threads of this process before the rehearsed call. Empty: no call was made."""


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

    _BEFORE_CALL[:] = [_threads()]
    client = AgentClient(f"unix:/nonexistent/{os.getpid()}", "", "", 0, SystemClock())
    with contextlib.suppress(grpc.RpcError):
        client._stub.Hello(pb.HelloRequest(), timeout=CALL_SECONDS_MAX)
    client.close()


def threads_ended() -> bool:
    """Waits until the threads that the rehearsed call has started have ended. To be called before a fork whose child uses gRPC:
    a lock that such a thread holds at that moment stays locked in the child, which then waits for it for ever.

    False: some still run after THREADS_SECONDS_MAX, so no such fork may be made.
    """
    until = time.monotonic() + THREADS_SECONDS_MAX
    while _BEFORE_CALL and _threads() - _BEFORE_CALL[0]:
        if time.monotonic() > until:
            return False
        time.sleep(THREADS_POLL_SECONDS)
    return True


def _threads() -> frozenset[str]:
    return frozenset(os.listdir("/proc/self/task"))
