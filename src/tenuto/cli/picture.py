"""Picture of the use of slots over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.errors import CliError
from tenuto.cli.say import say

if TYPE_CHECKING:
    from tenuto.schemas.envelope import Event
    from tenuto.services.scheduler.simulation.outages import SlotOutage
    from tenuto.services.scheduler.simulation.script import Segment

PICTURE_SLOTS_MAX = 1_024
"""More rows than a picture can show."""
LEGEND_MAX = 12
"""Experiments named beside a picture."""
LABEL_LEVELS = 3
HOUR_US = 3_600_000_000


def picture(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A PNG or SVG file.")],
    log: Annotated[Path | None, typer.Option(help="From a file of events, one a line, not from the cluster.")] = None,
    after: Annotated[int, typer.Option(help="Only events behind this position of the log.", min=0)] = 0,
) -> None:
    """Draw from the event log which experiment used which slot when; preemptions, slots out of service, and what users changed
    (policies, shares, priorities, ...) are marked."""
    from tenuto.services.scheduler.simulation.outages import outages
    from tenuto.services.scheduler.simulation.script import segments

    every = recorded_events(context, log)
    events = [event for event in every if event.position > after]
    found = segments((event.time_us, event.data) for event in events)
    out = outages((event.time_us, event.data) for event in every)
    draw(found, path, "slots by time, from the event log", marks(events), out)
    used = {(item.agent_id, item.slot_id) for item in found}
    say(f"{path}: {len(used)} slots, {len({item.allocation_id for item in found})} allocations.")


def recorded_events(context: typer.Context, log: Path | None) -> list[Event]:
    """All events of the running cluster, or of a file. Raises CliError."""
    from tenuto.cli.common import client
    from tenuto.schemas.envelope import decode_event

    try:
        lines = log.read_bytes().splitlines() if log is not None else list(client(context).event_bodies())
        events = [decode_event(line) for line in lines if line.strip()]
    except OSError as error:
        raise CliError(f"Cannot read {log}: {error.strerror}.") from error
    except ValueError as error:
        raise CliError(f"{log} is not a log of events, one JSON object a line: {error}.") from error
    if not events:
        raise CliError("The log is empty: there is nothing in it to show.")
    return events


def marks(events: list[Event]) -> dict[str, list[tuple[int, str]]]:
    """(time in us, what) of `told`: allocations that were told to leave, by their ids; and `changed`: what users changed."""
    told: list[tuple[int, str]] = []
    changed: list[tuple[int, str]] = []
    for event in events:
        data: Any = event.data
        if event.type in ("AllocationPreempted", "AllocationResized"):
            told.append((event.time_us, data.allocation_id))
        else:
            changed += [(event.time_us, text) for text in _changed(event.type, data)]
    return {"told": told, "changed": changed}


def _changed(kind: str, data: Any) -> list[str]:
    """A user's change of priorities, policies or slots, in a few words."""
    if kind == "PoolPolicyChanged":
        half_life = f", half-life {data.usage_half_life_hours:g} h" if data.usage_half_life_hours else ""
        return [f"pool {data.pool}: {data.policy}{half_life}{', preempts' if data.preempt else ''}"]
    if kind == "ShareChanged":
        quota = f", at most {data.max_slots} slots" if data.max_slots is not None else ""
        return [f"{data.owner} {data.name}: weight {data.weight:g}{quota}"]
    if kind == "ExperimentPriorityChanged":
        return [f"exp {data.experiment_id}: priority {data.priority}"]
    if kind == "ExperimentWeightChanged":
        return [f"exp {data.experiment_id}: weight {data.weight:g}"]
    if kind == "ExperimentSlotLimitChanged":
        return [f"exp {data.experiment_id}: {'no limit' if data.max_slots is None else f'at most {data.max_slots} slots'}"]
    if kind == "ExperimentPoolChanged":
        return [f"exp {data.experiment_id}: pool {data.pool}"]
    return []


