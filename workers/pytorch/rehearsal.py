"""First steps with torch, for a waiting worker (harness/rehearsal.py)."""

from __future__ import annotations

import io
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader, TensorDataset

from tenuto.workers.record import environment


def _training() -> None:
    if _might_touch_a_gpu():
        return
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(TensorDataset(torch.ones(2, 2), torch.ones(2, 1)), batch_size=1):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())


def _environment() -> None:
    if not _might_touch_a_gpu():
        environment.capture().to_json()


def _might_touch_a_gpu() -> bool:
    """True for a torch built for GPUs, which looks for them at the first backward pass or optimizer step. The driver would
    then see all GPUs of the node for good, and CUDA_VISIBLE_DEVICES names this run's only later."""
    return any(getattr(torch.version, name, None) is not None for name in ("cuda", "hip", "xpu"))


PARTS: tuple[Callable[[], None], ...] = (_training, _environment)
"""The longest first."""
