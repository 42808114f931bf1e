"""Histories to simulate: arrivals drawn from a seed, and public cluster traces as CSV."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenuto.schemas.events.agent import AUXILIARY_TRIALS_MAX
from tenuto.services.scheduler.simulation.script import SimulationScript, TrialScript, joined, submitted

ARRIVALS = ("poisson", "bursty")
GANGS = ((1, 50), (2, 20), (4, 18), (8, 12))
"""(slots, weight): most jobs of published GPU traces are small, most of the time is used by the large (Hu et al., SC 2021)."""
BURST_JOBS = 20
SECONDS = 1_000_000
COLUMNS = {
    "user": ("user", "user_name", "owner"),
    "workspace": ("vc", "workspace", "group", "project", "queue"),
    "slots": ("gpu_num", "num_gpus", "gpus", "slots", "plan_gpu", "num_gpu"),
    "submitted": ("submit_time", "submitted", "arrival", "submit", "start_time"),
    "duration": ("duration", "run_time", "runtime", "seconds"),
    "start": ("start_time", "started"),
    "end": ("end_time", "ended", "finish_time"),
    "priority": ("priority",),
}
"""Names of columns in published traces (Helios, Philly, Alibaba PAI) and plain ones."""


class TraceError(ValueError):
    """The file cannot be read as a trace. The text is for the user."""


@dataclass(frozen=True)
class TraceJob:
    """One experiment: trials that arrive together."""

    arrives_us: int
    user: str
    slots: int
    work_us: int
    trials: int = 1
    workspace: str = "default"
    priority: int = 42
    expected_us: int | None = None


def generated(
    jobs: int,
    slots: int,
    seed: int,
    *,
    arrivals: str = "poisson",
    load: float = 1.0,
    mean_seconds: float = 3600.0,
    users: int = 5,
    auxiliary: float = 0.0,
) -> list[TraceJob]:
    """`load`: mean demand as a part of `slots`. Times are log-normal. Each user asks for half as much as the one before.
    `auxiliary`: part of the jobs that take no slots after all."""
    draw = random.Random(seed)
    largest = max(1, min(8, slots))
    gangs = [(size, weight) for size, weight in GANGS if size <= largest]
    trials_mean = 2.0
    mean_slots = sum(size * weight for size, weight in gangs) / sum(weight for _, weight in gangs)
    gap_us = trials_mean * mean_slots * mean_seconds / (load * slots) * SECONDS
    found, now_us = [], 0.0
    for number in range(jobs):
        if arrivals == "poisson":
            now_us += draw.expovariate(1 / gap_us)
        elif number % BURST_JOBS == 0:
            now_us += draw.expovariate(1 / (gap_us * BURST_JOBS))
        sigma = 1.0
        work = draw.lognormvariate(0, sigma) / 2.718281828459045 ** (sigma * sigma / 2) * mean_seconds * SECONDS
        user = draw.choices(range(users), [0.5**at for at in range(users)])[0]
        size = draw.choices([size for size, _ in gangs], [weight for _, weight in gangs])[0]
        if auxiliary and draw.random() < auxiliary:
            size = 0
        found.append(
            TraceJob(
                arrives_us=round(now_us),
                user=f"user-{user + 1}",
                slots=size,
                work_us=max(SECONDS, round(work)),
                trials=draw.choice((1, 1, 2, 4)),
                workspace=f"team-{user % 2 + 1}",
                priority=draw.choice((30, 42, 42, 60)),
            )
        )
    return found


def read_csv(lines: Iterable[str], *, jobs_max: int = 1_000_000) -> list[TraceJob]:
    """Raises TraceError. Jobs without slots or without duration are left out; times count from the first submission."""
    reader = csv.DictReader(lines)
    names = {name.strip().lower(): name for name in reader.fieldnames or ()}
    column = {what: next((names[name] for name in known if name in names), None) for what, known in COLUMNS.items()}
    missing = [what for what in ("slots", "submitted") if column[what] is None]
    if column["duration"] is None and (column["start"] is None or column["end"] is None):
        missing.append("duration")
    if missing:
        known = "; ".join(f"{what}: {', '.join(COLUMNS[what])}" for what in missing)
        raise TraceError(f"The trace has no column for {' and '.join(missing)}; give it one of these names: {known}.")
    found = sorted(_jobs(reader, column), key=lambda job: job.arrives_us)[:jobs_max]
    if not found:
        raise TraceError("The trace has no job with slots and a duration.")
    first_us = found[0].arrives_us
    return [TraceJob(**{**vars(job), "arrives_us": job.arrives_us - first_us}) for job in found]


def _jobs(rows: Iterable[dict[str, str]], column: dict[str, str | None]) -> Iterator[TraceJob]:
    for number, row in enumerate(rows, 2):

        def value(what: str, row: dict[str, str] = row) -> str:
            name = column[what]
            return (row.get(name) or "").strip() if name else ""

        try:
            slots = round(float(value("slots") or 0))
            if value("duration"):
                seconds = float(value("duration"))
            elif value("start") and value("end"):
                seconds = _time(value("end")) - _time(value("start"))
            else:
                continue
            if slots < 1 or seconds <= 0:
                continue
            priority = min(99, max(1, round(float(value("priority"))))) if value("priority") else 42
            yield TraceJob(
                arrives_us=round(_time(value("submitted")) * SECONDS),
                user=value("user") or "user",
                slots=slots,
                work_us=round(seconds * SECONDS),
                workspace=_name(value("workspace")) or "default",
                priority=priority,
            )
        except ValueError as error:
            raise TraceError(f"Line {number} of the trace cannot be read: {error}.") from error


def _time(text: str) -> float:
    """Seconds, or a date and time."""
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


def _name(text: str) -> str:
    return "".join(char if char.isalnum() or char in "_-" else "-" for char in text)[:63]


def script_of(
    jobs: Iterable[TraceJob],
    agents: int,
    slots: int,
    *,
    foretold: bool = True,
    elastic: int = 1,
    auxiliary_max: int = AUXILIARY_TRIALS_MAX,
) -> SimulationScript:
    """The jobs on a cluster of `agents` x `slots`. `foretold`: users say how long their trials run, as `expected_seconds`.
    `elastic`: trials may use up to so many times their slots. `auxiliary_max`: trials without slots on each agent at once."""
    names = [(f"agent-{number:04}", (f"rack={number // 4}",)) for number in range(agents)]
    script = SimulationScript(
        facts=[(0, joined(name, slots, labels=labels, auxiliary_max=auxiliary_max)) for name, labels in names]
    )
    for experiment_id, job in enumerate(jobs, 1):
        gang = {"min": job.slots, "max": min(job.slots * elastic, agents * slots)} if elastic > 1 and job.slots else job.slots
        resources: dict[str, Any] = {"slots_per_trial": gang, "priority": job.priority, "workspace": job.workspace}
        if foretold:
            guessed_us = job.work_us * 1.2 + 60 * SECONDS
            resources["expected_seconds"] = (guessed_us if job.expected_us is None else job.expected_us) / SECONDS
        script.facts.append((job.arrives_us, submitted(experiment_id, job.user, **resources)))
        script.trials += trials_of(experiment_id, job)
    return script


def trials_of(experiment_id: int, job: TraceJob) -> list[TrialScript]:
    return [
        TrialScript(f"{experiment_id}-{number}", experiment_id, number, job.arrives_us, job.work_us)
        for number in range(1, job.trials + 1)
    ]
