"""How the agent tells a worker process who it is: environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerEnvironment:
    agent_socket: str
    allocation_id: str
    token: str
    rank: int
    error_file: str
    """Where the sentence for the user goes when the worker fails. Empty: standard error only."""

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> WorkerEnvironment:
        """Raises KeyError with the variable's name."""
        environment = os.environ if environment is None else environment
        return cls(
            agent_socket=environment["TENUTO_AGENT_SOCKET"],
            allocation_id=environment["TENUTO_ALLOCATION_ID"],
            token=environment["TENUTO_TOKEN"],
            rank=int(environment["TENUTO_RANK"]),
            error_file=environment.get("TENUTO_ERROR_FILE", ""),
        )
