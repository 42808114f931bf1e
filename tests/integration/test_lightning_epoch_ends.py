"""A Lightning trial that is interrupted at any batch, the last of an epoch among them, ends as one that was left alone: each
epoch ends once, with its schedulers, hooks and validation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import tenuto
from tenuto.schemas.reports import CheckpointReport, ValidationReport
from tenuto.workers.core_api.local_record import read_lines
from tests.support import real_parts

real_parts.package("lightning")
EPOCH, END = 5, 20
CONFIG = {
    "name": "ends",
    "entrypoint": "train.py",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": END}},
    "reproducibility": {"experiment_seed": 3},
}
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


@dataclass
class Ended:
    weights: dict[str, torch.Tensor]
    rates: list[float]
    epochs: int
    started: int
    validations: list[tuple[int, dict[str, float]]]
    order: list[tuple[str, int]]
    metrics: dict[int, dict[str, float]]
    """Metrics that Lightning has at the end of each epoch."""


def trained(directory: Path, stops: tuple[int, ...] = (), config: dict[str, Any] | None = None, **options: Any) -> Ended:
    """A run that leaves in each of the batches `stops` (numbers from 1), and goes on in a fresh trainer."""
    import lightning
    import torchmetrics
    from torch import nn
    from torch.utils.data import DataLoader

    from tenuto.lightning import fit

    class Counting(lightning.Callback):
        def __init__(self) -> None:
            self.started = 0

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self.started += 1

        def state_dict(self) -> dict[str, Any]:
            return {"started": self.started}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.started = state_dict["started"]

    class Module(lightning.LightningModule):
        def __init__(self, leave: Any) -> None:
            super().__init__()
            self.layer, self.drop, self.mean = nn.Linear(2, 1), nn.Dropout(0.3), torchmetrics.MeanMetric()
            self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))
            self.leave = leave

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
            self.leave(self.global_step + 1)
            loss = self.layer(self.drop(batch)).square().mean() * (1 + self.epochs)
            self.log_dict({"mean": loss, "shown": loss}, on_step=True, on_epoch=True)
            self.log("worst", loss, on_step=False, on_epoch=True, reduce_fx="max")
            self.mean.update(loss.detach())
            self.log("kept", self.mean, on_step=False, on_epoch=True)
            return loss

        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            self.log("loss", self.layer(batch).square().mean())

        def on_train_epoch_end(self) -> None:
            self.epochs += 1
            names = ("mean_epoch", "shown_step", "worst", "kept", "loss")
            found = {name: float(self.trainer.callback_metrics[name]) for name in names if name in self.trainer.callback_metrics}
            gathered[int(self.epochs)] = found

        def configure_optimizers(self) -> Any:
            return _optimizers(self.parameters())

    gathered: dict[int, dict[str, float]] = {}  # a process that leaves in an epoch ends it, too, after its checkpoint
    for stop in (*stops, 0):
        with tenuto.init({**CONFIG, **(config or {})}, directory=directory) as run:

            def leave(step: int, stop: int = stop, run: Any = run) -> None:
                if step == stop:
                    run._session.box.leave("preempt")

            lightning.seed_everything(run.trial_seed % 2**32, verbose=False)
            module, counting = Module(leave), Counting()
            module.configure_optimizers = _pair(module.configure_optimizers)  # type: ignore[method-assign]
            data = torch.arange(2.0 * 4 * EPOCH).reshape(-1, 2) / 40
            run.epoch_batches = EPOCH
            quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
            trainer = lightning.Trainer(
                max_epochs=-1, accelerator="cpu", callbacks=[counting], num_sanity_val_steps=0, **quiet, **options
            )
            loaders = {"train_dataloaders": DataLoader(data, 4, shuffle=True), "val_dataloaders": DataLoader(data, 8)}
            fit(trainer, module, run, **loaders)
    return _ended(directory, module, trainer, counting.started, gathered)


def _optimizers(parameters: Any) -> Any:
    """With schedulers on the metric of a validation, which may be that of an earlier epoch, and on a mean over this one."""
    first = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    step = torch.optim.lr_scheduler.StepLR(first, 1, 0.9)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(first, factor=0.7, patience=0, threshold=0.5)
    by_loss = {"scheduler": plateau, "monitor": "loss", "interval": "epoch", "strict": False}
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(first, factor=0.8, patience=0, threshold=0.9)
    return {"optimizer": first}, [step, by_loss, {"scheduler": other, "monitor": "mean_epoch", "interval": "epoch"}]


def _ended(directory: Path, module: Any, trainer: Any, started: int, gathered: dict[int, dict[str, float]]) -> Ended:
    lines = [line.body for line in read_lines(directory)]
    validations = {body.batches: body.metrics for body in lines if isinstance(body, ValidationReport)}
    order = [(body.kind, body.batches) for body in lines if isinstance(body, (ValidationReport, CheckpointReport))]
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
    return Ended(weights, rates, int(module.epochs), started, sorted(validations.items()), order, gathered)


def _pair(make: Any) -> Any:
    def made() -> Any:
        first, schedulers = make()
        return [first["optimizer"]], schedulers

    return made


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return trained(tmp_path_factory.mktemp("alone") / "run")


def assert_same(ours: Ended, theirs: Ended) -> None:
    assert ours.validations == theirs.validations
    assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in theirs.weights)
    assert ours.metrics == theirs.metrics
    assert (ours.rates, ours.epochs, ours.started) == (theirs.rates, theirs.epochs, theirs.started)


@pytest.mark.parametrize("stops", [(5,), (3,), (10, 15), (7, 10, 13), (2, 4, 5, 6)], ids=str)
def test_a_pause_at_any_batch_leaves_nothing_out(alone: Ended, tmp_path: Path, stops: tuple[int, ...]) -> None:
    assert [batches for batches, _ in alone.validations] == [5, 10, 15, 20]
    assert_same(trained(tmp_path / "run", stops), alone)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({"min_checkpoint_period": {"batches": 5}}, {}),
        ({"min_validation_period": {"batches": 2}}, {}),
        ({}, {"val_check_interval": 2}),
        ({}, {"check_val_every_n_epoch": 2}),
        ({}, {"limit_val_batches": 1, "val_check_interval": 3, "check_val_every_n_epoch": None}),
    ],
    ids=str,
)
def test_validations_within_an_epoch_and_checkpoints_at_its_end(
    tmp_path: Path, config: dict[str, Any], options: dict[str, Any]
) -> None:
    whole = trained(tmp_path / "alone", (), config, **options)
    assert_same(trained(tmp_path / "run", (4, 5, 6, 10, 15), config, **options), whole)
    positions = [batches for kind, batches in whole.order if kind == "checkpoint"]
    both = [item for item in whole.order if item[1] in positions]
    assert both == sorted(both, key=lambda item: (item[1], item[0])), "a checkpoint is reported before the validation"
