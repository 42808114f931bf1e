"""State that Lightning's `self.log` has gathered, and keeps in no checkpoint: the metrics of past batches and epochs, on which
schedulers and callbacks decide, reductions over the epoch under way, and states of torchmetrics' metrics in the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from lightning.pytorch import Trainer

METRICS_FILE = "metrics.pt"
"""File in a checkpoint: by rank, what `state_of` returns."""
KINDS = ("callback", "logged", "progress_bar")
OTHER_RANKS = (
    "the number of slots changed, so what Lightning's self.log reduces at the end of the epoch under way is about the batches "
    "since the change alone"
)


def state_of(trainer: Trainer, validation_names: set[str]) -> dict[str, Any]:
    """State of this rank, as plain values and tensors on the CPU. `validation_names`: which metrics are those of validations."""
    results: Any = trainer.fit_loop.epoch_loop._results
    return {
        "validation": sorted(validation_names),
        "known": {kind: _tensors(getattr(trainer, f"{kind}_metrics")) for kind in KINDS},
        "open": {
            key: {name: _copied(getattr(item, name)) for name in ("value", "cumulated_batch_size") if hasattr(item, name)}
            for key, item in results.items()
            if item.is_tensor and item.meta.on_epoch
        },
        "metrics": {
            name: {"states": {state: _copied(getattr(item, state)) for state in item._defaults}, "updates": item._update_count}
            for name, item in _metrics_in(trainer.lightning_module)
        },
    }


class Carried:
    """Such state from a checkpoint, on its way into a resumed Trainer."""

    def __init__(self, states: list[dict[str, Any]], rank: int, size: int, note: Callable[[str], None]) -> None:
        """`states`: of all ranks that saved. `note`: called if state was lost because their number was not `size`."""
        state = states[min(rank, len(states) - 1)]
        self._validation_names = set(state["validation"])
        self._known: dict[str, dict[str, torch.Tensor]] = state["known"]
        self._open: dict[str, dict[str, torch.Tensor]] = state["open"] if len(states) == size else {}
        self._metrics: dict[str, dict[str, Any]] = state["metrics"] if len(states) == size else {}
        if len(states) != size and any(item["open"] or item["metrics"] for item in states):
            note(OTHER_RANKS)

    def begin(self, trainer: Trainer) -> set[str]:
        """Called when the training begins: Lightning has emptied what it knows. Returns the names of validations' metrics."""
        connector: Any = trainer._logger_connector
        device = trainer.lightning_module.device
        for kind, found in self._known.items():
            known: dict[str, Any] = getattr(connector, f"_{kind}_metrics")
            known.update({name: value.to(device) for name, value in found.items() if name not in known})
        self._known = {}
        return self._validation_names

    def begin_batch(self, trainer: Trainer) -> None:
        """Called before a batch: hooks that begin an epoch, and may reset metrics, have run."""
        if not self._metrics:
            return
        saved, self._metrics = self._metrics, {}
        for name, item in _metrics_in(trainer.lightning_module):
            if name in saved:
                for state, value in saved[name]["states"].items():
                    setattr(item, state, _on(value, item.device))
                item._update_count, item._computed = saved[name]["updates"], None

    def end_batch(self, trainer: Trainer) -> None:
        """Called after a batch, and at the end of the epoch: adds to each reduction what it had, once it is begun anew."""
        results: Any = trainer.fit_loop.epoch_loop._results
        for key in [key for key in self._open if key in results]:
            item, saved = results[key], self._open.pop(key)
            if not item.is_tensor:
                continue
            value = saved["value"].to(item.value.device)
            if item.meta.is_max_reduction or item.meta.is_min_reduction:
                item.value = item.meta.reduce_fx(item.value, value)
            elif item.meta.is_mean_reduction or item.meta.is_sum_reduction:
                item.value = value + item.value
            if "cumulated_batch_size" in saved:
                item.cumulated_batch_size = item.cumulated_batch_size + saved["cumulated_batch_size"].to(item.value.device)
            item._computed = None


def _metrics_in(module: Any) -> Iterator[tuple[str, Any]]:
    """Metrics of torchmetrics in a module, which keeps their states out of its `state_dict`."""
    from torchmetrics import Metric

    yield from ((name, item) for name, item in module.named_modules() if isinstance(item, Metric))


def _tensors(metrics: Any) -> dict[str, torch.Tensor]:
    return {
        str(name): torch.as_tensor(value).detach().cpu().clone()
        for name, value in metrics.items()
        if isinstance(value, (torch.Tensor, int, float))
    }


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def _on(value: Any, device: Any) -> Any:
    if isinstance(value, list):
        return [_on(item, device) for item in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value
