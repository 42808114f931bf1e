"""sim cluster: generated, public and recorded histories under any policy, with the scheduler's own core."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import Json
from tenuto.cli.errors import CliError

if TYPE_CHECKING:
    from tenuto.schemas.envelope import Event
    from tenuto.services.scheduler.simulation.cluster import SimulationOutcome
    from tenuto.services.scheduler.simulation.script import SimulationScript

POLICIES = ("priority", "fair_share", "fifo")
HOUR_US = 3_600_000_000


def simulate(
    context: typer.Context,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="priority, fair_share or fifo; default: all.")
    ] = None,
    arrivals: Annotated[str, typer.Option(help="Of generated jobs: poisson or bursty.")] = "poisson",
    jobs: Annotated[int, typer.Option(help="How many are generated, or read from a trace.", min=1)] = 300,
    load: Annotated[float, typer.Option(help="Demand of generated jobs as a part of the slots.", min=0.01)] = 0.9,
    trace: Annotated[Path | None, typer.Option(help="A cluster trace (CSV) instead of generated jobs.")] = None,
    recorded: Annotated[bool, typer.Option(help="What if? The running cluster's own history, from its event log.")] = False,
    log: Annotated[
        Path | None,
        typer.Option(help="The same from a file: one event a line, as `tenuto event tail --from 1 --no-follow --json`."),
    ] = None,
    agents: Annotated[int, typer.Option(min=1, max=20_000)] = 8,
    slots: Annotated[int, typer.Option(help="Of each agent.", min=1, max=64)] = 8,
    elastic: Annotated[int, typer.Option(help="Trials may grow to so many times their slots.", min=1, max=64)] = 1,
    auxiliary: Annotated[float, typer.Option(help="Part of the generated jobs that take no slots.", min=0, max=1)] = 0.0,
    seed: int = 1,
    failures_hours: Annotated[float, typer.Option(help="Mean time between failures of an agent; 0: none.", min=0)] = 0.0,
    picture: Annotated[Path | None, typer.Option(help="Draw slots by time here (PNG or SVG), one picture a policy.")] = None,
    provision: Annotated[
        Path | None,
        typer.Option(
            help="Nodes that come and go, as in this file (YAML: node_types, nodes_max, idle_seconds, ...), beside a threshold"
            " and nodes that are always kept. In place of --agents and --slots."
        ),
    ] = None,
    boot_seconds: Annotated[
        float, typer.Option(help="With --provision: from the order until a node's agent is up.", min=0)
    ] = 180.0,
    json: Json = False,
) -> None:
    """Run a cluster under a virtual clock and compare policies: utilisation, waiting, fairness, preempted work."""
    from tenuto.cli.picture import draw, marks, recorded_events
    from tenuto.services.scheduler.simulation.cluster import Costs, SimulatedCluster
    from tenuto.services.scheduler.simulation.outages import outages
    from tenuto.services.scheduler.simulation.script import segments
    from tenuto.services.scheduler.simulation.what_if import measured_costs

    chosen = policy or list(POLICIES)
    unknown = [name for name in chosen if name not in POLICIES]
    if unknown:
        raise CliError(f"There is no policy {unknown[0]}; take one of {', '.join(POLICIES)}.")
    events = recorded_events(context, log) if recorded or log is not None else []
    if provision is not None:
        from tenuto.cli.sim_provision import compare_ways, read_provisioning

        settings = read_provisioning(provision)
        first = settings.node_types[0]
        script = _script(events, trace, arrivals, jobs, load, settings.nodes_max, first.slots, seed, elastic, auxiliary)
        compare_ways(script, policy or ["priority"], settings, boot_seconds, seed, json)
        return
    if events and picture:
        recorded_data = [(event.time_us, event.data) for event in events]
        drawn = _named(picture, "recorded")
        draw(segments(recorded_data), drawn, "as it was recorded", marks(events), outages(recorded_data))
    outcomes = []
    for name in chosen:
        script = _script(events, trace, arrivals, jobs, load, agents, slots, seed, elastic, auxiliary)
        costs = measured_costs(script, Costs(failures_us=round(failures_hours * HOUR_US)))
        cluster = SimulatedCluster(script, name, costs, seed=seed, keep_history=picture is not None)
        outcome = cluster.run()
        outcomes.append(outcome)
        if picture:
            target = picture if len(chosen) == 1 and not events else _named(picture, name)
            draw(segments(outcome.history, outcome.end_us), target, f"policy {name}")
    _report(outcomes, json)


def _named(picture: Path, name: str) -> Path:
    return picture.with_name(f"{picture.stem}-{name}{picture.suffix or '.png'}")


def _script(
    events: list[Event], trace: Path | None, arrivals: str, jobs: int, load: float, agents: int, slots: int, seed: int,
    elastic: int, auxiliary: float,
) -> SimulationScript:  # fmt: skip
    from tenuto.services.scheduler.simulation import script, traces

    if events:
        found = script.recorded(events)
        if not found.trials:
            raise CliError("The log has no trial that ran to its end: there is nothing to run again.")
        return found
    if trace is not None:
        try:
            with trace.open(newline="") as lines:
                return traces.script_of(traces.read_csv(lines, jobs_max=jobs), agents, slots, elastic=elastic)
        except OSError as error:
            raise CliError(f"Cannot read {trace}: {error.strerror}.") from error
        except traces.TraceError as error:
            raise CliError(f"{trace}: {error}") from error
    if arrivals not in traces.ARRIVALS:
        raise CliError(f"Jobs arrive {' or '.join(traces.ARRIVALS)}, not {arrivals!r}.")
    drawn = traces.generated(jobs, agents * slots, seed, arrivals=arrivals, load=load, auxiliary=auxiliary)
    return traces.script_of(drawn, agents, slots, elastic=elastic)


def _report(outcomes: list[SimulationOutcome], json: bool) -> None:
    from tenuto.cli.output import print_json, show_rows

    rows = [_row(outcome) for outcome in outcomes]
    if json:
        print_json(rows)
        return
    cells = [
        (
            row["policy"],
            f"{row['utilisation']:.1%}",
            f"{row['utilisation_bound']:.1%}",
            f"{row['busy']:.1%}",
            _time(row["wait_mean_seconds"]),
            _time(row["wait_p95_seconds"]),
            f"{row['jain']:.3f}",
            row["preemptions"],
            row["resizes"],
            f"{row['lost_part']:.2%}",
            _time(row["makespan_seconds"]),
            row["unfinished"],
        )
        for row in rows
    ]
    heads = (
        "policy",
        ">used",
        ">bound",
        ">busy",
        ">wait",
        ">wait p95",
        ">fairness",
        ">preempted",
        ">resized",
        ">lost",
        ">took",
        ">unfinished",
    )
    show_rows(heads, cells, "Nothing was simulated.")


def _row(outcome: SimulationOutcome) -> dict[str, Any]:
    waits = sorted(outcome.waits_us) or [0]
    return {
        "policy": outcome.policy,
        "utilisation": outcome.utilisation,
        "utilisation_bound": outcome.bound,
        "busy": outcome.busy,
        "wait_mean_seconds": sum(waits) / len(waits) / 1e6,
        "wait_p95_seconds": waits[int(len(waits) * 0.95)] / 1e6,
        "jain": outcome.jain,
        "satisfied": outcome.satisfied,
        "preemptions": outcome.preemptions,
        "resizes": outcome.resizes,
        "lost_part": outcome.lost / outcome.offered if outcome.offered else 0.0,
        "makespan_seconds": (outcome.end_us - outcome.start_us) / 1e6,
        "trials": len(outcome.waits_us),
        "unfinished": outcome.unfinished,
        "events": outcome.events,
    }


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
