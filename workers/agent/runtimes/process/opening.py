"""Workers as processes of the node, by the agent's settings."""

from __future__ import annotations

from tenuto.kernel.account import Account, NoAccount, confined_root, find_account
from tenuto.kernel.confinement import can_confine
from tenuto.workers.agent.runtimes.opening import Opening
from tenuto.workers.agent.runtimes.process.cgroups import ProcessLimits
from tenuto.workers.agent.runtimes.process.environment import WORKER_COMMAND
from tenuto.workers.agent.runtimes.process.inheriting import OF_IMAGE, BadPattern, read_patterns
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.runtime import RuntimeUnavailable


def opened(asked: Opening, kind: type[ProcessRuntime] = ProcessRuntime) -> ProcessRuntime:
    """`kind`: a runtime that does some of it otherwise."""
    settings = asked.settings
    try:
        account = find_account(settings.worker_user) if settings.worker_user else None
        rights = _confined() if account is None and settings.worker_confined else account
        inherits = (*read_patterns(settings.worker_inherits), *(OF_IMAGE if settings.agent_image else ()))
    except (NoAccount, BadPattern) as error:
        raise RuntimeUnavailable(str(error)) from error
    return kind(
        asked.node,
        asked.shared,
        slots=asked.slots,
        base=asked.base,
        inherits=inherits,
        command=asked.command or WORKER_COMMAND,
        account=rights,
        warm_environments_max=0 if asked.command else settings.warm_environments_max,
        limits=ProcessLimits(settings.memory_bytes_per_slot, settings.cpus_per_slot, settings.cgroup_parent),
        limits_required=bool(settings.limits_required),
        image=settings.agent_image,
    )


def _confined() -> Account:
    if not can_confine():
        raise RuntimeUnavailable("TENUTO_WORKER_CONFINED needs an agent that is root, with root's rights: leave it out.")
    return confined_root()
