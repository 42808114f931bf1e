"""Time that a TensorFlow step waits for the other ranks, measured by the graph itself: from when all of a rank's own values exist
until those of all ranks do.

The order of operations is unchanged: reductions that are ready earlier are still sent earlier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tenuto.workers.harness.script_waits import ScriptWaits
from tenuto.workers.launch.progress import ProgressWriter


class GraphWaits:
    """Waits of one process. The graphs call back, because deterministic mode refuses TensorFlow's own `tf.timestamp`."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def around(self, own: Sequence[Any], reduce: Callable[[], Any]) -> Any:
        """Calls `reduce()`, which exchanges `own`, and measures it. Called while a step is traced, or by one that runs
        eagerly."""
        import tensorflow as tf

        since = 0.0

        def begin() -> None:
            nonlocal since
            since = time.monotonic()

        def end() -> None:
            self._seconds += time.monotonic() - since

        with tf.control_dependencies(_tensors(own)):
            begun = tf.py_function(begin, [], [])
        reduced = reduce()
        with tf.control_dependencies([*([] if begun is None else [begun]), *_tensors(reduced)]):
            tf.py_function(end, [], [])
        return reduced

    def take(self) -> float:
        """Seconds since the last call."""
        waited, self._seconds = self._seconds, 0.0
        return waited


@contextmanager
def counted(progress: ProgressWriter, waits: GraphWaits | None) -> Iterator[None]:
    """Context of a step that waits in the middle of its graph: counted as a wait, to which the rank's own part is added
    afterwards."""
    if waits is not None:
        waits.take()  # what was exchanged between steps
    since = time.monotonic()
    with progress.waiting():
        yield
    if waits is not None:
        progress.add_own(max(0.0, time.monotonic() - since - waits.take()))


def _tensors(values: Any) -> list[Any]:
    import tensorflow as tf

    return [item for item in tf.nest.flatten(values, expand_composites=True) if tf.is_tensor(item)]


def watch(script: ScriptWaits) -> None:
    """Makes known what a script waits for if one of TensorFlow's strategies connects its ranks."""

    def strategies(module: ModuleType) -> None:
        waits = GraphWaits()
        script.measured_apart(waits.take)
        watch_strategies(module, waits)

    script.watch("tensorflow.python.distribute.distribute_lib", strategies)


def watch_strategies(module: ModuleType, waits: GraphWaits) -> None:
    """Measures all reductions over the ranks within a strategy's step, by an optimizer or by the user's code. `module`:
    tensorflow.python.distribute.distribute_lib."""
    plain = module.ReplicaContextBase.all_reduce

    def all_reduce(context: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        import tensorflow as tf
        from tensorflow.python.ops import control_flow_util

        compiled = control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
        if compiled or tf.config.list_logical_devices("GPU"):  # XLA cannot call back, and GPUs wait by themselves
            return plain(context, reduce_op, value, options)
        return waits.around([value], lambda: plain(context, reduce_op, value, options))

    all_reduce.__doc__ = plain.__doc__
    module.ReplicaContextBase.all_reduce = all_reduce
