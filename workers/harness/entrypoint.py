"""Finds the user's Trial class by `module:Class` in the model directory."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from tenuto.workers.errors import WillRepeat
from tenuto.workers.harness.frameworks import every
from tenuto.workers.harness.trainer import TrialBase

NAMES_SHOWN_MAX = 10


_entered: list[Path] = []
"""Model directory of this process; empty before it is known."""


def enter_context(context_directory: Path) -> None:
    """Makes the model directory the current one, and the first one on the import path."""
    _entered[:] = [context_directory.resolve()]
    os.chdir(context_directory)
    sys.path[:] = [str(context_directory), *(entry for entry in sys.path if entry not in ("", str(context_directory)))]
    importlib.invalidate_caches()


def entered_context() -> Path | None:
    """The model directory of this process; None if it has none."""
    return _entered[0] if _entered else None


def load_trial_class(entrypoint: str, context_directory: Path) -> type[TrialBase]:
    """The Trial class. Raises WillRepeat, or the error of the user's module during its import."""
    module_name, _, attribute = entrypoint.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        there = sorted(path.name for path in context_directory.iterdir() if path.suffix == ".py" or path.is_dir())
        raise WillRepeat(
            f"entrypoint {entrypoint!r}: there is no module {error.name!r} in the model directory, which holds {_shown(there)}. "
            "Set entrypoint to `module:Class` of your Trial."
        ) from None
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            classes = sorted(name for name, item in vars(module).items() if _is_trial(item) and item.__module__ == module_name)
            raise WillRepeat(
                f"entrypoint {entrypoint!r}: {module_name!r} has no {attribute!r}; its Trial classes are {_shown(classes)}."
            )
        value = getattr(value, part)
    if not _is_trial(value):
        bases = " or ".join(sorted(framework.trial_class for framework in every().values() if framework.trial_class))
        raise WillRepeat(f"entrypoint {entrypoint!r} is not a Trial class; derive it from {bases}.")
    trial_class: type[TrialBase] = value
    missing = sorted(getattr(trial_class, "__abstractmethods__", ()))
    if missing:
        raise WillRepeat(f"{_place(trial_class, context_directory)}{attribute} lacks the methods {_shown(missing)}.")
    return trial_class


def _is_trial(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, TrialBase)


def _place(value: type, context_directory: Path) -> str:
    try:
        file = Path(inspect.getsourcefile(value) or "")
        return f"{file.relative_to(context_directory)}:{inspect.getsourcelines(value)[1]}: "
    except (OSError, TypeError, ValueError):
        return ""


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return (", ".join(names[:NAMES_SHOWN_MAX]) + more) or "nothing"
