"""The fast copy of frozen dataclasses does what the standard library's does, for the classes that it is used for."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import pytest

from tenuto.schemas.fast_replace import replaced
from tenuto.services.tracker.state import Experiment, State, Trial

EXPERIMENT = Experiment(1, "default", "loss", smaller_is_better=True, checkpoint_policy="all", max_restarts=5)


def test_a_changed_copy_is_what_the_standard_library_makes() -> None:
    trial = Trial("1-1", batches=2)
    assert replaced(trial, batches=3, stopped=True) == replace(trial, batches=3, stopped=True)
    assert trial == Trial("1-1", batches=2)
    assert hash(replaced(EXPERIMENT, pool="other")) == hash(replace(EXPERIMENT, pool="other"))


@pytest.mark.parametrize("model", [State, Experiment, Trial])
def test_nothing_is_bypassed(model: type) -> None:
    """What the constructor would do beside setting fields, or what is kept beside the fields, would be wrong in the copy."""
    assert not hasattr(model, "__post_init__")
    assert not hasattr(model, "__slots__")
    assert not [name for name, value in vars(model).items() if isinstance(value, cached_property)]
