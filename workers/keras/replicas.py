"""A Keras trial on several slots, with a copy of the model per rank: Keras's torch back end, or TensorFlow's with Horovod.

Each rank trains on its share of every batch (`tenuto.workers.pytorch.distributed.shards`), and gradients are averaged before the
optimizer sees them, weighted by the records of the shares: so N ranks make the same steps as one. Between steps the copies differ
only in untrained variables, which are handled where they are read:

- metrics: their variables are summed over the ranks when they are read, as TensorFlow does with `synchronization="on_read"`; so a
mean is that over all records;
- running statistics (batch normalisation): those of rank 0, as in torch's own data-parallel training;
- generators: each rank's own, which a checkpoint contains.
"""

from __future__ import annotations

import hashlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tenuto.workers.errors import UserError
from tenuto.workers.keras import randomness
from tenuto.workers.keras.batches import RankShare
from tenuto.workers.keras.checkpoint import buffers_of, floats, variables_of
from tenuto.workers.keras.weights import copies_of

if TYPE_CHECKING:
    from tenuto.workers.launch.gang import Gang

SEED_STEP = 1_000_003
"""Difference between the ranks' seeds of one layer."""
Values = list[np.ndarray[Any, Any]]


class Replicas(ABC):
    """All ranks call every method, in the same order."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.rank, self.size = gang.rank, gang.world_size
        self._share = (1, 1)
        """Records of this rank in the current or last trained batch, and of the whole batch."""
        self._evaluated = (0, 0)
        """The same numbers of the last batch of a validation."""
        self._statistics: list[Any] = []
        self._has_buffers = False

    # Operations of the framework.

    @abstractmethod
    def objects(self, value: Any) -> list[Any]:
        """Value of each rank, in rank order; values must be picklable."""

    @abstractmethod
    def broadcast(self, variables: Sequence[Any]) -> None:
        """Gives variables the values of rank 0."""

    @abstractmethod
    def prepare(self, model: Any) -> None:
        """Makes each training step average gradients. Called once, with the model built, before its training step is made a
        function."""

    @abstractmethod
    def run_step(self, model: Any, batch: Any) -> Any:
        """Runs the model's training step, with averaged gradients. Returns its logs."""

    # Training.

    def attach(self, model: Any) -> None:
        """Gives weights that the model drew from differing generators the values of rank 0. Called with the model built."""
        kinds = variables_of(model)
        self.broadcast([*kinds["weights"], *kinds["optimizers"]])
        self._statistics, self._has_buffers = statistics_of(model), bool(kinds["buffers"])
        self.prepare(model)
        model.make_train_function()
        model.make_test_function()

    def cut(self, batch: Any) -> RankShare:
        """This rank's share of a batch. Raises UserError for a batch without records."""
        leaves = [leaf for leaf in keras.tree.flatten(batch) if leaf is not None]
        total = int(leaves[0].shape[0]) if leaves and getattr(leaves[0], "shape", None) else 0
        if total == 0:
            raise UserError(
                f"a batch cannot be divided among {self.size} slots: its first array has no records; give batches of arrays "
                "whose first dimension counts the records."
            )
        low, high = total * self.rank // self.size, total * (self.rank + 1) // self.size
        if low == high:
            return RankShare(batch, 0, total)

        def part(leaf: Any) -> Any:
            return leaf[low:high] if getattr(leaf, "shape", None) and int(leaf.shape[0]) == total else leaf

        return RankShare(keras.tree.map_structure(part, batch), high - low, total)

    def remember(self, share: RankShare, training: bool) -> None:
        if training:
            self._share = share.records, share.total
        else:
            self._evaluated = share.records, share.total

    def step(self, model: Any, batch: Any) -> Any:
        progress = self.gang.progress
        progress.begin()
        with progress.waiting():
            self.share_statistics(model)
        if self._share[0]:
            logs = self.run_step(model, batch)
        else:
            metrics = variables_of(model)["metrics"]
            before = _values(metrics)
            logs = self.run_step(model, batch)
            _assign(metrics, before)
        progress.end()
        return logs

    def rehearse(self, model: Any, batch: Any) -> None:
        """Trains a whole batch that is not part of the training, before the state is loaded."""
        kept, share = self._share, self.cut(batch)
        self.remember(share, training=True)
        self.run_step(model, share.batch)
        self._share = kept

    def share_statistics(self, model: Any) -> None:
        """Copies running statistics, before they are read, and before each step, which may use them."""
        buffers = buffers_of(model) if self._has_buffers else []
        if self._statistics or buffers:
            self.broadcast([*self._statistics, *buffers])

    def diversify(self, model: Any) -> None:
        """Makes dropout draw differently on each rank. Called where generators are equal on all."""
        diversify(model, self.rank)

    # Metrics.

    def metrics(self, model: Any, logs: Any, training: bool) -> dict[str, float]:
        """Metrics as Keras would compute them over all shares together. `logs`: of this rank's last step; empty if it had
        none."""
        records = (self._share if training else self._evaluated)[0]
        own = floats(logs) if logs else {}
        local = floats(model.get_metrics_result())
        with self.reduced_metrics(model):
            told = floats(model.get_metrics_result())
        if not own or own.keys() == local.keys():
            own = {}
        # Otherwise, in a step of the user's own, a value that is no metric is the mean over the records of the last batch.
        names = {name for name, value in own.items() if local.get(name) != value}
        every = self.objects((records, own, names))
        values = [(records, values) for records, values, _ in every if values]
        if not values:
            return told
        free = {name for records, _, names in every if records for name in names}
        return {
            name: _mean([(records, item[name]) for records, item in values if name in item]) if name in free else told[name]
            for name in values[0][1]
        }

    @contextmanager
    def reduced_metrics(self, model: Any) -> Iterator[None]:
        """Context in which metrics' variables have their totals over all ranks."""
        variables = variables_of(model)["metrics"]
        own = _values(variables)
        _assign(variables, _reduced(variables, self.objects(own)))
        try:
            yield
        finally:
            _assign(variables, own)

    # Checkpoints.

    def collect(self, model: Any, users: Mapping[str, Any]) -> list[dict[str, Any]]:
        """State of each rank for a checkpoint, in rank order. `users`: the user's own state, which is sent only if it differs;
        that of callbacks may be large."""
        kinds = variables_of(model)
        own: dict[str, Any] = {
            "metrics": _values(kinds["metrics"]),
            "generators": _values(kinds["generators"]),
            "random": randomness.random_state(),
        }
        try:
            data = pickle.dumps(users)
        except (AttributeError, TypeError, pickle.PicklingError):
            data = b""  # told when the checkpoint is made
        if len(set(self.objects(hashlib.sha256(data).hexdigest()))) > 1:
            own["users"] = dict(users)
        return self.objects(own)

    def take_own(self, model: Any, saved: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any] | None:
        """Restores this rank's own state in a model with that of rank 0, or of a single process. Returns the rest of this
        rank's saved state; None: it was saved by another number of ranks."""
        kinds = variables_of(model)
        if saved is None or len(saved) != self.size:
            self.diversify(model)
            if self.rank > 0:  # what is summed stands with rank 0
                zeros = [np.zeros_like(value) for value in _values(kinds["metrics"])]
                sums = [variable.aggregation == "sum" for variable in kinds["metrics"]]
                chosen = [item for item in zip(kinds["metrics"], zeros, sums, strict=True) if item[2]]
                _assign([variable for variable, _, _ in chosen], [value for _, value, _ in chosen])
            return None
        _assign(kinds["metrics"], saved[self.rank]["metrics"])
        _assign(kinds["generators"], saved[self.rank]["generators"])
        return saved[self.rank]


