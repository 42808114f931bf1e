"""Environment variables by which the agent identifies a worker process."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass

from tenuto.workers.launch.token import take_token


@dataclass(frozen=True)
class WorkerEnvironment:
    agent_address: str
    """Address of its agent, as gRPC names it."""
    allocation_id: str
    token: str
    rank: int
    error_file: str
    """File for the error sentence for the user. Empty: standard error only."""

    @classmethod
    def read(cls, environment: MutableMapping[str, str] | None = None) -> WorkerEnvironment:
        """Reads the variables, and removes the token from them. Raises KeyError with the variable's name."""
        environment = os.environ if environment is None else environment
        return cls(
            agent_address=environment["TENUTO_AGENT_ADDRESS"],
            allocation_id=environment["TENUTO_ALLOCATION_ID"],
            token=take_token(environment),
            rank=int(environment["TENUTO_RANK"]),
            error_file=environment.get("TENUTO_ERROR_FILE", ""),
        )
