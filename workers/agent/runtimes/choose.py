"""Selection of the agent's runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenuto.kernel.account import Account, NoAccount, confined_root, find_account
from tenuto.kernel.confinement import OF_CONTAINERS, can_confine
from tenuto.kernel.settings import Settings
from tenuto.kernel.storage.stores import stores_of
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.node import Node
from tenuto.workers.agent.runtimes.docker.description import Limits
from tenuto.workers.agent.runtimes.docker.mounts import read_allowed
from tenuto.workers.agent.runtimes.docker.runtime import DockerRuntime
from tenuto.workers.agent.runtimes.docker.ulimits import read_ulimits
from tenuto.workers.agent.runtimes.process.cgroups import ProcessLimits
from tenuto.workers.agent.runtimes.process.environment import WORKER_COMMAND
from tenuto.workers.agent.runtimes.process.inheriting import HANDED_DOWN, BadPattern, read_patterns
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.runtime import Runtime, RuntimeUnavailable
from tenuto.workers.agent.runtimes.several import ProcessesAndContainers
from tenuto.workers.agent.slots import find_slots


def make_runtime(
    settings: Settings,
    node: Node,
    shared: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
    slots: tuple[Slot, ...] | None = None,
) -> Runtime:
    """The runtime for these settings. `shared`: directory that all agents see; None: there is none. `environment`: of the
    agent, of which workers inherit a part; None: this process's. `command`: run instead of our own harness; then workers never
    start warm. Raises RuntimeUnavailable and NoSlots."""
    try:
        account = find_account(settings.worker_user) if settings.worker_user else None
        rights = _confined() if account is None and settings.worker_confined else account
        inherits = read_patterns(settings.worker_inherits)
    except (NoAccount, BadPattern) as error:
        raise RuntimeUnavailable(str(error)) from error
    slots = find_slots(settings.cpu_slots) if slots is None else slots
    base = os.environ if environment is None else environment
    processes = ProcessRuntime(
        node,
        shared,
        slots=slots,
        base=base,
        inherits=inherits,
        command=command or WORKER_COMMAND,
        account=rights,
        warm_environments_max=0 if command else settings.warm_environments_max,
        limits=ProcessLimits(settings.memory_bytes_per_slot, settings.cpus_per_slot, settings.cgroup_parent),
        limits_required=bool(settings.limits_required),
    )
    if not settings.docker_url:
        return processes
    return ProcessesAndContainers(processes, _containers(settings, node, slots, account, base))


def _confined() -> Account:
    if not can_confine():
        raise RuntimeUnavailable("TENUTO_WORKER_CONFINED needs an agent that is root, with root's rights: leave it out.")
    return confined_root()


def _containers(
    settings: Settings, node: Node, slots: tuple[Slot, ...], account: Account | None, base: Mapping[str, str]
) -> DockerRuntime:
    if account is None and os.geteuid() == 0 and not settings.docker_root:
        try:
            account = find_account(OF_CONTAINERS)
        except NoAccount as error:
            raise RuntimeUnavailable(f"{error} Or let containers run as root: TENUTO_DOCKER_ROOT=1.") from error
    return DockerRuntime(
        node,
        stores_of(settings.shared_directory, settings.stores_file),
        url=settings.docker_url,
        slots=slots,
        allowed=read_allowed(settings.docker_mounts),
        limits=Limits(
            settings.docker_memory_bytes_per_slot or settings.memory_bytes_per_slot,
            settings.docker_cpus_per_slot or settings.cpus_per_slot,
            settings.docker_shm_bytes,
            read_ulimits(settings.docker_ulimits),
            bool(settings.docker_read_only),
        ),
        credentials_file=settings.docker_credentials_file,
        network=settings.docker_network,
        gang_network=settings.docker_gang_network,
        account=account,
        base={name: value for name, value in base.items() if name in HANDED_DOWN},
        warm_containers_max=settings.docker_warm_containers_max,
    )
