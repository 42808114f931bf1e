"""Ranks of a Keras trial on the torch back end, with the gradient averaging of PyTorch trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tenuto.workers.horovod import rendezvous
from tenuto.workers.keras.replicas import Replicas
from tenuto.workers.pytorch.distributed.gradients import GradientSync
from tenuto.workers.pytorch.distributed.ranks import Ranks

if TYPE_CHECKING:
    from tenuto.workers.launch.gang import Gang


class TorchReplicas(Replicas):
    def __init__(self, gang: Gang, device: torch.device, config: Mapping[str, Any]) -> None:
        """`config`: of the experiment. Raises UserError if it asks for Horovod, which is not installed."""
        super().__init__(gang)
        self._ranks: Ranks
        if rendezvous.is_wanted(config):
            from tenuto.workers.pytorch.distributed.horovod_ranks import HorovodRanks

            self._ranks = HorovodRanks(gang, device)
        else:
            self._ranks = Ranks(gang, device)
        self._gradients = GradientSync(self._ranks, lambda: True, self._factor)

    def _factor(self) -> float:
        records, total = self._share
        return records / total

    def objects(self, value: Any) -> list[Any]:
        return self._ranks.objects(value)

    def broadcast(self, variables: Sequence[Any]) -> None:
        with torch.no_grad():
            self._ranks.broadcast([variable.value.data for variable in variables])

    def prepare(self, model: Any) -> None:
        self._gradients.attach(_Weights(model))  # type: ignore[arg-type]

    def run_step(self, model: Any, batch: Any) -> Any:
        self._gradients.prepare()
        return model.train_function([batch])


class _Weights:
    """All weights of the model in the form of a torch optimizer, whichever of the user's optimizers trains them: weights that
    a backward pass did not reach keep their average."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [{"params": [variable.value for variable in self._model.trainable_variables]}]
