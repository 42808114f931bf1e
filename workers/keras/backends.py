"""Differences between Keras's back ends: threads, deterministic kernels, properties that results depend on, tensors of a
batch."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tenuto.workers.checkpoints.exactness import ExactnessRecord, processor
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.horovod import rendezvous
from tenuto.workers.keras import randomness
from tenuto.workers.keras.batches import RankShare
from tenuto.workers.keras.checkpoint import floats
from tenuto.workers.keras.replicas import Replicas

if TYPE_CHECKING:
    from tenuto.workers.keras.mirrored import Mirrored
    from tenuto.workers.launch.gang import Gang

SIGNATURES_MAX = 16
"""Most different shapes of batches remembered: enough for buckets of lengths; with more, TensorFlow has long traced for any
shape."""
Signature = tuple[Any, ...]


class Backend(ExactnessRecord):
    """The back end of this process's Keras."""

    def __init__(self, info: TrialInfo, exact: bool, say: Callable[[str], None]) -> None:
        super().__init__(exact, say)
        self.signatures: list[Signature] = []
        """Shapes and types of batches in the order of their first training. TensorFlow traces a step for each, or one for
        several, depending on the order, so a resumed trial must use the same order."""
        self._progress = None if info.gang is None else info.gang.progress
        self._prepare(info)

    def _prepare(self, info: TrialInfo) -> None:
        raise NotImplementedError

    def to_batch(self, batch: Any, training: bool = True) -> Any:
        """The batch as the model's step expects it; with several ranks, this one's share. In training its signature is
        remembered. None, in validation: this rank has no share."""
        raise NotImplementedError

    def retrace(self, model: Any, signatures: Sequence[Signature]) -> None:
        """Trains zeros of each signature, in their order. Called with the model built, before its state is loaded."""

    def begin_training(self, model: Any) -> None:
        """Called before the training steps of a call to `train`."""

    def read(self) -> None:
        """Called before a batch is read: reading is this rank's own time."""
        if self._progress is not None:
            self._progress.read()

    def step(self, model: Any, batch: Any) -> Any:
        """Trains a batch from `to_batch`. Returns the step's logs."""
        if self.replicas is not None:
            return self.replicas.step(model, batch)
        return model.train_function([batch])

    def begin_validation(self, model: Any) -> None:
        """Called before this rank evaluates its shares."""
        self.share_statistics(model)

    def share_statistics(self, model: Any) -> None:
        """Copies rank 0's running statistics (batch normalisation) to all ranks. Called by all ranks before the statistics are
        read."""
        if self.replicas is not None:
            self.replicas.share_statistics(model)

    def metrics(self, model: Any, logs: Any, training: bool = True) -> dict[str, float]:
        """Metrics as numbers. `logs`: of the last step."""
        if self.replicas is not None:
            return self.replicas.metrics(model, logs, training)
        return floats(model._get_metrics_result_or_logs(logs))

    ranks = 1
    """Number of processes that train this trial, each on its share of a batch."""
    replicas: Replicas | None = None
    """The replicas, if each process has a model of its own."""
    data_ranks: tuple[int, int] | None = None
    """(this rank, number of ranks), if data may make only the shares. Set also for a trial that had several ranks, or may have
    them later: records are then drawn at random as several ranks draw them."""

    def scope(self) -> AbstractContextManager[Any]:
        """Context in which variables are made and assigned."""
        return nullcontext()

    def make_functions(self, model: Any) -> None:
        """Makes the model's compiled training step. Called with the model built."""
        if self.replicas is not None:
            self.replicas.attach(model)
        else:
            model.make_train_function()

    def diversify(self, model: Any) -> None:
        """Makes random layers differ between ranks. Called after the state, which is the same on all ranks, was made or
        loaded."""
        if self.replicas is not None:
            self.replicas.diversify(model)

    def _join(self, replicas: Replicas) -> None:
        self.replicas, self.ranks = replicas, replicas.size

    def _share_of(self, batch: Any, training: bool) -> Any:
        """This rank's share of a batch, if there are replicas."""
        if self.replicas is None:
            return batch.batch if isinstance(batch, RankShare) else batch
        share = batch if isinstance(batch, RankShare) else self.replicas.cut(batch)
        self.replicas.remember(share, training)
        return share.batch if share.records or training else None

    def close(self) -> None:
        """Restores what `__init__` changed for the whole process."""

    def check_settings(self) -> None:
        pass

    def surroundings(self) -> dict[str, str]:
        return {
            "Python": platform.python_version(),
            "Keras": keras.__version__,
            "Keras's back end": keras.backend.backend(),
            "NumPy": np.__version__,
            "processor": processor(),
        }


def open_backend(info: TrialInfo, exact: bool, say: Callable[[str], None]) -> Backend:
    """Sets up the back end for this process. Raises UserError for one that cannot be used for training."""
    name = keras.backend.backend()
    kinds: dict[str, type[Backend]] = {"tensorflow": TensorFlowBackend, "torch": TorchBackend}
    if name not in kinds:
        raise UserError(
            f"Keras's back end is {name!r}, but Keras trials train with 'tensorflow' or 'torch'; set the environment variable "
            "KERAS_BACKEND, under environment.variables of the configuration."
        )
    return kinds[name](info, exact, say)


