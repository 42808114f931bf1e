"""Jobs as slurmrestd is told of them. Pure."""

from __future__ import annotations

import re
from typing import Any

from tenuto.services.launcher.adapters.provisioners.slurm import commands
from tenuto.services.launcher.adapters.provisioners.slurm.controller import WARNING_SECONDS, JobSubmission
from tenuto.services.launcher.adapters.provisioners.slurm.settings import JobSettings, seconds_of

PLAIN_MAX = 38
"""Last version v0.0.N whose numbers are plain."""
PATH = "/usr/local/bin:/usr/bin:/bin"
"""Search path of a job's shell, as slurmrestd sets none."""


def body_of(wanted: JobSubmission, version: int) -> dict[str, Any]:
    plain, settings = version <= PLAIN_MAX, wanted.settings
    job: dict[str, Any] = {
        "name": wanted.name, "comment": wanted.comment, "current_working_directory": "/", "standard_input": "/dev/null",
        "standard_output": wanted.output, "nodes": "1", "tasks": 1, "requeue": False,
    }  # fmt: skip
    own = {
        "array": wanted.array, "partition": settings.partition, "account": settings.account, "qos": settings.qos,
        "reservation": settings.reservation, "constraints": settings.constraint,
    }  # fmt: skip
    job |= {name: value for name, value in own.items() if value}
    if settings.cpus_per_task:
        job["cpus_per_task"] = settings.cpus_per_task
    environment = {"PATH": PATH, **{name: value for name, value in commands.environment().items() if name == "LANG"}}
    if plain:
        # The signal before a job's end goes to its steps alone here, and not to its shell; the agent knows the end without it.
        job |= {"environment": environment, "open_mode": "append"}
        job |= {"gres": settings.gres} if settings.gres else {}
    else:
        job |= {"environment": [f"{name}={value}" for name, value in environment.items()], "open_mode": ["APPEND"]}
        job |= {"kill_warning_signal": "USR1", "kill_warning_flags": ["BATCH_JOB"], "kill_warning_delay": _set(WARNING_SECONDS)}
        if settings.gres:
            job["tres_per_node"] = ",".join(f"gres/{item}" for item in settings.gres.split(","))
    seconds = seconds_of(settings.time) if settings.time else None
    if seconds is not None:
        minutes = -(-int(seconds) // 60)
        job["time_limit"] = minutes if plain else _set(minutes)
    if settings.mem:
        megabytes = megabytes_of(settings.mem)
        job["memory_per_node"] = megabytes if plain else _set(megabytes)
    job |= _extra(settings, plain)
    return {"script": wanted.script, "job": job} if plain else {"script": wanted.script, "job": {**job, "script": wanted.script}}


def _extra(settings: JobSettings, plain: bool) -> dict[str, Any]:
    """Options that settings_of has let pass."""
    found: dict[str, Any] = {}
    for option in settings.extra:
        name, _, value = option.removeprefix("--").partition("=")
        if name == "exclusive":
            found |= {"exclusive": "exclusive"} if plain else {"shared": ["none"]}
        elif name == "nice":
            found["nice"] = int(value)
        else:
            found[name] = value
    return found


def _set(number: int) -> dict[str, Any]:
    return {"set": True, "number": number}


def megabytes_of(text: str) -> int:
    """MiB of an amount of memory in Slurm's notation, rounded up."""
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    assert match is not None
    shift = {"K": 0, "": 10, "M": 10, "G": 20, "T": 30}[match[2]]
    return -(-(int(match[1]) << shift) // 1024)
