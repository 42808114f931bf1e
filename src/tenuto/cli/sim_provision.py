"""sim cluster --provision: what nodes that come and go cost, and how long trials wait for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.cli.errors import CliError

if TYPE_CHECKING:
    from tenuto.cli.sim_nodes import Bill
    from tenuto.schemas.provisioning import Provisioning
    from tenuto.services.scheduler.simulation.script import SimulationScript

POLL_SECONDS = 30.0
"""Simulated time between two polls of the provider."""
WAYS = ("provisioned", "threshold", "static")


def read_provisioning(file: Path) -> Provisioning:
    """Raises CliError."""
    from pydantic import ValidationError

    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.reading import load_yaml
    from tenuto.schemas.provisioning import STATIC, Provisioning

    try:
        document = load_yaml(file.read_bytes())
    except OSError as error:
        raise CliError(f"Cannot read {file}: {error.strerror}.") from error
    except ConfigError as error:
        raise CliError(f"{file} is refused: {error}") from error
    if not isinstance(document, dict):
        raise CliError(f"{file} must be a mapping with the settings of a pool's nodes, such as `nodes_max: 10`.")
    # Where the nodes come from makes no difference to the simulation, but static would mean none.
    simulated = {"provisioner": "simulated"} if document.get("provisioner", STATIC) == STATIC else {}
    try:
        settings = Provisioning.model_validate(document | simulated)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CliError(f"{file} is refused: {where + ': ' if where else ''}{first['msg']}.") from error
    if not settings.nodes_max:
        raise CliError(f"{file}: nodes_max is 0, so no node would ever start; set it to 1 or more.")
    return settings


def compare_ways(
    script: SimulationScript, policies: list[str], settings: Provisioning, boot_seconds: float, seed: int, json: bool
) -> None:
    from tenuto.cli.output import print_json, seconds, show_rows

    rows = [row for policy in policies for row in rows_of(script, policy, settings, boot_seconds, seed)]
    if json:
        print_json(rows)
        return
    cells = [
        (
            row["policy"],
            row["way"],
            f"{row['node_hours']:.1f}",
            f"{row['cost']:.2f}",
            "" if row["utilisation"] is None else f"{row['utilisation']:.1%}",
            "" if row["wait_mean_seconds"] is None else seconds(row["wait_mean_seconds"]),
            "" if row["wait_p95_seconds"] is None else seconds(row["wait_p95_seconds"]),
            "" if row["nodes"] is None else row["nodes"],
            "" if row["unfinished"] is None else row["unfinished"],
        )
        for row in rows
    ]
    heads = ("policy", "nodes are", ">node hours", ">cost", ">used", ">wait", ">wait p95", ">started", ">unfinished")
    show_rows(heads, cells, "Nothing was simulated.")


def rows_of(
    script: SimulationScript, policy: str, settings: Provisioning, boot_seconds: float, seed: int
) -> list[dict[str, Any]]:
    """One row per way to have nodes, and one for the least that anybody could have paid for what the first one ran."""
    from tenuto.cli.sim_nodes import NodeSimulation, static, unserved
    from tenuto.services.scheduler.simulation.cluster import Costs
    from tenuto.services.scheduler.simulation.what_if import measured_costs

    boot_us, poll_us = round(boot_seconds * 1e6), round(POLL_SECONDS * 1e6)
    load = unserved(script)
    costs = measured_costs(load, Costs())
    rows = []
    for way in WAYS:
        if way == "static":
            rows.append(_row(policy, static(load, policy, costs, settings, seed)))
            continue
        run = NodeSimulation(load, policy, costs, settings, boot_us=boot_us, poll_us=poll_us, seed=seed, way=way)
        rows.append(_row(policy, run.run()))
        if way == "provisioned":
            hours, cost = run.oracle()
            nothing = dict.fromkeys(("utilisation", "wait_mean_seconds", "wait_p95_seconds", "nodes", "unfinished"))
            bound = {"policy": policy, "way": "foreknown", "node_hours": hours, "cost": cost, **nothing}
    return [*rows, bound]


def _row(policy: str, bill: Bill) -> dict[str, Any]:
    outcome = bill.outcome
    waits = sorted(outcome.waits_us) or [0]
    return {
        "policy": policy,
        "way": bill.way,
        "node_hours": bill.node_hours,
        "cost": bill.cost,
        "utilisation": outcome.useful / 3.6e9 / bill.slot_hours if bill.slot_hours else 0.0,
        "wait_mean_seconds": sum(waits) / len(waits) / 1e6,
        "wait_p95_seconds": waits[int(len(waits) * 0.95)] / 1e6,
        "nodes": bill.nodes,
        "unfinished": outcome.unfinished,
    }
