"""A framework of its own: trials whose whole state is a few numpy arrays. It imports numpy only inside its functions, as agents
import this module, too.

    class Line(ArrayTrial):
        def begin(self, generator): return {"weights": generator.normal(size=3)}
        def train_batch(self, arrays, generator): ...; return {"loss": loss}
        def validate(self, arrays): return {"error": error}
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.workers.harness.framework import Framework
from tenuto.workers.harness.trainer import Trainer, TrialBase, TrialInfo

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray[Any, Any]]


class ArrayTrial(TrialBase):
    """What users derive their trials from."""

    def __init__(self, hyperparameters: Mapping[str, Any]) -> None:
        self.hyperparameters = hyperparameters

    @abstractmethod
    def begin(self, generator: np.random.Generator) -> Arrays:
        """The arrays at batch 0."""

    @abstractmethod
    def train_batch(self, arrays: Arrays, generator: np.random.Generator) -> dict[str, float]:
        """Trains one batch, drawn by `generator`: changes the arrays, and returns metrics."""

    @abstractmethod
    def validate(self, arrays: Arrays) -> dict[str, float]:
        """Metrics of the validation set."""

    @classmethod
    def make_trainer(cls, info: TrialInfo) -> Trainer:
        return ArrayTrainer(cls(info.hyperparameters), info.trial_seed)


class ArrayTrainer(Trainer):
    """Each batch has a generator of its own, found from the trial's seed and the batch's number: so a trial that goes on from a
    checkpoint draws what it would have drawn."""

    epoch_batches = None

    def __init__(self, trial: ArrayTrial, seed: int) -> None:
        self._trial, self._seed = trial, seed
        self._arrays = trial.begin(self._generator())
        self._sums: dict[str, float] = {}
        self._since = 0

    def _generator(self) -> np.random.Generator:
        import numpy as np

        return np.random.default_rng((self._seed, self.batches))

    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None:
        while self.batches < until_batches:
            for name, value in self._trial.train_batch(self._arrays, self._generator()).items():
                self._sums[name] = self._sums.get(name, 0.0) + value
            self.batches, self._since = self.batches + 1, self._since + 1
            if interrupted():
                return

    def take_metrics(self) -> dict[str, float]:
        taken = {name: value / self._since for name, value in self._sums.items()}
        self._sums, self._since = {}, 0
        return taken

    def validate(self) -> dict[str, float]:
        return self._trial.validate(self._arrays)

    def save(self, directory: Path) -> None:
        from safetensors.numpy import save_file

        save_file(self._arrays, directory / "model.safetensors")
        (directory / "metrics.json").write_text(json.dumps([self.batches, self._since, self._sums]))

    def load(self, directory: Path) -> None:
        self.load_weights(directory)
        self.batches, self._since, self._sums = json.loads((directory / "metrics.json").read_text())

    def load_weights(self, directory: Path) -> None:
        from safetensors.numpy import load_file

        self._arrays = load_file(directory / "model.safetensors")

    def close(self) -> None:
        """There is nothing to stop."""


class ArrayFramework(Framework):
    """Tells agents which trials are its own, and what their processes can import before they have one."""

    announced_by = ("tenuto_example_plugins",)
    trial_class = "tenuto_example_plugins.framework.ArrayTrial"

    def preloads(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return ("numpy", __name__)


FRAMEWORK = ArrayFramework()
