"""Gives the package `determined` to code in a worker, if none is installed: the modules of `tenuto.workers.determined` under
Determined's names. Nothing is imported before the code does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tenuto.schemas.assignments import Assignment
from tenuto.workers.determined import facts
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.launch.gang import Gang

NAME, HERE = "determined", "tenuto.workers.determined"
PUBLIC: Mapping[str, str] = {
    "core": "tenuto.workers.determined.core",
    "keras": "tenuto.workers.determined.keras",
    "keras.callbacks": "tenuto.workers.determined.keras.callbacks",
    "pytorch": "tenuto.workers.determined.pytorch",
    "pytorch.samplers": "tenuto.workers.determined.pytorch.samplers",
}
"""Modules that are stood in for, below `determined`."""
INSTEAD: Mapping[str, str] = {
    "pytorch.deepspeed": "there are no trials of DeepSpeed here; distributed.strategy: fsdp divides a PyTorch model",
    "pytorch.lightning": "use tenuto.lightning",
    "lightning": "use tenuto.lightning",
    "estimator": "TensorFlow's estimators are no more; write a Keras trial, or a script",
    "experimental": "use tenuto.client, the client of a cluster",
    "searcher": 'a custom search is of another form here: see "A search of your own" in docs/search.md',
    "launch": "Tenuto starts a process for each slot itself",
    "tensorboard": "metrics are recorded by the cluster",
    "profiler": "use your framework's profiler",
}
"""Advice by module, for the others."""


class _Names(Loader):
    """Loads a module of Determined's by giving it ours: one module with two names."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(PUBLIC.get(spec.name.removeprefix(f"{NAME}."), HERE))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run. The import system has written its other name into it, which is taken back."""
        if module.__spec__ is not None and module.__spec__.loader_state is not None:
            module.__spec__ = module.__spec__.loader_state


class Top(_Names, MetaPathFinder):
    """Finds `determined` itself. It is behind all other finders: an installed package of that name goes first."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name == NAME else None


class Below(_Names, MetaPathFinder):
    """Finds what is below `determined`, if that is ours. It is in front of all others, which would load our files twice."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(f"{NAME}.") or getattr(sys.modules.get(NAME), "__name__", "") != HERE:
            return None
        below = name.removeprefix(f"{NAME}.")
        if below in PUBLIC:
            return ModuleSpec(name, self, is_package=True)
        why = next((INSTEAD[known] for known in INSTEAD if below == known or below.startswith(f"{known}.")), None)
        raise ModuleNotFoundError(
            f"Tenuto stands in for Determined, and has no {name}: {why or 'docs/from-determined.md lists what there is'}.",
            name=name,
        )


def provide(assignment: Assignment, gang: Gang | None = None) -> None:
    """Gives the names to the code of a trial, and the trial's facts to them."""
    facts.set_current(facts.of(assignment, TrialInfo.of(assignment, gang)))
    install()


def install() -> None:
    """Installs the finders, once."""
    if not any(isinstance(finder, Top) for finder in sys.meta_path):
        sys.meta_path.insert(0, Below())
        sys.meta_path.append(Top())
