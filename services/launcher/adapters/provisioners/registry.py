"""Adapters of provisioners by kind. Each is imported when a pool first needs it, so that its package may be absent."""

from __future__ import annotations

from pathlib import Path

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Provisioner, ProvisionerError


def open_provisioner(cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> Provisioner:
    """Provisioner of one pool. `secrets_directory`: where its keys and lists are. Raises ProvisionerError if there is no such
    kind, or its package is not installed."""
    kind = provisioning.provisioner
    try:
        if kind == "slurm":
            from tenuto.services.launcher.adapters.provisioners.slurm import SlurmProvisioner

            return SlurmProvisioner(cluster, pool, provisioning, secrets_directory)
        if kind == "ssh":
            from tenuto.services.launcher.adapters.provisioners.ssh import SshProvisioner

            return SshProvisioner(cluster, pool, provisioning, secrets_directory)
        if kind == "kubernetes":
            from tenuto.services.launcher.adapters.provisioners.kubernetes import KubernetesProvisioner

            return KubernetesProvisioner(cluster, pool, provisioning, secrets_directory)
        if kind == "aws":
            from tenuto.services.launcher.adapters.provisioners.aws import AwsProvisioner

            return AwsProvisioner(cluster, pool, provisioning, secrets_directory)
        if kind == "gcp":
            from tenuto.services.launcher.adapters.provisioners.gcp import GcpProvisioner

            return GcpProvisioner(cluster, pool, provisioning, secrets_directory)
    except ImportError as error:
        raise ProvisionerError(
            f"Provisioner {kind} needs a package that is not installed where the launcher runs ({error}): "
            f"install it there with `pip install 'tenuto[{kind}]'`.",
            "refused",
        ) from error
    raise ProvisionerError(f"Provisioner {kind} starts no nodes.", "refused")
