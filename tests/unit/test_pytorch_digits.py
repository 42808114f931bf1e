"""The example that the README shows: its configuration is valid, and its model learns."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import yaml

from tenuto.schemas.config import ExperimentConfig
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.trainer import PyTorchTrainer

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def model_def() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_model_def", DIGITS / "model_def.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_digits_example_learns() -> None:
    config = ExperimentConfig.model_validate(yaml.safe_load((DIGITS / "config.yaml").read_text()))
    assert sum(getattr(value, "type", "const") != "const" for value in config.hyperparameters.values()) >= 4
    values = {
        "learning_rate": 0.015,
        "channels": 24,
        "dropout": 0.2,
        "activation": "gelu",
        "weight_decay": 1e-4,
        "batch_size": 32,
    }
    assert values.keys() == config.hyperparameters.keys()
    info = TrialInfo(1, "1-1", 1, 7, values, config.model_dump(mode="json"))
    trainer = PyTorchTrainer(model_def().DigitsTrial, info)
    trainer.train(4 * trainer.epoch_batches, lambda: False)
    metrics = trainer.validate()
    assert metrics[config.searcher.metric] > 0.93
    assert trainer.take_metrics()["loss"] < 1
