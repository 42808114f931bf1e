"""Names that Tenuto shares with Determined: each is in the table of docs/from-determined.md with its meaning, and each of
Determined's that is not here says what to write instead."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.pytorch import LRScheduler, MetricReducer, PyTorchCallback, PyTorchTrial, PyTorchTrialContext, Reducer
from tenuto.workers.core_api import Checkpoints, Operation, Run
from tenuto.workers.harness import determined_names
from tenuto.workers.harness.determined_names import UnknownName
from tenuto.workers.keras.context import KerasTrialContext
from tenuto.workers.keras.trial import KerasTrial
from tenuto.workers.pytorch.checking import HOOKS_ELSEWHERE, elsewhere
from tests.support.determined import API, CONFIG_FIELDS, MODULES
from tests.unit.test_pytorch_trial import INFO, Linear

ROOT = Path(__file__).parents[2]
CLASSES: dict[str, Any] = {
    "PyTorchTrial": PyTorchTrial,
    "PyTorchTrialContext": PyTorchTrialContext,
    "PyTorchCallback": PyTorchCallback,
    "MetricReducer": MetricReducer,
    "Reducer": Reducer,
    "LRScheduler": LRScheduler,
    "LRScheduler.StepMode": LRScheduler.StepMode,
    "KerasTrialContext": KerasTrialContext,
    "KerasTrial": KerasTrial,
    "Run": Run,
    "Checkpoints": Checkpoints,
    "Operation": Operation,
}
SCHEMA = json.loads((ROOT / "docs/reference/experiment-config.schema.json").read_text())


def meanings() -> dict[str, str]:
    """The rows of all tables but the first: meaning by name."""
    found: dict[str, str] = {}
    for line in (ROOT / "docs/from-determined.md").read_text().splitlines():
        cells = line.strip("| ").split(" | ")
        if line.startswith("| `") and len(cells) == 2 and not cells[0].startswith(("`from", "`with")):
            for name in re.findall(r"`([\w.]+)`", cells[0]):
                assert name not in found, f"{name} has two rows"
                found[name] = cells[1]
    return found


def own_names(kind: Any) -> set[str]:
    """Public names of a class: methods, properties, fields, and attributes that `__init__` sets."""
    names = {name for name in dir(kind) if not name.startswith("_")} | {"__init__"}
    for base in kind.__mro__[:-1]:
        if base.__module__.startswith("tenuto"):
            names |= set(re.findall(r"self\.([a-z]\w*)\b[^=\n(]*=[^=]", inspect.getsource(base)))
    return names | {field.name for field in (dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ())}


def config_fields(section: str) -> set[str]:
    def below(schema: Any) -> set[str]:
        found = set(schema.get("properties", ()))
        for name in re.findall(r"#/\$defs/(\w+)", json.dumps({key: schema[key] for key in schema if key != "properties"})):
            found |= below(SCHEMA["$defs"][name])
        return found

    return set(SCHEMA["properties"]) if not section else below(SCHEMA["properties"][section])


def shared() -> set[str]:
    found = {f"{kind}.{name}" for kind, names in API.items() for name in names.split() if name in own_names(CLASSES[kind])}
    for module, names in MODULES.items():
        found |= {f"{module}.{name}" for name in names.split() if name in importlib.import_module(module).__all__}
    for section, names in CONFIG_FIELDS.items():
        found |= {f"{section}.{name}".lstrip(".") for name in names.split() if name in config_fields(section)}
    return found


def test_every_name_that_both_have_is_in_the_table_and_no_other() -> None:
    documented = {name.replace("pytorch.", "tenuto.pytorch.") if name.startswith("pytorch.") else name for name in meanings()}
    names = shared()
    assert len(names) > 90
    assert names - documented == set(), "say in docs/from-determined.md what these mean here"
    assert documented - names - {"det.InvalidHP", "determined.transformers.DetCallback", "determined.lightning"} == set()


def test_the_lists_speak_of_classes_that_there_are() -> None:
    assert set(API) == set(CLASSES)
    for kind, names in API.items():
        assert len(set(names.split())) == len(names.split()), kind


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("PyTorchTrialContext", determined_names.TRIAL_CONTEXT),
        ("KerasTrialContext", KerasTrialContext._names_elsewhere),
        ("Run", determined_names.RUN),
        ("Checkpoints", determined_names.CHECKPOINTS),
        ("Operation", determined_names.OPERATION),
    ],
)
def test_every_other_name_of_an_object_says_what_to_write_instead(kind: str, known: dict[str, str]) -> None:
    of_the_class = {"from_config"}  # asked of the class, before there is an object
    others = set(API[kind].split()) - own_names(CLASSES[kind]) - of_the_class
    assert others
    assert others <= set(known)
    given = CLASSES[kind].__new__(CLASSES[kind])
    for name in others:
        with pytest.raises(UnknownName, match=f"has no '{name}', as it has in Determined: "):
            getattr(given, name)
    with pytest.raises(AttributeError, match="has no attribute 'anything'"):
        _ = given.anything


def test_every_other_hook_is_refused_with_ours() -> None:
    assert {name for name in API["PyTorchCallback"].split() if not hasattr(PyTorchCallback, name)} == set(HOOKS_ELSEWHERE)


def test_a_trial_written_as_for_determined_is_told_what_differs() -> None:
    def context_of(more: dict[str, Any] | None = None, **optimizations: Any) -> PyTorchTrialContext:
        info = dataclasses.replace(INFO, config={"name": "x", "optimizations": optimizations, **(more or {})})
        return PyTorchTrialContext(info, torch.device("cpu"))

    context = context_of()
    assert elsewhere(Linear(context), context) == ""
    context.get_per_slot_batch_size()
    told = elsewhere(Linear(context), context)
    assert told.startswith("unlike in Determined, Reducer.AVG counts each record once, and not each batch: see docs/")

    class Indexed(Linear):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:  # type: ignore[override]
            return {}

        def evaluation_reducer(self) -> Any:
            return Reducer.MAX

    for distributed, said in (({}, True), ({"global_batch_size": "scale"}, False)):
        context = context_of({"resources": {"slots_per_trial": 2}, "distributed": distributed})
        assert ("a DataLoader's batch is that of all slots" in elsewhere(Indexed(context), context)) is said
    context = context_of(aggregation_frequency=2)
    trial = Indexed(context)
    assert elsewhere(trial, context) == ""
    context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(trial.optimizer, 1), LRScheduler.StepMode.STEP_EVERY_BATCH)
    assert "schedulers step after each batch or epoch" in elsewhere(trial, context)
