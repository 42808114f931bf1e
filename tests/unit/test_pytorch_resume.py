"""Saved anywhere and loaded into a fresh trainer, training goes on as if nothing had happened."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tenuto.pytorch import PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from tenuto.schemas.config.experiment import Optimizations, Reproducibility
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch import exactness
from tenuto.workers.pytorch.state import STATE_FILE, USER_FILE, is_plain
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.integration.test_exact_resume import assert_equal
from tests.unit.test_pytorch_trial import INFO, Linear

EVERYTHING = Path(__file__).parents[1] / "support" / "trials" / "everything" / "model_def.py"
END = 16
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


def never() -> bool:
    return False


@pytest.fixture(scope="module")
def everything() -> type[PyTorchTrial]:
    spec = importlib.util.spec_from_file_location("everything_model_def", EVERYTHING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    trial: type[PyTorchTrial] = module.Everything
    return trial


def info(stream: bool = False, exact: bool = True, **optimizations: Any) -> TrialInfo:
    config = {
        "optimizations": Optimizations.model_validate(optimizations).model_dump(mode="json"),
        "reproducibility": Reproducibility(exact=exact).model_dump(mode="json"),
    }
    return TrialInfo(1, "1-1", 1, 77, {"stream": stream, "loader_workers": 0}, config)


def state_of(trainer: PyTorchTrainer, directory: Path) -> dict[str, Any]:
    directory.mkdir()
    trainer.save(directory)
    weights = {path.name: path.read_bytes() for path in sorted(directory.glob("*.safetensors"))}
    return {**weights, "state": torch.load(directory / STATE_FILE, weights_only=True), "validation": trainer.validate()}


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"mixed_precision": "bf16"},
        {"mixed_precision": "fp16"},
        {"mixed_precision": "fp16", "aggregation_frequency": 3, "clip_grad_value": 0.1, "clip_grad_norm": 0.2},
        {"aggregation_frequency": 4, "average_aggregated_gradients": False},
        {"stream": True},
    ],
    ids=str,
)
def test_training_goes_on_where_it_was(everything: type[PyTorchTrial], tmp_path: Path, variant: dict[str, Any]) -> None:
    whole = PyTorchTrainer(everything, info(**variant))
    whole.train(END, never)
    expected = state_of(whole, tmp_path / "whole")
    for position in (1, 5, 7, 14):
        first = PyTorchTrainer(everything, info(**variant))
        first.train(position, never)
        write = first.snapshot()
        first.train(position + 2, never)  # a snapshot is of its moment, whatever training does before it is written
        (directory := tmp_path / str(position)).mkdir()
        write(directory)
        resumed = PyTorchTrainer(everything, info(**variant))
        resumed.load(directory)
        resumed.train(END, never)
        assert_equal(state_of(resumed, tmp_path / f"resumed-{position}"), expected)


class Itself:
    """Says that it is its own copy, although it changes."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def __deepcopy__(self, memo: Any) -> Itself:
        return self


