"""What a worker that stands by does while it waits: the first moments of a run, for nothing.

A fork shares its memory with the process that it was forked from until it writes there; Python writes even where it only reads,
because it counts references. The first network call, batch and step of a run so cost thousands of page copies, some 30 ms: they
are made here, ahead of need. Nothing of it is kept but the copies: no thread of Python's, no file, and no state of a generator
that a run would see, because those are drawn anew at its beginning.
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
"""Of a call to a socket that nobody listens on: it is refused at once."""


def rehearse(link: socket.socket) -> None:
    """Until all is done, or a job is there. Never raises: what fails here fails again in the run, where somebody sees it."""
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
    from tenuto.workers.harness.agent_client import AgentClient

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
    """A torch that was built for GPUs looks for them at the first backward pass or optimizer step. The driver would see all of
    the node's then, and for good: which of them are this run's is said later, by CUDA_VISIBLE_DEVICES."""
    return any(getattr(torch.version, name, None) is not None for name in ("cuda", "hip", "xpu"))


PARTS: tuple[Callable[[], None], ...] = (_training, _network, _environment)
"""The longest first."""
