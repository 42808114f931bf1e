"""A trial in Determined's forms: names and rules of its API, as users write it."""

from typing import Any

import determined as det
import torch
from determined.pytorch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial, PyTorchTrialContext, Reducer
from torch import nn


def said(*words: Any) -> None:
    print("HOOK", *words, flush=True)


class First(PyTorchCallback):
    def __init__(self) -> None:
        self.count = 0

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: Any) -> None:
        said("startup", first_batch_idx, checkpoint_uuid is not None)

    def on_trial_shutdown(self) -> None:
        said("shutdown first")

    def on_training_start(self) -> None:
        said("training start")

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        said("epoch start", epoch_idx)

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.count += 1
        said("epoch end", epoch_idx, self.count)

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: Any) -> None:
        said("workload", avg_metrics["batches"], len(batch_metrics))

    def on_validation_start(self) -> None:
        said("validation start first")

    def on_validation_epoch_start(self) -> None:
        said("validation epoch start")

    def on_validation_epoch_end(self, outputs: Any) -> None:
        said("validation epoch end", [int(output["records"]) for output in outputs])

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        said("validation end", sorted(metrics))

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["note"] = "mine"
        said("save start", len(checkpoint["models_state_dict"]), len(checkpoint["optimizers_state_dict"]))

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        with open(f"{checkpoint_dir}/note.txt", "w") as file:
            file.write("mine")
        said("write end")

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        said("load start", checkpoint["note"])

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        said("upload end", bool(uuid))

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]


class Second(PyTorchCallback):
    def on_training_epoch_start(self) -> None:  # type: ignore[override]  # the form until 0.17.8
        said("epoch start second")

    def on_validation_start(self) -> None:
        said("validation start second")

    def on_trial_shutdown(self) -> None:
        said("shutdown second")


class Points(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))
        scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        self.scheduler = context.wrap_lr_scheduler(scheduler, step_mode=LRScheduler.StepMode.STEP_EVERY_EPOCH)
        self.largest = context.wrap_reducer(max, name="largest", for_training=False)
        info = det.get_cluster_info()
        assert info is not None
        said("facts", context.get_data_config(), context.get_trial_id(), info.trial.trial_id, info.user_data, info.trial.hparams)
        said("sizes", context.get_per_slot_batch_size(), context.get_global_batch_size(), context.distributed.get_size())
        said("config", context.get_experiment_config()["records_per_epoch"], context.get_experiment_config()["scheduling_unit"])

    def data(self, count: int) -> Any:
        return torch.utils.data.TensorDataset(torch.arange(count, dtype=torch.float32).unsqueeze(1) / count)

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(self.data(40), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(self.data(20), batch_size=8)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"first": First(), "second": Second()}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        (x,) = batch
        loss = (self.model(x) - 2 * x).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=lambda params: nn.utils.clip_grad_norm_(params, 1.0))
        return {"loss": loss, "records": len(x), "rate": self.scheduler.get_last_lr()[0]}

    def evaluation_reducer(self) -> Any:
        return {"records": Reducer.AVG, "most": Reducer.MAX, "all": Reducer.SUM}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        (x,) = batch
        self.largest.update(float(x.max()))
        return {"records": len(x), "most": batch_idx, "all": len(x)}
