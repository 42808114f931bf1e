"""`tenuto pool check` for jobs of Slurm: what is there for nodes of a pool, and what is missing. Nothing is submitted.

The job of each type of nodes is shown to Slurm as `sbatch --test-only`, which judges partition, account, QoS, resources and
rights. What that lets pass (a wall time beyond the partition's limit waits for ever) is looked at here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tenuto.kernel.settings import Settings
from tenuto.schemas.provisioning import NodeType
from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Finding, ProvisionerError
from tenuto.services.launcher.adapters.provisioners.slurm import commands, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.by_commands import options_of
from tenuto.services.launcher.adapters.provisioners.slurm.by_rest import Rest, number_of
from tenuto.services.launcher.adapters.provisioners.slurm.controller import JobSubmission
from tenuto.services.launcher.adapters.provisioners.slurm.node_directories import NodeDirectories
from tenuto.services.launcher.adapters.provisioners.slurm.settings import JobSettings, seconds_of

Kinds = Sequence[tuple[NodeType, JobSettings]]
PARTITIONS = "%P|%a|%l|%L|%D|%G"
LEAVE_SECONDS = next(float(str(item.default)) for item in fields(Settings) if item.name == "leave_closed_seconds")
"""Time before its end from which an agent begins nothing new, where no setting of the agent's says otherwise."""


async def findings(cluster: str, pool: str, kinds: Kinds, rest: Rest | None = None) -> list[Finding]:
    """`rest`: None if Slurm's commands are asked."""
    found = []
    try:
        if rest is not None:
            found.append(Finding(f"slurmrestd: v0.0.{await rest.version()} of its interface"))
            await rest.jobs()  # which finds a token that is not taken
            partitions = [_row(item) for item in await rest.partitions()]
        else:
            version = commands.succeeded(await commands.run("sbatch", "--version"), "say its version")
            found.append(Finding(f"sbatch: {visible(version[0][:50]) if version else 'of an unknown version'}"))
            said = await commands.run("sinfo", "--noheader", f"--format={PARTITIONS}")
            lines = commands.succeeded(said, "show its partitions")
            partitions = [parts for line in lines if len(parts := line.split("|")) == 6]
    except ProvisionerError as error:
        return [*found, Finding("Slurm", str(error))]
    found.append(Finding(f"Slurm's controller answers: {len({parts[0] for parts in partitions})} partitions"))
    for node_type, settings in kinds:
        found += _partitions(partitions, settings)
        found += _gres(partitions, node_type, settings)
        if rest is None:
            found.append(await _test(cluster, pool, node_type, settings))
        found += _programs(settings)
    found.append(await _directory(cluster, pool, kinds[0][1]))
    return list(dict.fromkeys(found))


def _row(item: Mapping[str, Any]) -> list[str]:
    """A partition of slurmrestd as `sinfo` has it. Later versions than v0.0.38 nest what earlier ones did not."""

    def inner(*names: str) -> Any:
        value: Any = item
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def minutes(value: Any) -> str:
        number = number_of(value)
        return "infinite" if number is None else str(number)

    states = inner("partition", "state") or inner("state") or "up"
    state = str(states[0] if isinstance(states, list) and states else states).lower()
    flags = inner("flags")
    default = isinstance(flags, list) and "default" in [str(flag).lower() for flag in flags]
    most = inner("max_time_limit") if "max_time_limit" in item else inner("maximums", "time")
    usual = inner("default_time_limit") if "default_time_limit" in item else inner("defaults", "time")
    machines = number_of(inner("total_nodes") if "total_nodes" in item else inner("nodes", "total")) or 0
    tres = str((inner("tres", "configured") if isinstance(inner("tres"), Mapping) else inner("tres")) or "")
    gres = [part.removeprefix("gres/").partition("=")[0] for part in tres.split(",") if part.startswith("gres/")]
    name = str(inner("name") or "") + ("*" if default else "")
    return [name, state, minutes(most), minutes(usual) if number_of(usual) else "n/a", str(machines), ",".join(gres)]


def _chosen(partitions: Sequence[list[str]], settings: JobSettings) -> list[list[str]]:
    names = settings.partition.split(",") if settings.partition else []
    return [parts for parts in partitions if (parts[0].rstrip("*") in names if names else parts[0].endswith("*"))]


