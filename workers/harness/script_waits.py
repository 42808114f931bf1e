"""Time that a script's rank waits for other ranks, measured in the library that connects them. In a synchronous step all ranks
take equally long, so only these waits tell a slow rank from those that wait for it.

Only time is measured; computations and messages stay as they are. If no wait is found, every rank's step counts as its own work,
and then all are alike: no rank is called slow by mistake. On GPUs the device waits and not the process, so nothing is counted.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from tenuto.workers.harness.after_import import Action, after_import
from tenuto.workers.harness.training import say
from tenuto.workers.launch.gang import Gang
from tenuto.workers.launch.progress import ProgressWriter

HOROVOD_MODULES = ("mpi_ops", "optimizer", "functions", "sync_batch_norm")
"""Modules of `horovod.torch` that import `synchronize` by name."""


def if_known(watch: Action) -> Action:
    """Ignores a library whose internal names have changed in another version: then its waits are not seen, and the script
    runs."""

    @functools.wraps(watch)
    def watched(module: ModuleType) -> None:
        try:
            watch(module)
        except (AttributeError, ImportError) as error:
            name = module.__name__
            say(f"what ranks wait for in {name} is not seen in this version of it ({error}): slow ranks are not reported")

    return watched


class ScriptWaits:
    """Waits of one rank. Counts those of the thread that made it."""

    def __init__(self, gang: Gang) -> None:
        self._progress: ProgressWriter = gang.progress
        self._thread = threading.get_ident()
        self._in_graphs: Callable[[], float] | None = None
        """Function for the seconds waited within TensorFlow's graphs since its last call."""

    def install(self) -> None:
        """Installs the measurement, before the script runs."""
        after_import("torch.nn.parallel.distributed", if_known(self._watch_torch))
        after_import("horovod.torch", if_known(self._watch_horovod))
        after_import("tensorflow.python.distribute.distribute_lib", if_known(self._watch_tensorflow))

    def tick(self) -> None:
        """The script has made a step."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            self._progress.waits_are_seen = False
        elif self._in_graphs is not None:
            self._progress.add_own(-self._in_graphs())
        self._progress.tick()

    def _here(self) -> bool:
        return threading.get_ident() == self._thread

    def _counted(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(wait)
        def waits(*arguments: Any, **named: Any) -> Any:
            if not self._here():
                return wait(*arguments, **named)
            with self._progress.waiting():
                return wait(*arguments, **named)

        return waits

    # PyTorch.

    def _watch_torch(self, module: ModuleType) -> None:
        """Measures `Work.wait`, in which exchanges end, except those of DistributedDataParallel, whose backward pass waits by
        itself."""
        import torch.distributed as dist

        if not dist.is_available():
            return
        dist.Work.wait = self._counted(dist.Work.wait)  # type: ignore[method-assign]
        parallel = module.DistributedDataParallel
        sync_buffers, post_forward = (
            self._counted(parallel._sync_buffers),
            self._marked(parallel._post_forward, module._find_tensors),
        )
        parallel._sync_buffers, parallel._post_forward = sync_buffers, post_forward

    def _marked(self, post_forward: Callable[..., Any], tensors_of: Callable[[Any], Iterable[Any]]) -> Callable[..., Any]:
        """Marks the beginning and the own end of a backward pass. The gradients that reach the model's outputs begin it. A
        callback queued then runs at its end: before DistributedDataParallel's own callback, which is queued with the last
        gradient, and which waits for the other ranks."""
        import torch

        begun = False
        """Set during this backward pass."""

        def gradient_comes(gradient: Any) -> None:
            nonlocal begun
            if not begun and self._here():
                begun = True
                torch.autograd.Variable._execution_engine.queue_callback(own_part_is_done)  # type: ignore[attr-defined]

        def own_part_is_done() -> None:
            nonlocal begun
            begun = False
            if self._progress.wait_begins():
                torch.autograd.Variable._execution_engine.queue_callback(self._progress.wait_ends)  # type: ignore[attr-defined]

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

    # Horovod.

    def _watch_horovod(self, module: ModuleType) -> None:
        plain = module.synchronize
        counted = self._counted(plain)
        for name in ("", *(f".{name}" for name in HOROVOD_MODULES)):
            part = sys.modules.get(f"horovod.torch{name}")
            if part is not None and getattr(part, "synchronize", None) is plain:
                part.synchronize = counted  # type: ignore[attr-defined]

    # TensorFlow.

    def _watch_tensorflow(self, module: ModuleType) -> None:
        """Measures the waits of TensorFlow if one of its strategies connects the ranks."""
        from tenuto.workers.keras.graph_waits import GraphWaits, watch_strategies

        waits = GraphWaits()
        self._in_graphs = waits.take
        watch_strategies(module, waits)
