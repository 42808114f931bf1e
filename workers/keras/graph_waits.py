"""How long a TensorFlow step waits for the other ranks: the graph itself takes the time, when all of a rank's own values
are there and when those of all ranks are.

Nothing is ordered anew by it: reductions that are ready earlier are still sent earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class GraphWaits:
    """Of one process. Made while a step is traced, or by the first one that runs eagerly."""

    def __init__(self) -> None:
        self._total: Any = None
        """Seconds in all, added up by the graphs themselves."""
        self._taken = 0.0

    def around(self, own: Sequence[Any], reduce: Callable[[], Any]) -> Any:
        """`reduce()`, which exchanges `own`."""
        import tensorflow as tf

        with tf.init_scope():
            if self._total is None:
                with tf.device("/CPU:0"):
                    self._total = tf.Variable(0.0, dtype=tf.float64, trainable=False, name="tenuto_waits")
        with tf.control_dependencies(_tensors(own)):
            since = tf.timestamp()
        reduced = reduce()
        with tf.control_dependencies([since, *_tensors(tf.nest.flatten(reduced, expand_composites=True))]):
            self._total.assign_add(tf.timestamp() - since, read_value=False)
        return reduced

    def take(self) -> float:
        """Seconds since the last call. Call it outside of graphs."""
        if self._total is None:
            return 0.0
        total = float(self._total.numpy())
        waited, self._taken = total - self._taken, total
        return waited


def _tensors(values: Sequence[Any]) -> list[Any]:
    import tensorflow as tf

    return [item for item in tf.nest.flatten(list(values), expand_composites=True) if tf.is_tensor(item)]


def watch_strategies(module: ModuleType, waits: GraphWaits) -> None:
    """`module`: tensorflow.python.distribute.distribute_lib. Whatever is reduced over the ranks within a strategy's step, by an
    optimizer or by the user's code, is counted."""
    plain = module.ReplicaContextBase.all_reduce

    def all_reduce(context: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        import tensorflow as tf

        if tf.config.list_logical_devices("GPU"):
            return plain(context, reduce_op, value, options)
        return waits.around([value], lambda: plain(context, reduce_op, value, options))

    all_reduce.__doc__ = plain.__doc__
    module.ReplicaContextBase.all_reduce = all_reduce
