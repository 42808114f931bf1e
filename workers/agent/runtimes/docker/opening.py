"""Workers in containers of a Docker daemon, by the agent's settings."""

from __future__ import annotations

import os

from tenuto.kernel.account import Account, NoAccount, find_account
from tenuto.kernel.confinement import OF_CONTAINERS
from tenuto.kernel.settings import Settings
from tenuto.kernel.storage.stores import stores_of
from tenuto.workers.agent.runtimes.docker.description import ContainerLimits
from tenuto.workers.agent.runtimes.docker.mounts import read_allowed
from tenuto.workers.agent.runtimes.docker.runtime import DockerRuntime
from tenuto.workers.agent.runtimes.docker.ulimits import read_ulimits
from tenuto.workers.agent.runtimes.opening import Opening
from tenuto.workers.agent.runtimes.process.inheriting import HANDED_DOWN
from tenuto.workers.agent.runtimes.runtime import RuntimeUnavailable


def opened(asked: Opening) -> DockerRuntime | None:
    settings = asked.settings
    if not settings.docker_url:
        return None
    return DockerRuntime(
        asked.node,
        stores_of(settings.shared_directory, settings.stores_file),
        url=settings.docker_url,
        slots=asked.slots,
        allowed=read_allowed(settings.docker_mounts),
        limits=ContainerLimits(
            settings.docker_memory_bytes_per_slot or settings.memory_bytes_per_slot,
            settings.docker_cpus_per_slot or settings.cpus_per_slot,
            settings.docker_shm_bytes,
            read_ulimits(settings.docker_ulimits),
            bool(settings.docker_read_only),
        ),
        credentials_file=settings.docker_credentials_file,
        image_ahead=settings.docker_pull_image,
        network=settings.docker_network,
        gang_network=settings.docker_gang_network,
        account=_account(settings),
        base={name: value for name, value in asked.base.items() if name in HANDED_DOWN},
        warm_containers_max=settings.docker_warm_containers_max,
    )


def _account(settings: Settings) -> Account | None:
    try:
        account = find_account(settings.worker_user) if settings.worker_user else None
    except NoAccount as error:
        raise RuntimeUnavailable(str(error)) from error
    if account is None and os.geteuid() == 0 and not settings.docker_root:
        try:
            return find_account(OF_CONTAINERS)
        except NoAccount as error:
            raise RuntimeUnavailable(f"{error} Or let containers run as root: TENUTO_DOCKER_ROOT=1.") from error
    return account
