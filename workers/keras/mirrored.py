"""A Keras trial on several slots with TensorFlow's MultiWorkerMirroredStrategy, one rank per slot.

Each rank reads the whole batch and trains on its share of it: no record is missed or used twice, whatever kind of data it is, and
a trial can go on on another number of slots.

`model.fit` under the strategy is not used: Keras 3 (tried with 3.15) reduces a step's metrics over their first dimension, and
they have none. Here each rank keeps its own step's results, and the metrics' variables are summed over the ranks when they are
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from tenuto.workers.errors import UserError
from tenuto.workers.keras import cluster, graph_waits
from tenuto.workers.keras.graph_waits import GraphWaits, watch_strategies
from tenuto.workers.keras.replicas import diversify, statistics_of
from tenuto.workers.launch.gang import Gang


class Mirrored:
    def __init__(self, gang: Gang) -> None:
        """Raises UserError if the user's code has already used TensorFlow."""
        cluster.prepare(gang)
        self.rank, self.size, self._progress = gang.rank, gang.world_size, gang.progress
        self._waits: GraphWaits | None = None
        """Waits measured in the graph. None: not measured, so only reading the data of a step counts as this rank's own time."""
        try:
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        except RuntimeError as error:
            raise UserError(
                f"TensorFlow's ranks could not be brought together ({error}); make no tensors while the module is imported."
            ) from error

    def make_functions(self, model: Any) -> None:
        if self._waits is None and not model.jit_compile and not tf.config.list_logical_devices("GPU"):
            # XLA cannot call back; and on a GPU the device waits, not this process.
            self._waits = GraphWaits()
            watch_strategies(distribute_lib, self._waits)
        model.train_function = self._function(model, model.train_step)
        model.test_function = self._function(model, model.test_step)

    def _function(self, model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        strategy = self.strategy

        def run(data: Any) -> Any:
            results = strategy.run(step, args=(data,))
            # Each process has one replica, so its first local result is the only one.
            return keras.tree.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)

        compiled = run if model.run_eagerly else tf.function(run, reduce_retracing=True, jit_compile=model.jit_compile)
        # Keras passes an iterator of batches to these functions.
        return lambda batches: compiled(next(iter(batches)))

    def step(self, model: Any, batch: Any) -> Any:
        self._progress.begin()
        with graph_waits.counted(self._progress, self._waits):
            logs = model.train_function([batch])
        self._progress.end()
        return logs

    def share_statistics(self, model: Any) -> None:
        """Copies rank 0's running statistics to all ranks, before they are read. Under the strategy each rank has its own."""
        variables = statistics_of(model)
        if not variables:
            return
        values = [np.asarray(variable.numpy()) for variable in variables]
        flat = np.concatenate([value.astype("float64").reshape(-1) for value in values])
        own = tf.constant(flat if self.rank == 0 else np.zeros_like(flat))
        summed = self.strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", own)).numpy()
        ends = np.cumsum([value.size for value in values])
        with self.strategy.scope():
            for variable, value, part in zip(variables, values, np.split(summed, ends[:-1]), strict=True):
                variable.assign(part.reshape(value.shape).astype(value.dtype))

    def share(self, batch: Any, training: bool) -> Any:
        """Share of this rank. If the records cannot be divided evenly, shares in training carry weights, so that the gradient is
        that of the whole batch; metrics count records, so validation needs no weights.

        Raises UserError for a batch with fewer records than ranks.
        """
        leaves = [leaf for leaf in keras.tree.flatten(batch) if leaf is not None]
        records = int(leaves[0].shape[0])
        if records < self.size:
            raise UserError(
                f"a batch has {records} records for {self.size} slots; choose another batch size, or drop_remainder=True."
            )
        own = keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[self.rank :: self.size], batch)
        if not training or records % self.size == 0:
            return own
        x, y, weights = keras.utils.unpack_x_y_sample_weight(own)
        count = len(range(self.rank, records, self.size))
        factor = np.full(count, count * self.size / records, dtype="float32")
        return x, y, factor if weights is None else weights * factor

    def diversify(self, model: Any) -> None:
        """Makes dropout draw differently on each rank."""
        diversify(model, self.rank)
