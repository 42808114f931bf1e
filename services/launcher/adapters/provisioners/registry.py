"""Adapters of provisioners by kind. Each is imported when a pool first needs it, so that its package may be absent."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

from tenuto.schemas.provisioning import ProvisionerKind, Provisioning
from tenuto.services.launcher.adapters.provisioners import Provisioner, ProvisionerError

_ROOM = "tenuto.services.launcher.adapters.provisioners"


class _Adapter(NamedTuple):
    module: str
    kind: str
    extra: str
    """Extra that brings its package. Empty: it needs none."""


_ADAPTERS: dict[ProvisionerKind, _Adapter] = {
    "slurm": _Adapter("slurm", "SlurmProvisioner", ""),
    "ssh": _Adapter("ssh", "SshProvisioner", "ssh"),
    "kubernetes": _Adapter("kubernetes", "KubernetesProvisioner", "kubernetes"),
}


def open_provisioner(cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> Provisioner:
    """Provisioner of one pool. Raises ProvisionerError if there is no such kind, or its package is not installed."""
    adapter = _ADAPTERS.get(provisioning.provisioner)
    if adapter is None:
        raise ProvisionerError(f"Provisioner {provisioning.provisioner} starts no nodes.", "refused")
    try:
        module = import_module(f"{_ROOM}.{adapter.module}")
    except ImportError as error:
        raise ProvisionerError(_missing(provisioning.provisioner, adapter, error), "refused") from error
    make = cast(Callable[[str, str, Provisioning, Path | None], Provisioner], getattr(module, adapter.kind))
    return make(cluster, pool, provisioning, secrets_directory)


def _missing(kind: str, adapter: _Adapter, error: ImportError) -> str:
    if not adapter.extra:
        return f"Provisioner {kind} cannot be used here: {error}."
    return (
        f"Provisioner {kind} needs a package that is not installed where the launcher runs ({error}): "
        f"install it there with `pip install 'tenuto[{adapter.extra}]'`."
    )
