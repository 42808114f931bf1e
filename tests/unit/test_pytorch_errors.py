"""Whatever hook of the user's fails, or returns the wrong thing, the first thing that the user sees is a file and line."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tenuto.pytorch import PyTorchTrial
from tenuto.workers.errors import describe
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.batch_words import naming_batch, words
from tenuto.workers.pytorch.trainer import PyTorchTrainer

SOURCE = '''
import os
import torch
from torch import nn
from torch.utils.data import Dataset
from tenuto import pytorch


def step(name, value=None):
    """Fails, or returns the wrong thing, where the test wants it to."""
    if os.environ.get("TEST_RAISE") == name:
        raise KeyError("missing")
    return "wrong" if os.environ.get("TEST_WRONG") == name else value


class Data(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        step("__getitem__")
        return torch.ones(3), torch.tensor(index % 2)


def collate(items):
    step("collate_fn")
    return torch.utils.data.default_collate(items)


def reducer(values):
    return step("reducer", len(values))


class Callback(pytorch.PyTorchCallback):
    def on_training_start(self): step("on_training_start")
    def on_epoch_start(self, epoch_idx): step("on_epoch_start")
    def on_epoch_end(self, epoch_idx): step("on_epoch_end")
    def on_validation_start(self): step("on_validation_start")
    def on_validation_end(self, metrics): step("on_validation_end")
    def on_checkpoint_save_start(self, batches): step("on_checkpoint_save_start")
    def on_checkpoint_save_end(self, checkpoint_id): step("on_checkpoint_save_end")
    def on_checkpoint_load_end(self): step("on_checkpoint_load_end")
    def on_trial_end(self): step("on_trial_end")
    def state_dict(self): return step("callback.state_dict", {})
    def load_state_dict(self, state): step("callback.load_state_dict")


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        step("__init__")
        self.context = context
        self.model = context.wrap_model(nn.Linear(3, 2))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        self.reducer = context.wrap_reducer(reducer, name="count")
        step("wrap", 1) == 1 or context.wrap_model("nothing")

    def build_training_data_loader(self):
        loader = pytorch.DataLoader(Data(), batch_size=4, collate_fn=collate, num_workers=self.context.get_hparam("workers"))
        return step("build_training_data_loader", loader)

    def build_validation_data_loader(self):
        return step("build_validation_data_loader", pytorch.DataLoader(Data(), batch_size=4))

    def build_callbacks(self):
        return step("build_callbacks", {"callback": Callback()})

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.reducer.update(1)
        loss = self.model(batch[0]).sum()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=lambda parameters: step("clip_grads"))
        return step("train_batch", loss)

    def evaluate_batch(self, batch):
        self.reducer.update(1)
        return step("evaluate_batch", {"loss": 1.0})

    def evaluation_reducer(self):
        return step("evaluation_reducer", pytorch.Reducer.AVG)

    def get_batch_length(self, batch):
        return step("get_batch_length", 4)

    def state_dict(self):
        return step("state_dict", {"kept": 1})

    def load_state_dict(self, state):
        step("load_state_dict")


class FullTrial(Trial):
    def evaluate_full_dataset(self, data_loader):
        return step("evaluate_full_dataset", {"loss": float(len(list(data_loader)))})
'''
CALLBACKS = [
    "on_training_start",
    "on_epoch_start",
    "on_epoch_end",
    "on_validation_start",
    "on_validation_end",
    "on_checkpoint_save_start",
    "on_checkpoint_save_end",
    "on_checkpoint_load_end",
    "on_trial_end",
    "callback.state_dict",
    "callback.load_state_dict",
]
OTHERS = [
    "__init__",
    "build_training_data_loader",
    "build_validation_data_loader",
    "build_callbacks",
    "__getitem__",
    "collate_fn",
    "train_batch",
    "clip_grads",
    "evaluate_batch",
    "evaluate_full_dataset",
    "evaluation_reducer",
    "get_batch_length",
    "reducer",
    "state_dict",
    "load_state_dict",
]
RETURNS = [
    "build_training_data_loader",
    "build_validation_data_loader",
    "build_callbacks",
    "train_batch",
    "evaluate_batch",
    "evaluate_full_dataset",
    "evaluation_reducer",
    "get_batch_length",
    "reducer",
    "state_dict",
    "callback.state_dict",
    "wrap",
]


@pytest.fixture
def trial_class(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[type[PyTorchTrial]]:
    (tmp_path / "model_def.py").write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("erring_model_def", tmp_path / "model_def.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield module.FullTrial if "evaluate_full_dataset" in request.node.name else module.Trial
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def live(trial_class: type[PyTorchTrial], directory: Path, workers: int = 0) -> None:
    """A whole life: every hook is called."""
    directory.mkdir()
    info = TrialInfo(1, "1-1", 1, 7, {"workers": workers}, {})
    trainer = PyTorchTrainer(trial_class, info)
    trainer.train(3, lambda: False)
    trainer.take_metrics()
    trainer.validate()
    trainer.save(directory)
    trainer.saved("1-1-3")
    trainer.close()
    PyTorchTrainer(trial_class, info).load(directory)


def first_line(trial_class: type[PyTorchTrial], tmp_path: Path, workers: int = 0) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any, as the harness catches any
        live(trial_class, tmp_path / "checkpoint", workers)
    return describe(caught.value, tmp_path).splitlines()[0]


def test_an_error_about_a_batch_says_what_the_batch_is(tmp_path: Path) -> None:
    batch = {"x": [torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)], "name": ["a", "b"], **{str(n): n for n in range(9)}}
    with pytest.raises(KeyError) as caught:
        naming_batch(lambda batch, place: batch["image"])(batch, 0)
    assert describe(caught.value, tmp_path).splitlines()[0] == (
        "KeyError: 'image' (the batch: dict of ('x': list of (float32 tensor (2, 3), int64 tensor (2,)), "
        "'name': list of (str, str), '0': int, '1': int, '2': int, '3': int, ...))"
    )
    assert words(object()) == "object"
    assert words([[[[1]]]]) == "list of (list of (list of (list)))"
    with pytest.raises(ZeroDivisionError) as other:
        naming_batch(lambda batch: 1 // batch)(0)
    assert "batch" not in describe(other.value, tmp_path).splitlines()[0]


def test_nothing_fails_where_nothing_is_wrong(trial_class: type[PyTorchTrial], tmp_path: Path) -> None:
    live(trial_class, tmp_path / "checkpoint")


@pytest.mark.parametrize("hook", OTHERS + CALLBACKS)
def test_an_error_in_a_hook(trial_class: type[PyTorchTrial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    monkeypatch.setenv("TEST_RAISE", hook)
    said = first_line(trial_class, tmp_path)
    batch = " (the batch: list of (float32 tensor (4, 3), int64 tensor (4,)))"
    assert said.removesuffix(batch) == "model_def.py:12: KeyError: 'missing'"
    assert said.endswith(batch) == (hook in ("train_batch", "evaluate_batch", "clip_grads")), (
        "what is given a batch, or called by it"
    )


def test_the_first_error_is_told_and_not_that_of_the_last_callback(
    trial_class: type[PyTorchTrial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = PyTorchTrainer(trial_class, TrialInfo(1, "1-1", 1, 7, {"workers": 0}, {}))
    trainer.train(1, lambda: False)
    monkeypatch.setenv("TEST_RAISE", "on_trial_end")
    with pytest.raises(RuntimeError, match="the first"):  # noqa: PT012 - it is the leaving that is tested
        try:
            raise RuntimeError("the first")
        finally:
            trainer.close()


@pytest.mark.parametrize("hook", ["__getitem__", "collate_fn"])
def test_an_error_in_a_loader_worker(
    trial_class: type[PyTorchTrial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    monkeypatch.setenv("TEST_RAISE", hook)
    assert first_line(trial_class, tmp_path, workers=1) == "model_def.py:12: KeyError: 'missing'"


@pytest.mark.parametrize("hook", RETURNS)
def test_a_wrong_return_value(
    trial_class: type[PyTorchTrial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    monkeypatch.setenv("TEST_WRONG", hook)
    line = first_line(trial_class, tmp_path)
    match = re.match(r"model_def\.py:(\d+): (.*)", line)
    assert match is not None, line
    name = hook.partition(".")[2] or hook
    source = SOURCE.splitlines()
    assert name in source[int(match[1]) - 1], f"{line}, which is {source[int(match[1]) - 1]!r}"
    assert not match[2].startswith(("TypeError", "ValueError", "AttributeError")), line
