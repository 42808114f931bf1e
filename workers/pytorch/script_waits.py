"""Waits for other ranks in torch.distributed, measured for scripts. Imports torch only once the script has."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from tenuto.workers.harness.script_waits import ScriptWaits


def watch(waits: ScriptWaits) -> None:
    waits.watch("torch.nn.parallel.distributed", lambda module: _watch(module, waits))
    waits.if_device_waits(_is_on_gpus)


def _is_on_gpus() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _watch(module: ModuleType, waits: ScriptWaits) -> None:
    """Measures `Work.wait`, in which exchanges end, except those of DistributedDataParallel, whose backward pass waits by
    itself."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    dist.Work.wait = waits.counted(dist.Work.wait)  # type: ignore[method-assign]
    parallel = module.DistributedDataParallel
    sync_buffers, post_forward = (
        waits.counted(parallel._sync_buffers),
        _marked(waits, parallel._post_forward, module._find_tensors),
    )
    parallel._sync_buffers, parallel._post_forward = sync_buffers, post_forward


def _marked(
    waits: ScriptWaits, post_forward: Callable[..., Any], tensors_of: Callable[[Any], Iterable[Any]]
) -> Callable[..., Any]:
    """Marks the beginning and the own end of a backward pass. The gradients that reach the model's outputs begin it. A
    callback queued then runs at its end: before DistributedDataParallel's own callback, which is queued with the last
    gradient, and which waits for the other ranks."""
    import torch

    begun = False
    """Set during this backward pass."""

    def gradient_comes(gradient: Any) -> None:
        nonlocal begun
        if not begun and waits.here():
            begun = True
            torch.autograd.Variable._execution_engine.queue_callback(own_part_is_done)  # type: ignore[attr-defined]

    def own_part_is_done() -> None:
        nonlocal begun
        begun = False
        if waits.progress.wait_begins():
            torch.autograd.Variable._execution_engine.queue_callback(waits.progress.wait_ends)  # type: ignore[attr-defined]

    @functools.wraps(post_forward)
    def marked(model: Any, output: Any) -> Any:
        nonlocal begun
        output = post_forward(model, output)
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            begun = False  # a pass that has failed
            for tensor in tensors_of(output):
                if tensor.requires_grad:
                    tensor.register_hook(gradient_comes)
        return output

    return marked
