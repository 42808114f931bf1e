"""Tenuto: deep-learning training that keeps its place."""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING

from tenuto.version import __version__ as __version__

_HERE = os.path.dirname(__file__)
for _name in ("schemas", "services", "workers"):
    # Links to folders in a checkout, folders in an installed package; files where git cannot make links.
    if os.path.isfile(os.path.join(_HERE, _name)):
        raise ImportError(
            f"This checkout of Tenuto has no symbolic links ({os.path.join(_HERE, _name)} is a file): run `git config"
            " core.symlinks true && git checkout -- src/tenuto` in it (on Windows in developer mode)."
        )

if TYPE_CHECKING:
    from tenuto.client import AsyncClient, Client
    from tenuto.local import LocalRun, run_local
    from tenuto.searching import run_search
    from tenuto.workers.core_api import Operation, Run, init
    from tenuto.workers.errors import InvalidHyperparameters
    from tenuto.workers.record.recorder import data

__all__ = [
    "AsyncClient",
    "Client",
    "InvalidHyperparameters",
    "LocalRun",
    "Operation",
    "Run",
    "data",
    "init",
    "run_local",
    "run_search",
]

_CLIENT = frozenset({"AsyncClient", "Client"})
_LOCAL = frozenset({"LocalRun", "run_local"})
_CORE_API = frozenset({"Operation", "Run", "init"})


def __getattr__(name: str) -> object:
    """Imports the names that scripts use when they are first used. `import tenuto` itself stays light, because the command
    line does it, too."""
    if name in _CORE_API:
        from tenuto.workers import core_api

        return getattr(core_api, name)
    if name in _CLIENT:
        from tenuto import client

        return getattr(client, name)
    if name in _LOCAL:
        from tenuto import local

        return getattr(local, name)
    if name == "run_search":
        from tenuto.searching import run_search

        return run_search
    if name == "InvalidHyperparameters":
        from tenuto.workers.errors import InvalidHyperparameters

        return InvalidHyperparameters
    if name == "data":
        from tenuto.workers.record.recorder import data

        return data
    raise AttributeError(f"module 'tenuto' has no attribute {name!r}")
