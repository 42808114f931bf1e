"""A node as Slurm is told of it, and as Slurm shows it: a job whose name is the node's id, or a task of an array, and whose
comment has all of its tags.

`squeue` is asked for lines of its own format: its JSON differs from version to version, and older ones leave out no other
user's jobs from it.
"""

from __future__ import annotations

import re
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
class SlurmJob:
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


@dataclass(frozen=True)
class Row:
    """Nodes that are submitted together. More than one: as an array, whose indexes count from the number of the first."""

    node_ids: tuple[str, ...]
    """Alike but for their numbers, in that order."""

    @property
    def stem(self) -> str:
        return self.node_ids[0].rpartition("-")[0]

    @property
    def first(self) -> int:
        return int(self.node_ids[0].rpartition("-")[2])

    @property
    def array(self) -> str:
        """Indexes in Slurm's notation; empty if it is a job of its own."""
        if len(self.node_ids) == 1:
            return ""
        parts: list[list[int]] = []
        for index in (int(node_id.rpartition("-")[2]) - self.first for node_id in self.node_ids):
            if parts and parts[-1][1] == index - 1:
                parts[-1][1] = index
            else:
                parts.append([index, index])
        return ",".join(f"{begin}-{end}" if begin != end else str(begin) for begin, end in parts)

    @property
    def name(self) -> str:
        """Name of its job."""
        return self.node_ids[0] if len(self.node_ids) == 1 else f"{self.node_ids[0]}..{self.node_ids[-1].rpartition('-')[2]}"


def rows(node_ids: Sequence[str], index_max: int) -> list[Row]:
    """Each node in one row, as few rows as arrays with indexes up to `index_max` allow."""
    found: list[Row] = []
    stems: dict[str, list[tuple[int, str]]] = {}
    for node_id in node_ids:
        stem, _, number = node_id.rpartition("-")
        if stem and re.fullmatch(r"0|[1-9]\d{0,11}", number):
            stems.setdefault(stem, []).append((int(number), node_id))
        else:
            found.append(Row((node_id,)))
    for numbered in stems.values():
        row: list[str] = []
        begin = 0
        for place, node_id in sorted(numbered):
            if row and place - begin > index_max:
                found.append(Row(tuple(row)))
                row = []
            begin = begin if row else place
            row.append(node_id)
        found.append(Row(tuple(row)))
    return found


def comment_of(cluster: str, pool: str, row: Row) -> str:
    """Comment of a job: cluster, pool and node id. For an array, the id is replaced by the prefix of its nodes' numbers and the
    number of the node with index 0."""
    node = (row.stem, str(row.first)) if row.array else (row.node_ids[0],)
    return "/".join((MARK, *(quote(part, safe="") for part in (cluster, pool, *node))))


def job_of(job_id: str, index: int | None, state: str, reason: str, machine: str, comment: str) -> SlurmJob | None:
    """`index`: in its array. None: it is no node."""
    tags = [unquote(tag) for tag in comment.split("/")]
    if tags[0] != MARK:
        return None
    if index is None and len(tags) == 4:
        return SlurmJob(job_id, state, reason, machine, tags[1], tags[2], tags[3])
    if index is not None and len(tags) == 5 and re.fullmatch(r"\d{1,12}", tags[4]):
        node_id = f"{tags[3]}-{int(tags[4]) + index}"
        return SlurmJob(f"{job_id}_{index}", state, reason, machine, tags[1], tags[2], node_id)
    return None


def read(lines: Sequence[str]) -> list[SlurmJob]:
    """Jobs among the lines of `squeue` that are nodes, of whatever cluster and pool."""
    found = []
    for line in lines:
        parts = line.split("|", 4)
        match = re.fullmatch(r"(\d{1,12})(?:_(\d{1,12}))?", parts[0])
        if match is not None and len(parts) == 5:
            job = job_of(match[1], int(match[2]) if match[2] else None, *parts[1:])
            found += [job] if job is not None else []
    return found


def script_of(row: Row, directory: str, settings: JobSettings) -> str:
    """Script of the job, without anything secret. `directory`: that of the nodes' directories."""
    given = {"stem": row.stem, "first": str(row.first)} if row.array else {"node": row.node_ids[0]}
    given |= {"directory": directory, "python": settings.python, "setup": settings.setup}
    lines = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given.items())
    return f"#!/bin/bash\n{lines}{files(__package__).joinpath('job.sh').read_text()}"


def environment_text(order: Order) -> str:
    """Contents of the file by which the job is told its environment."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in order.environment.items())
