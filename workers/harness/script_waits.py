"""What a script's rank waits for the others is found in the library that connects them, so that a slow rank can be told from
those that wait for it: in a synchronous step all ranks take equally long.

Only time is taken; what is computed and sent stays as it is. Where nothing is found, every rank's step counts as its own work,
and then they are alike: nobody is called slow who is not. On GPUs the device waits and not the process, so there nothing counts.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from tenuto.workers.harness.after_import import Action, after_import
from tenuto.workers.harness.gang import Gang
from tenuto.workers.harness.training import say
from tenuto.workers.launch.progress import ProgressWriter

HOROVOD_MODULES = ("mpi_ops", "optimizer", "functions", "sync_batch_norm")
"""Of `horovod.torch`: these know `synchronize` by its name."""


def if_known(watch: Action) -> Action:
    """Inner names of a library may be others in another version of it. Then its waits are not seen, and the script runs."""

    @functools.wraps(watch)
    def watched(module: ModuleType) -> None:
        try:
            watch(module)
        except (AttributeError, ImportError) as error:
            name = module.__name__
            say(f"what ranks wait for in {name} is not seen in this version of it ({error}): slow ranks are not reported")

    return watched


class ScriptWaits:
    """Of one rank. Counts what the thread waits that made it."""

    def __init__(self, gang: Gang) -> None:
        self._progress: ProgressWriter = gang.progress
        self._thread = threading.get_ident()
        self._in_graphs: Callable[[], float] | None = None
        """Seconds waited within TensorFlow's graphs since the last call."""

    def install(self) -> None:
        """Before the script is run."""
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
        """Exchanges end in `Work.wait`, but for those of DistributedDataParallel, whose backward pass waits by itself."""
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
        """The gradients that reach the model's outputs begin a backward pass. What is queued then runs at its end: before
        DistributedDataParallel's own end, which is queued with the last gradient, and which waits for the others."""
        import torch

        begun = False
        """For this backward pass."""

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
        """Where a TensorFlow strategy connects the ranks."""
        from tenuto.workers.keras.graph_waits import GraphWaits, watch_strategies

        waits = GraphWaits()
        self._in_graphs = waits.take
        watch_strategies(module, waits)