def _partitions(partitions: Sequence[list[str]], settings: JobSettings) -> list[Finding]:
    found = []
    for name in settings.partition.split(",") if settings.partition else [""]:
        what = f"partition {name}" if name else "default partition"
        rows = [row for row in partitions if (row[0].rstrip("*") == name if name else row[0].endswith("*"))]
        if not rows:
            there = ", ".join(sorted({row[0].rstrip("*") for row in partitions})) or "none"
            found.append(Finding(what, f"There is no {what}: set partition to one of {visible(there[:300])}."))
        elif all(row[1] != "up" for row in rows):
            found.append(Finding(what, f"It is {visible(rows[0][1])}: its jobs wait until it is up."))
        else:
            found.append(Finding(f"{what}: up, {sum(int(row[4]) for row in rows if row[4].isdecimal())} machines"))
            found.append(_time(what, rows[0][2], rows[0][3], settings))
    return found


def _time(what: str, most: str, default: str, settings: JobSettings) -> Finding:
    limit = seconds_of(most) or float("inf")
    given = settings.time or (default if seconds_of(default) else most)
    seconds = seconds_of(given) or float("inf")
    name = f"wall time {given}" + ("" if settings.time else f", that of the {what}")
    if seconds > limit:
        return Finding(name, f"The {what} allows {most} at most, so such jobs would wait for ever: set time to that or less.")
    if seconds <= LEAVE_SECONDS:
        return Finding(
            name,
            f"Agents begin nothing in their last {LEAVE_SECONDS:.0f} s, so they would never begin anything: set time to more, or"
            " TENUTO_LEAVE_CLOSED_SECONDS to less in the file of the setting setup.",
        )
    if seconds == float("inf"):
        return Finding(f"{name}: without limit")
    return Finding(name)


def _gres(partitions: Sequence[list[str]], node_type: NodeType, settings: JobSettings) -> list[Finding]:
    found = []
    rows = _chosen(partitions, settings)
    offered = {item.split(":")[0].split("(")[0] for row in rows for item in row[5].split(",")} - {"", "null"}
    for item in settings.gres.split(",") if settings.gres else []:
        parts = item.split(":")
        what = f"resource {item}"
        if rows and parts[0] not in offered:
            there = ", ".join(sorted(offered)) or "none"
            found.append(
                Finding(what, f"No machine of the partition has {parts[0]}: set gres to what there is ({visible(there)}).")
            )
            continue
        found.append(Finding(what))
        count = parts[-1] if parts[-1].isdecimal() else "1"
        if parts[0] == "gpu" and node_type.device != "cpu" and int(count) != node_type.slots:
            problem = f"It gives {count} GPUs to an agent with {node_type.slots} slots: set one of them to the other."
            found.append(Finding(f"slots of type {node_type.name}", problem))
    return found


async def _test(cluster: str, pool: str, node_type: NodeType, settings: JobSettings) -> Finding:
    what = f"`sbatch --test-only` for type {node_type.name}"
    row = jobs.Row((f"{pool}-check",))
    options = options_of(JobSubmission(row.name, jobs.comment_of(cluster, pool, row), "/dev/null", "", settings))
    try:
        said = await commands.run("sbatch", "--test-only", *options, text="#!/bin/bash\n")
    except ProvisionerError as error:
        return Finding(what, str(error))
    if said.code != 0:
        return Finding(what, f"Slurm would not take such a job: {said.words}.")
    return Finding(f"{what}: {said.words}")


def _programs(settings: JobSettings) -> list[Finding]:
    """The launcher's machine is no node, so what is missing here need not be missing there."""
    named = [item for item in (settings.python, settings.setup) if item.startswith("/") and not Path(item).exists()]
    return [Finding(f"{item}: not seen where the launcher runs; the first node will tell whether it is there") for item in named]


async def _directory(cluster: str, pool: str, settings: JobSettings) -> Finding:
    what = f"directory {settings.directory}"
    try:
        async with asyncio.timeout(commands.COMMAND_SECONDS_MAX):
            await asyncio.to_thread(NodeDirectories(settings.directory, cluster, pool).try_to_write)
    except TimeoutError:
        return Finding(what, "It does not answer: its file system may be down.")
    except OSError as error:
        return Finding(what, f"The launcher cannot write there: {error.strerror or error}. Make it, or set another directory.")
    return Finding(f"{what}: writable here; that the nodes see it shows with the first of them")
