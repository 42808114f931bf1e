"""`pytorch.PyTorchTrial`."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.workers.determined.pytorch.reducing import Reducer
from tenuto.workers.harness.trainer import Trainer, TrialInfo, trainer_named
from tenuto.workers.pytorch.metrics import AnyReducer
from tenuto.workers.pytorch.trial import PyTorchTrial as OurTrial


class PyTorchTrial(OurTrial):
    """A trial written for Determined: each batch counts once in `evaluation_reducer`, and `get_batch_length` is Determined's."""

    def evaluation_reducer(self) -> AnyReducer | Mapping[str, AnyReducer]:
        return Reducer.AVG

    @classmethod
    def make_trainer(cls, info: TrialInfo) -> Trainer:
        return trainer_named("tenuto.workers.determined.pytorch.trainer:DeterminedTrainer", cls, info)