class Entangled(Linear):
    """Keeps state whose parts are one another's, and some that exists only while it is saved."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.norm = nn.BatchNorm1d(3)
        self.memory, self.words, self.itself = torch.zeros(100), ["begun"], Itself()

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        trial = self

        class Counting(PyTorchCallback):
            def state_dict(self) -> dict[str, Any]:
                return {"fresh": trial.memory[:50] + 1}

            def load_state_dict(self, state: Mapping[str, Any]) -> None:
                pass

        return {"counting": Counting()}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.memory[batch_idx % 100] += batch_idx
        self.words.append(str(batch_idx))
        self.itself.steps.append(batch_idx)
        self.norm(torch.randn(4, 3))
        return super().train_batch(batch, epoch_idx, batch_idx)

    def state_dict(self) -> dict[str, Any]:
        return {
            "memory": self.memory, "part": self.memory[3:], "fresh": self.memory[:50] * 2, "words": self.words,
            "same": [self.words, self.words], "norm": self.norm.state_dict(), "last": self.memory[-1],
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.memory, self.words = state["memory"], state["words"]


class Opaque(Entangled):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "itself": self.itself}


@pytest.mark.parametrize("kind", ["everything", Entangled, Opaque], ids=str)
def test_a_copy_is_written_as_the_same_bytes_as_the_state_itself(
    kind: Any, everything: type[PyTorchTrial], tmp_path: Path
) -> None:
    trainer = PyTorchTrainer(everything, info()) if kind == "everything" else PyTorchTrainer(kind, INFO)
    for position in (3, 6, 9):  # in fresh memory, then in memory that was used
        trainer.train(position, never)
        (at_once := tmp_path / f"{position}-at-once").mkdir()
        trainer.save(at_once)
        write = trainer.snapshot()
        trainer.train(position + 2, never)
        (later := tmp_path / f"{position}-later").mkdir()
        write(later)
        names = sorted(path.name for path in at_once.iterdir())
        assert names == sorted(path.name for path in later.iterdir())
        assert [(name, (at_once / name).read_bytes() == (later / name).read_bytes()) for name in names] == [
            (name, True) for name in names
        ]
    trainer.close()


def test_gathered_gradients_train_as_one_large_batch() -> None:
    class Plain(Linear):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.model[1].p = 0.0

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            whole = torch.arange(8.0).reshape(8, 1) * torch.ones(4)
            part = whole if self.context.get_hparam("large") else whole[batch_idx % 2 * 4 :][:4]
            loss = (self.model(part) ** 2).mean()
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return loss

    def weights(large: bool, frequency: int, **more: Any) -> torch.Tensor:
        config = {"optimizations": {"aggregation_frequency": frequency, **more}}
        hyperparameters = {"lr": 0.001, "large": large}
        trainer = PyTorchTrainer(Plain, TrialInfo(1, "1-1", 1, 7, hyperparameters, config))
        trainer.train(2 if frequency == 2 else 1, never)
        return torch.cat([parameter.flatten() for parameter in trainer.context._models[0].parameters()])

    assert torch.allclose(weights(False, 2), weights(True, 1), atol=1e-6)
    assert not torch.allclose(weights(False, 2, average_aggregated_gradients=False), weights(True, 1), atol=1e-6)
    assert not torch.allclose(weights(False, 2, clip_grad_norm=0.01), weights(True, 1), atol=1e-6)


def test_one_scaler_for_two_optimizers_changes_its_scale_between_batches_only() -> None:
    scales: list[float] = []

    class TwoSteps(Linear):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.second = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
            self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1))

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            for optimizer in (self.optimizer, self.second):
                loss = self.model(batch[0]).mean()
                self.context.backward(self.scaler.scale(loss))
                self.context.step_optimizer(optimizer, scaler=self.scaler)
                scales.append(self.scaler.get_scale())
            if batch_idx == 1:
                self.scaler.update()  # whoever does it himself may
            return loss

    PyTorchTrainer(TwoSteps, INFO).train(3, never)
    assert scales == [4.0, 4.0, 8.0, 8.0, 16.0, 16.0]


def test_what_a_trial_keeps_is_pickled_only_where_it_must_be(tmp_path: Path) -> None:
    class Odd(Linear):
        kept: Any = {"words": ["plain"]}

        def state_dict(self) -> Mapping[str, Any]:
            return {"kept": self.kept}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            self.kept = state["kept"]

    PyTorchTrainer(Odd, INFO).save(tmp_path)
    assert not (tmp_path / USER_FILE).exists()
    trainer = PyTorchTrainer(Odd, INFO)
    trainer.trial.kept = TrialInfo(1, "1-1", 1, 1, {}, {})  # type: ignore[attr-defined]
    trainer.save(tmp_path)
    assert "trial" not in torch.load(tmp_path / STATE_FILE, weights_only=True)
    again = PyTorchTrainer(Odd, INFO)
    again.load(tmp_path)
    assert again.trial.kept == TrialInfo(1, "1-1", 1, 1, {}, {})  # type: ignore[attr-defined]
    assert not is_plain({"a": [object()]})


def test_what_can_break_exactness_is_said_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Atomic(Linear):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            torch.zeros(3).put_(torch.tensor([0]), torch.tensor([1.0]))  # where indices repeat, any of them may win
            return super().train_batch(batch, epoch_idx, batch_idx)

    trainer = PyTorchTrainer(Atomic, INFO)
    trainer.train(3, never)
    trainer.save(tmp_path)
    trainer.close()
    said = capsys.readouterr().err
    assert said.count("put_ has no deterministic kernel here") == 1
    record = json.loads((tmp_path / exactness.EXACTNESS_FILE).read_text())
    assert (record["exact"], record["exact_kernels"]) == (False, True)
    assert len(record["breaks"]) == 1
    record["surroundings"]["torch"] = "1.0"
    (tmp_path / exactness.EXACTNESS_FILE).write_text(json.dumps(record))
    resumed = PyTorchTrainer(Linear, INFO)
    resumed.load(tmp_path)
    resumed.close()
    said = capsys.readouterr().err
    assert f"torch was 1.0 before this process, and is {torch.__version__} now" in said
    resumed.save(tmp_path)
    assert len(json.loads((tmp_path / exactness.EXACTNESS_FILE).read_text())["breaks"]) == 2


def test_exactness_is_on_unless_the_experiment_says_otherwise(everything: type[PyTorchTrial]) -> None:
    torch.use_deterministic_algorithms(False)
    PyTorchTrainer(everything, info(exact=False)).close()
    assert not torch.are_deterministic_algorithms_enabled()
    PyTorchTrainer(everything, info()).close()
    assert torch.are_deterministic_algorithms_enabled()


def test_a_used_gradient_is_not_saved_and_one_added_to_later_is(tmp_path: Path) -> None:
    after: list[Callable[[Linear], None]] = [lambda trial: None]

    class Idiom(Linear):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            after[0](self)
            return loss

    def saved_gradients() -> list[Any]:
        trainer = PyTorchTrainer(Idiom, INFO)
        trainer.train(2, never)
        trainer.save(tmp_path)
        gradients: list[Any] = torch.load(tmp_path / STATE_FILE, weights_only=True)["gradients"][0]
        return gradients

    assert saved_gradients() == [None] * 4
    after[0] = lambda trial: trial.model(torch.ones(1, 4)).sum().backward()
    assert all(gradient is not None for gradient in saved_gradients())
