"""Ranks of a Keras trial on the TensorFlow back end that Horovod connects (`distributed: {strategy: horovod}`).

Horovod's own DistributedOptimizer is not used: that of release 0.28 derives from an optimizer of Keras 2, and gives all ranks the
same weight. Here each optimizer's `apply` gets the averages; so clipping, accumulation and loss scales see the values that one
process would see.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tenuto.workers.errors import UserError
from tenuto.workers.horovod import rendezvous
from tenuto.workers.keras import graph_waits
from tenuto.workers.keras.checkpoint import optimizers_of
from tenuto.workers.keras.replicas import Replicas

if TYPE_CHECKING:
    from tenuto.workers.launch.gang import Gang


class HorovodReplicas(Replicas):
    def __init__(self, gang: Gang) -> None:
        """Raises UserError if Horovod is not installed, or not built for TensorFlow."""
        super().__init__(gang)
        rendezvous.prepare(gang)
        # Off, because timing would decide which gradients share a message, and so the order of sums.
        os.environ.setdefault("HOROVOD_FUSION_THRESHOLD", "0")
        try:
            import horovod.tensorflow as hvd  # type: ignore[import-not-found]
        except ImportError as error:
            raise UserError(
                "distributed.strategy is horovod, but Horovod is not built for this TensorFlow; build it by `make horovod` "
                "(docs/horovod.md), set KERAS_BACKEND to torch, or remove the strategy: TensorFlow's own then averages."
            ) from error
        self._hvd: Any = hvd
        hvd.init()
        self._factor = tf.Variable(1.0, trainable=False)
        """Weight of this rank in the sum of gradients."""
        # On a GPU the device waits, not this process: there only reading a step's data counts as this rank's own time.
        self._waits = None if tf.config.list_logical_devices("GPU") else graph_waits.GraphWaits()
        self._applied = 0
        """Number of calls of optimizers while the step is traced; Horovod recognises a gradient by it."""

    def objects(self, value: Any) -> list[Any]:
        found: list[Any] = self._hvd.allgather_object(value, name="tenuto.objects")
        return found

    def broadcast(self, variables: Sequence[Any]) -> None:
        for index, variable in enumerate(variables):
            variable.assign(self._hvd.broadcast(tf.convert_to_tensor(variable.value), 0, name=f"tenuto.broadcast.{index}"))

    def prepare(self, model: Any) -> None:
        model.jit_compile = False  # XLA knows no operations of Horovod's
        step = model.train_step

        def train_step(data: Any) -> Any:
            self._applied = 0
            return step(data)

        model.train_step = train_step
        for optimizer in optimizers_of(model):
            optimizer.apply = self._averaging(optimizer.apply)

    def _averaging(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        def averaged(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
            number, self._applied = self._applied, self._applied + 1

            def average() -> list[Any]:
                return [self._average(item, f"{number}.{index}") for index, item in enumerate(grads)]

            return apply(average() if self._waits is None else self._waits.around(grads, average), trainable_variables)

        return averaged

    def _average(self, gradient: Any, name: str) -> Any:
        if gradient is None:
            return None
        own = tf.convert_to_tensor(gradient)  # also of slices, such as an embedding's
        return self._hvd.allreduce(own * tf.cast(self._factor, own.dtype), op=self._hvd.Sum, name=f"tenuto.gradient.{name}")

    def run_step(self, model: Any, batch: Any) -> Any:
        records, total = self._share
        self._factor.assign(records / total)
        with graph_waits.counted(self.gang.progress, self._waits):
            return model.train_function([batch])
