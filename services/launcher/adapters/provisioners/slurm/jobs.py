"""A node as Slurm is told of it, and as Slurm shows it: a job whose name is the node's id, and whose comment has all of its tags.

`squeue` is asked for lines of its own format: its JSON differs from version to version, and older ones leave out no other
user's jobs from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import quote, unquote

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Order, Phase, RealNode
from tenuto.services.launcher.adapters.provisioners.slurm.settings import JobSettings

MARK = "tenuto"
FORMAT = "%i|%T|%r|%N|%k"
"""Id, state, reason, machines, comment; the comment last, as nothing else may contain the separator."""
DETAIL_CHARACTERS_MAX = 300
WARNING_SECONDS = 120
"""Time before a job's end at which Slurm warns its agent, too, should its time limit have been changed meanwhile."""
_PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_ENDED = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
        "TIMEOUT",
    }
)  # fmt: skip
_REASONS = {
    "Resources": "it waits for free nodes",
    "Priority": "jobs of higher priority wait before it",
    "None": "",
    "NonZeroExitCode": "",  # the agent's last words say more
}


@dataclass(frozen=True)
class Job:
    id: str
    state: str
    reason: str
    machine: str
    cluster: str
    pool: str
    node_id: str

    @property
    def phase(self) -> Phase:
        """running: also in states that this version does not know, as it may still cost something."""
        return "pending" if self.state in _PENDING else "ended" if self.state in _ENDED else "running"

    def node(self, last_words: str = "") -> RealNode:
        """`last_words`: the end of what an agent that failed has printed."""
        state = self.state.lower().replace("_", " ")
        reason = _REASONS.get(self.reason, self.reason)
        if self.phase == "running":
            detail = f"on {self.machine}" if self.state == "RUNNING" and self.machine else state
        else:
            detail = ": ".join(item for item in (state, reason, last_words) if item)
        return RealNode(self.node_id, self.id, self.phase, visible(detail)[:DETAIL_CHARACTERS_MAX])


def comment_of(cluster: str, pool: str, node_id: str) -> str:
    return "/".join((MARK, *(quote(part, safe="") for part in (cluster, pool, node_id))))


def read(lines: Sequence[str]) -> list[Job]:
    """Jobs among the lines of `squeue` that are nodes, of whatever cluster and pool."""
    found = []
    for line in lines:
        parts = line.split("|", 4)
        tags = parts[4].split("/") if len(parts) == 5 else []
        if len(tags) == 4 and tags[0] == MARK and parts[0].isdecimal():
            cluster, pool, node_id = (unquote(tag) for tag in tags[1:])
            found.append(Job(parts[0], parts[1], parts[2], parts[3], cluster, pool, node_id))
    return found


def options_of(cluster: str, pool: str, node_id: str, place: str, settings: JobSettings) -> list[str]:
    """Options of sbatch. A job is started once: a second run of it would find neither a token nor its name free. None of them is
    secret."""
    return [
        *settings.options(),
        f"--job-name={node_id}",
        f"--comment={comment_of(cluster, pool, node_id)}",
        f"--output={place}/%j.log",
        "--open-mode=append",
        "--input=/dev/null",
        "--nodes=1",
        "--ntasks=1",
        "--no-requeue",
        f"--signal=B:USR1@{WARNING_SECONDS}",
        "--export=ALL",  # the few variables that the commands are started with
        "--chdir=/",
    ]


def script_of(node_id: str, environment_file: str, settings: JobSettings) -> str:
    """Script of the job, without anything secret."""
    given = {"node": node_id, "environment": environment_file, "python": settings.python, "setup": settings.setup}
    lines = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given.items())
    return f"#!/bin/bash\n{lines}{files(__package__).joinpath('job.sh').read_text()}"


def environment_text(order: Order) -> str:
    """Contents of the file by which the job is told its environment."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in order.environment.items())
