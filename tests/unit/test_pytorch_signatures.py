"""Checks of a trial's functions before training: that they can be called, and that they will be."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tenuto.pytorch import LRScheduler, MetricReducer, PyTorchCallback, PyTorchTrial, PyTorchTrialContext, Reducer
from tenuto.workers.errors import UserError, describe, will_repeat
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.callbacks import PyTorchCallback as Base
from tenuto.workers.pytorch.checking import HOOKS, HOOKS_ELSEWHERE, METHODS
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.unit.test_pytorch_trial import INFO, Linear

pytestmark = pytest.mark.usefixtures("torch_as_it_was")


def never() -> bool:
    return False


def trial_with(**members: Any) -> type[Linear]:
    return type("MyTrial", (Linear,), members)


def refusal(kind: type[PyTorchTrial], info: TrialInfo = INFO) -> str:
    """The sentence, and that it names this file and a line."""
    with pytest.raises(UserError) as refused:
        PyTorchTrainer(kind, info)
    assert will_repeat(refused.value), "a restart would meet the same"
    said = describe(refused.value, Path(__file__).parent)
    assert re.match(r"test_pytorch_\w+.py:\d+: ", said), said
    return said


def callback_with(function: Callable[..., Any], name: str = "") -> type[Linear]:
    callback = type("MyCallback", (PyTorchCallback,), {name or function.__name__: function})
    return trial_with(build_callbacks=lambda self: {"mine": callback()})


@pytest.mark.parametrize("name", sorted(HOOKS_ELSEWHERE))
def test_a_hook_of_determined_that_is_none_here_is_refused_with_ours(name: str) -> None:
    def hook(self: Any, *arguments: Any) -> None: ...

    said = refusal(callback_with(hook, name))
    assert f"MyCallback.{name} would never be called" in said
    assert f"write {HOOKS_ELSEWHERE[name]} instead." in said


def test_any_other_hook_that_would_never_run_is_refused() -> None:
    def on_epoch_ends(self: Any, epoch_idx: int) -> None: ...

    assert "write on_epoch_end instead" in refusal(callback_with(on_epoch_ends))

    def on_plateau(self: Any) -> None: ...

    assert "hooks are on_training_start, on_epoch_start" in refusal(callback_with(on_plateau))


def test_hooks_that_cannot_be_called_as_they_will_be_are_refused() -> None:
    def on_epoch_end(self: Any) -> None: ...

    said = refusal(callback_with(on_epoch_end))
    assert (
        "MyCallback.on_epoch_end() cannot be called as on_epoch_end(epoch_idx): write def on_epoch_end(self, epoch_idx)." in said
    )

    def on_checkpoint_save_end(self: Any, checkpoint_id: str, path: str) -> None: ...

    assert "on_checkpoint_save_end(checkpoint_id, path) cannot be called" in refusal(callback_with(on_checkpoint_save_end))

    def load_state_dict(self: Any) -> None: ...

    assert "load_state_dict" in refusal(callback_with(load_state_dict))

    async def on_training_start(self: Any) -> None: ...

    assert "is an async function, so a call would not run it" in refusal(callback_with(on_training_start))

    def on_checkpoint_save_start(self: Any, checkpoint: Any) -> None: ...

    assert "is given the number of batches, and not the checkpoint as in Determined" in refusal(
        callback_with(on_checkpoint_save_start)
    )


def test_what_is_checked_is_what_the_classes_declare() -> None:
    assert set(HOOKS) == {name for name in vars(Base) if name.startswith("on_") or name.endswith("state_dict")}
    declared = {name for name, value in vars(PyTorchTrial).items() if callable(value) and not name.startswith("_")}
    assert declared - {"make_trainer", "train_batch", "evaluate_batch"} == set(METHODS)


def test_evaluate_batch_may_take_the_index_of_the_batch() -> None:
    seen = []

    def evaluate_batch(self: Any, batch: Any, batch_idx: int) -> Mapping[str, Any]:
        seen.append(batch_idx)
        return {"loss": 1.0}

    trainer = PyTorchTrainer(trial_with(evaluate_batch=evaluate_batch), INFO)
    assert trainer.validate() == {"loss": 1.0}
    assert seen == [0, 1, 2]
    trainer.close()

    def with_option(self: Any, batch: Any, threshold: float = 0.5) -> Mapping[str, Any]:
        return {"threshold": threshold}

    trainer = PyTorchTrainer(trial_with(evaluate_batch=with_option), INFO)
    assert trainer.validate() == {"threshold": 0.5}, "an option of the user's own is left alone"
    trainer.close()


def plain(self: Any, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
    return {"batch": float(len(batch)), "epoch": epoch_idx, "index": batch_idx}


def turned(self: Any, batch: Any, batch_idx: int, epoch_idx: int) -> Any:
    return plain(self, batch, epoch_idx, batch_idx)


def other_names(self: Any, data: Any, epoch: int, step: int) -> Any:
    return plain(self, data, epoch, step)


def keywords(self: Any, *, batch_idx: int, epoch_idx: int, batch: Any) -> Any:
    return plain(self, batch, epoch_idx, batch_idx)


def anything(self: Any, *values: Any) -> Any:
    return plain(self, *values)


@pytest.mark.parametrize("function", [plain, turned, other_names, keywords, anything])
def test_train_batch_gets_its_arguments_by_name_or_else_in_order(function: Any) -> None:
    trainer = PyTorchTrainer(trial_with(train_batch=function), INFO)
    trainer.train(5, never)
    assert trainer.take_metrics() == {"batch": 2.0, "epoch": 0.4, "index": 2.0}
    trainer.close()


def test_train_batch_may_leave_the_numbers_out() -> None:
    def only_index(self: Any, batch: Any, batch_idx: int) -> Any:
        return {"index": batch_idx}

    def only_batch(self: Any, batch: Any, scale: float = 3.0) -> Any:
        return {"scale": scale}

    for function, metrics in ((only_index, {"index": 0.5}), (only_batch, {"scale": 3.0})):
        trainer = PyTorchTrainer(trial_with(train_batch=function), INFO)
        trainer.train(2, never)
        assert trainer.take_metrics() == metrics
        trainer.close()


def test_methods_that_cannot_be_called_are_refused_at_the_start() -> None:
    def train_batch(self: Any, batch: Any, model: Any, epoch_idx: int, batch_idx: int) -> Any: ...

    said = refusal(trial_with(train_batch=train_batch))
    assert (
        "MyTrial.train_batch(batch, model, epoch_idx, batch_idx) cannot be called as train_batch(batch, epoch_idx, batch_idx)"
        in said
    )

    def step(self: Any, batch: Any, step: int) -> Any: ...

    assert "cannot be called" in refusal(trial_with(train_batch=step)), "whether epoch or batch is meant, nobody knows"

    def evaluate_batch(self: Any, batch: Any, model: Any, index: int) -> Any: ...

    assert "as evaluate_batch(batch) or evaluate_batch(batch, batch_idx)" in refusal(trial_with(evaluate_batch=evaluate_batch))

    def evaluate_full_dataset(self: Any, data_loader: Any, model: Any) -> Any: ...

    assert "evaluate_full_dataset(data_loader)" in refusal(trial_with(evaluate_full_dataset=evaluate_full_dataset))

    def build_callbacks(self: Any, context: Any) -> Any: ...

    assert "build_callbacks()" in refusal(trial_with(build_callbacks=build_callbacks))

    def get_batch_length(self: Any) -> int: ...

    assert "get_batch_length(batch)" in refusal(trial_with(get_batch_length=get_batch_length))

    def generates(self: Any, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        yield batch

    assert "has a yield, so a call would not run it" in refusal(trial_with(train_batch=generates))

    def evaluation_reducer(self: Any) -> Any:
        return {"loss": "mean"}

    assert "evaluation_reducer returned 'mean'" in refusal(trial_with(evaluation_reducer=evaluation_reducer))

    def init(self: Any) -> None: ...

    assert "write def __init__(self, context)" in refusal(trial_with(__init__=init))


def test_a_trial_without_what_it_needs_is_told_all_of_it() -> None:
    class Half(PyTorchTrial):
        def __init__(self, context: PyTorchTrialContext) -> None: ...

    said = refusal(Half)
    assert "Half needs build_training_data_loader, build_validation_data_loader and train_batch" in said


def test_what_is_probably_misspelt_or_never_called_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    def build_callback(self: Any) -> Any: ...

    def evaluate_full_dataset(self: Any, data_loader: Any) -> Any: ...

    PyTorchTrainer(trial_with(build_callback=build_callback), INFO).close()
    assert "tenuto: MyTrial.build_callback is never called; is build_callbacks meant?" in capfd.readouterr().err
    PyTorchTrainer(trial_with(evaluate_full_dataset=evaluate_full_dataset), INFO).close()
    assert "the first is used, and the other never called" in capfd.readouterr().err
    PyTorchTrainer(trial_with(train_batches=lambda self: 1, build_callbacks=lambda self: {}), INFO).close()
    assert "build_callbacks" not in capfd.readouterr().err


def context_of(**config: Any) -> PyTorchTrialContext:
    info = dataclasses.replace(INFO, config={**INFO.config, **config})
    context = PyTorchTrialContext(info, torch.device("cpu"))
    context.wrap_model(nn.Linear(2, 2))
    return context


def test_reducers_and_schedulers_are_checked_where_they_are_wrapped() -> None:
    class Short(MetricReducer):
        def reset(self) -> None: ...

        def per_slot_reduce(self) -> Any: ...

        def cross_slot_reduce(self) -> Any: ...  # type: ignore[override]

    context = context_of()
    with pytest.raises(UserError, match=r"Short.cross_slot_reduce\(\) cannot be called as cross_slot_reduce\(per_slot_metrics\)"):
        context.wrap_reducer(Short())
    with pytest.raises(UserError, match="is called with 1 argument"):
        context.wrap_reducer(lambda: 0, name="zero")
    once = context.wrap_reducer(lambda values: len(values), name="count")
    with pytest.raises(UserError, match="twice"):
        context.wrap_reducer(once, name="again")
    optimizer = context.wrap_optimizer(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1))
    with pytest.raises(UserError, match=r"step_mode 'epoch'; it needs a pytorch.LRScheduler.StepMode: STEP_EVERY_EPOCH"):
        context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1), "epoch")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="ReduceLROnPlateau needs a metric"):
        context.wrap_lr_scheduler(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))
    other = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(UserError, match="call wrap_optimizer before"):
        context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(other, 1))
    context.wrap_lr_scheduler(
        lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1), step_mode=LRScheduler.StepMode.MANUAL_STEP
    )


def test_options_of_wrap_optimizer_that_would_mean_something_else_are_refused() -> None:
    context = context_of(optimizations={"aggregation_frequency": 2})

    def optimizer() -> torch.optim.Optimizer:
        return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)

    context.wrap_optimizer(optimizer(), backward_passes_per_step=2, fp16_compression=False, average_aggregated_gradients=True)
    with pytest.raises(UserError, match="gradients are not compressed"):
        context.wrap_optimizer(optimizer(), fp16_compression=True)
    with pytest.raises(UserError, match=r"set optimizations.average_aggregated_gradients: false"):
        context.wrap_optimizer(optimizer(), average_aggregated_gradients=False)


def test_a_clipping_function_may_go_through_the_parameters_twice() -> None:
    context = context_of()
    weight = nn.Parameter(torch.ones(1))
    optimizer = context.wrap_optimizer(torch.optim.SGD([weight], lr=0.1))
    counts = []
    context.backward((3 * weight).sum())
    context.step_optimizer(optimizer, lambda parameters: counts.extend([len(list(parameters)), len(list(parameters))]))
    assert counts == [1, 1]


def test_a_name_of_determineds_context_says_what_to_write_instead() -> None:
    context = context_of()
    with pytest.raises(
        UserError, match=r"context has no 'distributed', as it has in Determined: use context.rank and context.slots"
    ):
        context.distributed.get_rank()
    assert not hasattr(context, "get_tensorboard_writer")
    assert getattr(context, "anything", None) is None


def test_values_of_a_function_come_in_the_order_of_one_process() -> None:
    context = context_of()
    reducer = context.wrap_reducer(lambda values: values, name="all")
    assert reducer.cross_slot_reduce([[0, 2, 4], [1, 3]]) == [0, 1, 2, 3, 4]
    assert Reducer.AVG.value == "avg"
