"""Real parts that Debian's packages bring: a browser, a container engine. Without one its tests skip in one sentence; where
`make system-packages` installed them (`.ci/run`), a skip for that reason is a failure."""

from __future__ import annotations

import importlib.util
import os
from typing import NoReturn

import pytest

REQUIRED = "TENUTO_REAL_PARTS"
"""`required`: the packages were installed, so nothing of them may be missing."""


def check(item: pytest.Item) -> None:
    """Skip or fail a test marked `real_part(lack, installable=True)` whose lack is not empty. A lack that no package of Debian
    ends (a network, a right) is not installable, and skips everywhere."""
    for mark in item.iter_markers("real_part"):
        if mark.args[0]:
            lacks(mark.args[0], installable=mark.kwargs.get("installable", True))


def lacks(lack: str, installable: bool = True) -> NoReturn:
    """Skips the test that asks, or fails it where this was to be installed."""
    if installable and os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{lack} It was to be installed before this run.", pytrace=False)
    pytest.skip(lack)


def package(name: str) -> None:
    """Skips a module's tests where a package is missing. Unlike `pytest.importorskip` without importing it: each process of a run
    reads all modules, and few processes run the tests of one framework, whose import takes seconds."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed.", allow_module_level=True)
