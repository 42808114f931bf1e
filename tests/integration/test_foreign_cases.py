"""Trials as other people write them: killed and resumed in a fresh process they end with the weights of one that was left alone.
What such trials lose is in `test_foreign_losses.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.exact_trials import assert_same
from tests.support.foreign_cases import STOPS, context_left, ended

__all__ = ("context_left",)

pytestmark = pytest.mark.usefixtures("torch_as_it_was", "context_left")


def of_modules(module: str, *names: str) -> list[Any]:
    return [pytest.param(module, name, id=name) for name in names]


EXACT = of_modules(
    "own_globals",
    "number",
    "decay",
    "numpy_generator",
    "numpy_old_generator",
    "python_generator",
    "torch_generator",
    "memory_bank",
    "array",
    "numbers_in_deque",
    "tensors_in_deque",
    "default_dict",
    "counter",
    "count_of_itertools",
    "thread_local",
    "namespace",
    "context_variable",
    "members_of_set",
    "bytes_in_place",
    "keys_of_enum",
    "object_with_attributes",
    "object_with_slots",
    "object_with_getstate",
    "object_with_property",
    "data_class",
    "set_later",
    "name_made_later",
    "other_module",
    "module_imported_later",
)
EXACT += of_modules(
    "own_code",
    "class_attribute",
    "attribute_of_inner_class",
    "closure",
    "two_closures_of_one_function",
    "mutable_default",
    "attribute_of_function",
    "decorator_that_counts",
    "partial_with_memory",
    "OfMethod",
    "Own",
    "Counted",
    "LocalClass",
    "Constant",
    "Average",
    "Shared",
)

EXACT += of_modules("sched", "NamedAsPythons")
EXACT += of_modules(
    "own_layers",
    "Frozen",
    "Unfrozen",
    "UnfrozenWithScheduler",
    "UnfrozenInPlace",
    "UnfrozenUnwrapped",
    "UnfrozenInGlobal",
    "UnfrozenParameter",
    "Removed",
    "Switched",
    "WeightNorm",
    "OldWeightNorm",
    "SpectralNorm",
    "Tied",
    "Lazy",
    "ComplexParameters",
    "SparseGradients",
    "Functional",
    "Teacher",
)

EXACT += of_modules(
    "own_hooks",
    "HookClosure",
    "PreHookClosure",
    "HookObject",
    "HookMethod",
    "HookPartial",
    "HookOfGradient",
    "HookOfBackward",
    "HookOfOptimizer",
    "RateOfClosure",
)
EXACT += of_modules(
    "own_steps",
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adagrad",
    "Rprop",
    "ASGD",
    "RMSprop",
    "Steps",
    "Cosine",
    "OneCycle",
    "Cyclic",
    "Multiplied",
    "Derived",
    "AveragedByClosure",
    "Chained",
    "Sequential",
    "Plateau",
    "UnwrappedScheduler",
    "Swa",
    "Ema",
    "Swapped",
    "Scaled",
    "BatchNorm",
    "Dropout",
    "Noise",
    "Replay",
    "Sampled",
    "SampledByGlobal",
    "Collated",
    "Streamed",
)


@pytest.mark.parametrize(("module", "name"), EXACT)
def test_it_ends_as_if_it_was_left_alone(module: str, name: str) -> None:
    resumed = ended(module, name, STOPS)
    assert resumed.breaks == []
    alone = ended(module, name)
    assert_same(resumed, alone)
    assert resumed.trial.losses == alone.trial.losses
