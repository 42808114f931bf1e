"""A checkpoint that somebody else wrote, whose weights alone are wanted: nothing in it runs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch import checkpoint, state


class Attack:
    """Runs a command when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (str(self._proof), 0o700, True)


def test_weights_of_a_pytorch_trial_are_taken_over_without_unpickling(tmp_path: Path) -> None:
    theirs, proof = torch.nn.Linear(2, 3), tmp_path / "proof"
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    state.save_model(theirs.state_dict(), directory / state.model_file(0))
    state.save_parts({"batches": 5, "models_other": [Attack(proof)], "trial": {"x": Attack(proof)}}, directory)
    assert (directory / state.USER_FILE).exists()
    ours = torch.nn.Linear(2, 3)
    context = SimpleNamespace(_models=[ours], _shards=None)
    checkpoint.restore_weights(cast(Any, context), directory)
    assert torch.equal(ours.weight, theirs.weight)
    assert not proof.exists()
    state.load_parts(directory)
    assert proof.exists(), "the attack works where everything is loaded"


def test_weights_of_lightning_are_taken_over_without_unpickling(tmp_path: Path) -> None:
    from tenuto.workers.integrations import lightning_files  # three seconds, which each process that reads this module would take

    path, proof = tmp_path / "checkpoint", tmp_path / "proof"
    weights = {"weight": torch.ones(2)}
    torch.save({"state_dict": weights, "epoch": 3, "hyper_parameters": {"lr": 0.1}}, path)
    assert torch.equal(lightning_files.weights(path)["weight"], weights["weight"])
    torch.save({"state_dict": weights, "callbacks": Attack(proof)}, path)
    with pytest.raises(UserError, match="objects besides tensors"):
        lightning_files.weights(path)
    assert not proof.exists()
