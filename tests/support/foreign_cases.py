"""Trials of `tests/support/trials/foreign` and of single files, in processes that are fresh as far as their modules are loaded
anew."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.workers.harness import entrypoint
from tests.support.exact_trials import Result, trained_anew

CONTEXT = Path(__file__).parent / "trials" / "foreign"
END, STOPS = 11, (3, 7)


@pytest.fixture
def context_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The directory, the import path and the modules are afterwards as they were."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(entrypoint, "_entered", [])
    before = os.getcwd()
    yield
    forget()
    os.chdir(before)


def forget() -> None:
    """Forgets the modules of the model directory."""
    directories = tuple(f"{directory}{os.sep}" for directory in entrypoint._entered)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(directories):
            del sys.modules[name]


def fresh(directory: Path, module: str, name: str) -> Any:
    entrypoint.enter_context(directory)
    forget()
    return getattr(importlib.import_module(module), name)


def ended(module: str, name: str, stops: tuple[int, ...] = ()) -> Result:
    return trained_anew(lambda: fresh(CONTEXT, module, name), END, stops)
