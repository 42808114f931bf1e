"""Size of a step, and its learning rate, on different numbers of slots (`distributed` in the configuration).

keep: a step trains the DataLoader's batch, on any number of slots. An elastic trial that has shrunk cuts each slot's share into
parts (micro-batches), so that no slot holds more records than with the most slots: the gradients of the parts are summed, as in
Or et al., VirtualFlow, MLSys 2022, section 3.

scale: a step on N slots trains N of the DataLoader's batches. The learning rate may follow: times N (Goyal et al., Accurate,
Large Minibatch SGD, 2017, section 2.1) or times the square root of N (Krizhevsky, One weird trick for parallelizing convolutional
neural networks, 2014, section 5), reached evenly over a warm-up (Goyal et al., section 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tenuto.schemas.config.experiment import Distributed
from tenuto.workers.pytorch.distributed.shards import Shard, Sharded

RATE = "lr"


@dataclass(frozen=True)
class BatchRules:
    step_batches: int
    """Number of the DataLoader's batches in a step."""
    slots_most: int | None
    """Most slots of an elastic trial; shares are cut so that no slot holds more than with that number. None: not cut."""

    @classmethod
    def of(cls, config: Mapping[str, Any], slots: int) -> BatchRules:
        """Rules of an experiment. `config`: as plain data."""
        distributed = Distributed.model_validate(config.get("distributed") or {})
        wanted = (config.get("resources") or {}).get("slots_per_trial")
        elastic = isinstance(wanted, Mapping) and wanted["max"] > 1
        cut = elastic and distributed.global_batch_size == "keep" and distributed.micro_batches
        step_batches = slots if distributed.global_batch_size == "scale" else 1
        return cls(step_batches, wanted["max"] if cut and isinstance(wanted, Mapping) else None)

    def parts(self, total: int, slots: int) -> int:
        """Number of parts of each slot's share of a batch of `total` records: the same on all slots, because all compute a
        divided model together."""
        if self.slots_most is None or total == 0:
            return 1
        largest, most = math.ceil(total / slots), math.ceil(total / self.slots_most)
        return math.ceil(largest / most)


def divided(share: Sharded, count: int) -> list[Sharded]:
    """A rank's share in this number of parts. A part that would be empty has one record, with weight 0. Raises UserError if
    the batch cannot be cut."""
    if count == 1 or share.records == 0:
        return [share] * count
    parts = []
    for index in range(count):
        part = Shard(index, count).cut(share.batch, share.records)
        if part.records == 0:  # which is the whole then
            part = Shard(0, share.records).cut(share.batch, share.records)._replace(records=0)
        parts.append(part._replace(total=share.total))
    return parts


class LearningRateScaling:
    """Factor of the learning rate when optimizers step. It is applied around each step, and not to the optimizer's own
    learning rate: values that schedulers compute, checkpoints contain and the user's code reads stay those of one slot, so
    nothing is converted when the number of slots changes."""

    def __init__(self, distributed: Distributed, slots: int) -> None:
        self._rule, self._slots = distributed.learning_rate_scaling, slots
        self._target = {"none": 1.0, "linear": float(slots), "sqrt": math.sqrt(slots)}[self._rule]
        self._warmup = distributed.learning_rate_warmup
        self._from, self._since = 1.0, 0
        """Previous factor, and the position from which it moves to the target."""
        self._kept: list[tuple[dict[str, Any], Any]] = []

    @property
    def active(self) -> bool:
        return self._rule != "none"

    @property
    def counts_epochs(self) -> bool:
        return self._warmup is not None and self._warmup.unit == "epochs"

    def sentence(self) -> str | None:
        """Sentence for the trial's log; None if there is no scaling."""
        if not self.active:
            return None
        if self._slots == 1:
            return f"steps on 1 slot with the learning rate as it is given ({self._rule} scaling)"
        warmup = "" if self._warmup is None else f", where it rises over {self._warmup.value} {self._warmup.unit}"
        return f"steps on {self._slots} slots with {self._target:g} times the learning rate ({self._rule}){warmup}"

    def factor(self, batches: int, epoch_batches: int | None) -> float:
        """Factor of the step that begins at this position."""
        length = self._warmup
        if length is None or self._from >= self._target:
            return self._target
        warmup_batches = length.value * (1 if length.unit == "batches" else epoch_batches or 1)
        done = min(1.0, (batches - self._since) / warmup_batches)
        return self._from + (self._target - self._from) * done

    def attach(self, optimizer: torch.optim.Optimizer, factor: Callable[[], float]) -> None:
        if not self.active:
            return
        optimizer.register_step_pre_hook(lambda *_: self._raise(optimizer, factor()))
        optimizer.register_step_post_hook(lambda *_: self._lower())

    def _raise(self, optimizer: torch.optim.Optimizer, factor: float) -> None:
        self._lower()  # a step that failed has left it raised
        for group in optimizer.param_groups:
            if (rate := group.get(RATE)) is not None:
                self._kept.append((group, rate))
                group[RATE] = rate * factor

    def _lower(self) -> None:
        for group, rate in self._kept:
            group[RATE] = rate
        self._kept.clear()

    def state(self) -> dict[str, float]:
        return {"from": self._from, "since": self._since, "to": self._target}

    def restore(self, state: Mapping[str, float] | None, batches: int, epoch_batches: int | None) -> None:
        """Restores the factor at position `batches`. If the target differs from the saved one (None: an older checkpoint
        without a factor), it moves on from the factor in force."""
        target = self._target
        if state is None:
            self._from, self._since = 1.0, batches
            return
        self._from, self._since, self._target = state["from"], int(state["since"]), state["to"]
        if self._target != target:
            now = self.factor(batches, epoch_batches)
            self._from, self._since, self._target = now, batches, target
