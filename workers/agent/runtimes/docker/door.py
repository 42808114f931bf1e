"""The agent's socket, as containers see it."""

from __future__ import annotations

from tenuto.kernel.account import PASSING
from tenuto.workers.agent.runtimes.endpoint import UnixEndpoint


class ContainerSocket(UnixEndpoint):
    """The agent's socket in a directory of its own, which containers see: a socket that is mounted alone would be that of this
    agent only, and not of the next one."""

    for_containers = True

    def prepare(self) -> None:
        super().prepare()
        if self._account is not None:
            self._path.parent.chmod(PASSING)
