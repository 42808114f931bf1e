# Made from aio/checkpoints.py by docs/blocking_client.py: change that one, then `make docs`.
"""A checkpoint: its files, and the weights in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.client import files, notebook_html
from tenuto.client.blocking.door import RestClient
from tenuto.client.blocking.pauses import aside


class Checkpoint:
    """A stored checkpoint of a trial."""

    def __init__(self, door: RestClient, data: dict[str, Any]) -> None:
        self._door = door
        self.data = data
        """The checkpoint as the cluster describes it."""

    def __repr__(self) -> str:
        return f"Checkpoint({self.id!r})"

    def _repr_html_(self) -> str:
        """HTML of the checkpoint for notebooks."""
        data = self.data
        rows = [
            ("trial", self.trial_id),
            ("batches", self.batches),
            ("metric", self.metric),
            ("size in bytes", f"{self.size_bytes:,}"),
            ("saved", notebook_html.when(data.get("saved_us"))),
            ("location", data.get("location")),
        ]
        return notebook_html.facts(f"Checkpoint {self.id}", rows)

    @property
    def id(self) -> str:
        """Id of the checkpoint."""
        return str(self.data["id"])

    @property
    def trial_id(self) -> str:
        """Trial that saved it, such as 3-7."""
        return str(self.data["trial_id"])

    @property
    def experiment_id(self) -> int:
        """Experiment of that trial."""
        return int(self.data["experiment_id"])

    @property
    def batches(self) -> int:
        """Batches trained when it was saved."""
        return int(self.data["batches"])

    @property
    def metric(self) -> float | None:
        """Value of the searcher's metric, validated at the same number of batches; None: not validated there."""
        value = self.data["metric"]
        return None if value is None else float(value)

    @property
    def size_bytes(self) -> int:
        """Size of its files."""
        return int(self.data["size_bytes"])

    def download(self, path: str | Path | None = None) -> Path:
        """Makes a directory with its files, and returns it. `path`: the directory, which must not exist; None: ./checkpoint-ID.
        It appears only when it is complete. Raises ClientError if it exists, or cannot be written.

            from tenuto import Client

            with Client() as client:
                experiment = client.get_experiment(3)
                best = experiment.best_checkpoint()
                directory = best.download("best")
                print(sorted(directory.iterdir()))
        """
        directory = Path(f"checkpoint-{self.id}" if path is None else path)
        return aside(lambda: files.download(self._door.target, self.id, directory))

    def load(self, model: int = 0) -> Mapping[str, Any]:
        """Weights of its model, for `model.load_state_dict`: tensors of torch on the CPU if a PyTorch trial wrote them and torch
        is installed, else arrays of numpy. Nothing is unpickled. `model`: number of the model, from 0, if the trial has several.
        Raises ClientError if the checkpoint has no file of weights for it.

            from tenuto import Client

            with Client() as client:
                experiment = client.get_experiment(3)
                best = experiment.best_checkpoint()
                weights = best.load()
                print({name: value.shape for name, value in weights.items()})
        """
        return aside(lambda: files.load(self._door.target, self.id, model))


def best(checkpoints: list[Checkpoint], *, smaller_is_better: bool) -> Checkpoint | None:
    """Checkpoint with the best searcher's metric; the earlier of two that are alike. None: none was validated."""
    sign = 1.0 if smaller_is_better else -1.0
    known = [(sign * item.metric, item) for item in checkpoints if item.metric is not None and item.metric == item.metric]
    return min(known, key=lambda pair: pair[0])[1] if known else None
