"""Rehearsal of a waiting worker: it makes the first steps of a run in advance, without using their results.

A fork shares its memory with the process that it was forked from until it writes there; Python writes even where it only reads,
because it counts references. So the first network call, batch and step of a run cost thousands of page copies, some 30 ms. They
are made here, ahead of need. Only the copies remain: no Python thread, no file, and no state of a generator that a run would see,
because those are seeded anew at its beginning.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket
import sys
import warnings
from collections.abc import Callable
from types import ModuleType

CALL_SECONDS_MAX = 0.2
"""Longest call to a socket that nobody listens on: it is refused at once."""


def rehearse(link: socket.socket) -> None:
    """Rehearses until everything is done, or a job arrives. Never raises: a failure here happens again in the run, where it is
    reported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in PARTS:
            if select.select([link], [], [], 0)[0]:
                return
            with contextlib.suppress(Exception):
                part()


def _environment() -> None:
    if "torch" in sys.modules and not _might_touch_a_gpu(sys.modules["torch"]):
        from tenuto.workers.record.environment import capture

        capture().to_json()


def _network() -> None:
    import grpc

    from tenuto.kernel.clock import SystemClock
    from tenuto.schemas.wire import worker_pb2 as pb
    from tenuto.workers.connection.agent_client import AgentClient

    client = AgentClient(f"unix:/nonexistent/{os.getpid()}", "", "", 0, SystemClock())
    with contextlib.suppress(grpc.RpcError):
        client._stub.Hello(pb.HelloRequest(), timeout=CALL_SECONDS_MAX)
    client.close()


def _training() -> None:
    if "torch" not in sys.modules or _might_touch_a_gpu(sys.modules["torch"]):
        return
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(TensorDataset(torch.ones(2, 2), torch.ones(2, 1)), batch_size=1):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())


def _might_touch_a_gpu(torch: ModuleType) -> bool:
    """True for a torch built for GPUs, which looks for them at the first backward pass or optimizer step. The driver would
    then see all GPUs of the node for good, and CUDA_VISIBLE_DEVICES names this run's only later."""
    return any(getattr(torch.version, name, None) is not None for name in ("cuda", "hip", "xpu"))


PARTS: tuple[Callable[[], None], ...] = (_training, _network, _environment)
"""Parts of the rehearsal, the longest first."""