def draw(
    found: list[Segment],
    path: Path,
    title: str,
    marked: dict[str, list[tuple[int, str]]] | None = None,
    out: Sequence[SlotOutage] = (),
) -> None:
    """A row a slot, a colour an experiment. A dark edge: the trial was told to save and leave. Hatched: the slot was out of
    service. Raises CliError."""
    from tenuto.kernel.optional import NotInstalled, needed

    try:
        matplotlib = needed("matplotlib")
    except NotInstalled as error:
        raise CliError(f"A picture needs a package: {error}.") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    if not found:
        raise CliError("No slot was ever used: there is nothing to draw.")
    start_us, end_us = min(item.start_us for item in found), max(item.end_us for item in found)
    out = [item for item in out if item.end_us > start_us]
    slots = {(item.agent_id, item.slot_id) for item in found} | {(item.agent_id, item.slot_id) for item in out}
    rows = {key: at for at, key in enumerate(sorted(slots)[:PICTURE_SLOTS_MAX])}
    unit, scale = ("hours", 3.6e9) if end_us - start_us > 2 * HOUR_US else ("seconds", 1e6)
    colours = pyplot.get_cmap("tab20")
    figure, axes = pyplot.subplots(figsize=(12, min(20, 1.5 + (0.3 if len(rows) <= 16 else 0.12) * len(rows))))
    for experiment in sorted({item.experiment_id for item in found}):
        own = [item for item in found if item.experiment_id == experiment and (item.agent_id, item.slot_id) in rows]
        axes.barh(
            [rows[item.agent_id, item.slot_id] for item in own],
            [(item.end_us - item.start_us) / scale for item in own],
            left=[(item.start_us - start_us) / scale for item in own],
            height=0.9,
            color=colours(experiment % 20),
            edgecolor="white",
            linewidth=0.2,
            label=f"experiment {experiment}",
        )
    _hatch(axes, out, rows, start_us, scale)
    _mark(axes, marked or {}, [item for item in found if (item.agent_id, item.slot_id) in rows], rows, start_us, scale)
    if len(rows) <= 32:
        axes.set_yticks(list(rows.values()), [f"{agent}/{slot}" for agent, slot in rows], fontsize=7)
    if len({item.experiment_id for item in found}) <= LEGEND_MAX:
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set(xlabel=unit, ylabel="slot", title=title)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise CliError(f"Cannot draw {path}: {error}.") from error
    finally:
        pyplot.close(figure)


def _hatch(axes: Any, out: Sequence[SlotOutage], rows: dict[tuple[str, int], int], start_us: int, scale: float) -> None:
    for why, hatch, name in (("closed", "////", "out of service"), ("gone", "....", "agent gone")):
        shown = [item for item in out if item.why == why and (item.agent_id, item.slot_id) in rows]
        if shown:
            axes.barh(
                [rows[item.agent_id, item.slot_id] for item in shown],
                [(item.end_us - max(item.start_us, start_us)) / scale for item in shown],
                left=[(max(item.start_us, start_us) - start_us) / scale for item in shown],
                height=0.9,
                facecolor="none",
                edgecolor="grey",
                hatch=hatch,
                linewidth=0.0,
                label=name,
            )


def _mark(
    axes: Any,
    marked: dict[str, list[tuple[int, str]]],
    found: list[Segment],
    rows: dict[tuple[str, int], int],
    start_us: int,
    scale: float,
) -> None:
    where: dict[str, list[int]] = {}
    for item in found:
        where.setdefault(item.allocation_id, []).append(rows[item.agent_id, item.slot_id])
    for time_us, allocation_id in marked.get("told", ()):
        for row in where.get(allocation_id, ()):
            axes.plot([(time_us - start_us) / scale] * 2, [row - 0.45, row + 0.45], color="black", linewidth=1.2)
    for number, (time_us, text) in enumerate(marked.get("changed", ())):
        at = (time_us - start_us) / scale
        axes.axvline(at, color="grey", linewidth=0.8, linestyle="--")
        height = len(rows) - 0.4 + 0.45 * (number % LABEL_LEVELS)  # beside each other, not over each other
        axes.text(at, height, f" {text}", fontsize=7, color="dimgrey", va="bottom")