def diversify(model: Any, rank: int) -> None:
    for state in randomness.seed_generators(model):
        value = np.array(state.numpy())
        value[0] = (int(value[0]) + rank * SEED_STEP) % 2**31
        state.assign(value)


def statistics_of(model: Any) -> list[Any]:
    """Variables that training changes without gradients, except frozen ones."""
    weights = {id(variable) for variable in variables_of(model)["weights"]}
    found = {
        id(variable): variable
        for layer in model._flatten_layers()
        for variable in layer._non_trainable_variables
        if id(variable) in weights
    }
    return list(found.values())


def _values(variables: Sequence[Any]) -> Values:
    return [value for _, value in copies_of(variables)]


def _assign(variables: Sequence[Any], values: Values) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _reduced(variables: Sequence[Any], every: list[Values]) -> Values:
    """Totals of variables. `every`: their values, by rank."""
    found = []
    for variable, values in zip(variables, zip(*every, strict=True), strict=True):
        if variable.aggregation in ("sum", "mean"):
            total = np.sum([value.astype("float64") for value in values], axis=0)
            found.append((total / (len(values) if variable.aggregation == "mean" else 1)).astype(values[0].dtype))
        else:
            found.append(values[0])
    return found


def _mean(values: list[tuple[int, float]]) -> float:
    records = sum(count for count, _ in values)
    return sum(count * value for count, value in values if count) / records if records else values[0][1]