class TensorFlowBackend(Backend):
    def _prepare(self, info: TrialInfo) -> None:
        import tensorflow as tf

        self._tf = tf
        self._mirrored: Mirrored | None = None
        self._gpus = tf.config.list_physical_devices("GPU")
        if self.exact:
            tf.config.experimental.enable_op_determinism()
        if self.exact or not self._gpus:
            threads = max(1, info.local_slots)
            try:  # a CPU slot is one thread
                tf.config.threading.set_intra_op_parallelism_threads(threads)
                tf.config.threading.set_inter_op_parallelism_threads(threads)
            except RuntimeError:
                pass  # the user's module has made tensors while it was imported: the number of threads is in the record
        for gpu in self._gpus:
            try:
                tf.config.experimental.set_memory_growth(gpu, True)
            except RuntimeError:
                break
        if info.gang is not None:
            self._open_ranks(info.gang, info.config)

    def _open_ranks(self, gang: Gang, config: Mapping[str, Any]) -> None:
        if len(self._gpus) > 1:  # those of the other ranks on this node
            self._gpus = [self._gpus[gang.local_rank]]
            self._tf.config.set_visible_devices(self._gpus, "GPU")
        if rendezvous.is_wanted(config):
            from tenuto.workers.keras.horovod_replicas import HorovodReplicas

            self._join(HorovodReplicas(gang))
            return
        from tenuto.workers.keras.mirrored import Mirrored

        self._mirrored = Mirrored(gang)
        self.ranks = self._mirrored.size

    def step(self, model: Any, batch: Any) -> Any:
        return super().step(model, batch) if self._mirrored is None else self._mirrored.step(model, batch)

    def share_statistics(self, model: Any) -> None:
        if self._mirrored is None:
            super().share_statistics(model)
        else:
            self._mirrored.share_statistics(model)

    def scope(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._mirrored is None else self._mirrored.strategy.scope()

    def make_functions(self, model: Any) -> None:
        if self._mirrored is None:
            super().make_functions(model)
        else:
            self._mirrored.make_functions(model)

    def diversify(self, model: Any) -> None:
        if self._mirrored is None:
            super().diversify(model)
        else:
            self._mirrored.diversify(model)

    def to_batch(self, batch: Any, training: bool = True) -> Any:
        signature = _signature(batch) if training else None  # of the whole batch: the same on all ranks
        if signature is not None and signature not in self.signatures and len(self.signatures) < SIGNATURES_MAX:
            self.signatures.append(signature)
        return self._share_of(batch, training) if self._mirrored is None else self._mirrored.share(batch, training)

    def retrace(self, model: Any, signatures: Sequence[Signature]) -> None:
        if model.run_eagerly:
            return
        for structure, shapes in signatures:
            zeros = keras.tree.pack_sequence_as(structure, [self._tf.zeros(shape, dtype) for shape, dtype in shapes])
            if self.replicas is not None:
                self.replicas.rehearse(model, zeros)
            else:
                model.train_function([zeros if self._mirrored is None else self._mirrored.share(zeros, training=True)])

    def surroundings(self) -> dict[str, str]:
        tf = self._tf
        return super().surroundings() | {
            "TensorFlow": tf.__version__,
            "threads": str(tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count()),
            "oneDNN": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "not set"),
            "GPU": ", ".join(self._name_of(gpu) for gpu in self._gpus) or "none",
        }

    def _name_of(self, gpu: Any) -> str:
        return str(self._tf.config.experimental.get_device_details(gpu).get("device_name", "unknown"))

    def check_settings(self) -> None:
        from tensorflow.python.framework import config

        if self.exact and not config.is_op_determinism_enabled():
            self.note("deterministic kernels were switched off by the trial's code")


def _signature(batch: Any) -> Signature | None:
    """Signature of a batch; None if it contains anything but arrays and dense tensors."""
    leaves = keras.tree.flatten(batch)
    shapes = []
    for leaf in leaves:
        dtype = getattr(leaf, "dtype", None)
        if (not isinstance(leaf, np.ndarray) and not hasattr(leaf, "numpy")) or dtype is None:
            return None
        shapes.append((tuple(int(size) for size in leaf.shape), getattr(dtype, "name", str(dtype))))
    return keras.tree.map_structure(lambda leaf: 0, batch), tuple(shapes)


class TorchBackend(Backend):
    def _prepare(self, info: TrialInfo) -> None:
        from tenuto.workers.pytorch.exactness import Exactness, prepare_torch

        gang = info.gang
        device = prepare_torch(info.local_slots, self.exact, 0 if gang is None else gang.local_rank)
        if gang is not None:
            from tenuto.workers.keras.torch_replicas import TorchReplicas

            randomness.use_one_gpu()
            self._join(TorchReplicas(gang, device, info.config))
            self.data_ranks = gang.rank, gang.world_size
        elif isinstance((info.config.get("resources") or {}).get("slots_per_trial"), Mapping):
            self.data_ranks = 0, 1
        self._watch = Exactness(self.exact, device, self._say)
        self._watch.breaks = self.breaks
        self._watch.watch()

    def to_batch(self, batch: Any, training: bool = True) -> Any:
        """The batch, on the device."""
        if (batch := self._share_of(batch, training)) is None:
            return None
        return keras.tree.map_structure(lambda leaf: None if leaf is None else keras.ops.convert_to_tensor(leaf), batch)

    def begin_training(self, model: Any) -> None:
        model.train()

    def begin_validation(self, model: Any) -> None:
        super().begin_validation(model)
        model.eval()

    def surroundings(self) -> dict[str, str]:
        return self._watch.surroundings() | super().surroundings()

    def check_settings(self) -> None:
        self._watch.check_settings()

    def close(self) -> None:
        self._watch.close()
