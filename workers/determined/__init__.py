"""Determined's Python names, for code that was written for it: `import determined as det` finds this package in a worker, if no
package of that name is installed (see `naming.py`). A name means what it meant there, or says what to do instead."""

from __future__ import annotations

from typing import Any

from tenuto.version import __version__
from tenuto.workers.determined.info import ClusterInfo, TrialInfo, get_cluster_info
from tenuto.workers.determined.naming import PUBLIC
from tenuto.workers.errors import InvalidHyperparameters
from tenuto.workers.harness.determined_names import UnknownName

InvalidHP = InvalidHyperparameters
LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
"""Determined's format of log lines."""
__all__ = ["LOG_FORMAT", "ClusterInfo", "InvalidHP", "TrialInfo", "__version__", "get_cluster_info"]


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        from importlib import import_module

        return import_module(PUBLIC[name])
    if name.startswith("__"):
        raise AttributeError(name)
    raise UnknownName(
        f"the module determined, which Tenuto stands in for, has no {name!r}; docs/from-determined.md lists what there is."
    )
