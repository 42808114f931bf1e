"""agent ls. Those that change agents are in `slots`."""

from __future__ import annotations

from collections import Counter

import typer

from tenuto.cli.common import Json, client
from tenuto.client.messages import items

app = typer.Typer(no_args_is_help=True)


@app.callback()
def agents() -> None:
    pass


@app.command("ls")
def list_agents(context: typer.Context, json: Json = False) -> None:
    """List the agents with their slots and what runs on them."""
    from tenuto.cli.output import print_json, show_rows, when
    from tenuto.cli.say import say

    rows = items(client(context).get("/agents"))
    if json:
        print_json(rows)
        return
    cells = []
    for agent in rows:
        slots = agent["slots"]
        used = sorted(slot["allocation_id"] for slot in slots if slot.get("allocation_id"))
        kinds = ", ".join(sorted({slot["kind"] for slot in slots}))
        devices = Counter(slot["device"] for slot in slots if slot["device"])
        named = ", ".join(name if len(devices) == 1 else f"{count} {name}" for name, count in sorted(devices.items()))
        disabled = sum(not slot["enabled"] for slot in slots)
        closed = f", {disabled} disabled" if disabled else ""
        cells.append(
            (
                agent["id"],
                agent["state"],
                agent["pool"],
                f"{len(used)}/{len(slots)} {kinds}{closed}",
                named,
                ", ".join(agent["runtimes"]) + (f" in {agent['image']}" if agent.get("image") else ""),
                ", ".join([*used, *agent.get("auxiliary", ())]),
                when(agent["joined_us"]),
            )
        )
    show_rows(("agent", "state", "pool", "slots", "devices", "runtimes", "allocations", "since"), cells, "No agents have joined.")
    for agent in rows:
        if agent.get("unlimited") and agent["state"] != "lost":
            say(f"Agent {agent['id']} runs trials without limits that its operator set: {agent['unlimited']}.")
        if agent["notice"] and agent["state"] != "lost":
            say(f"Agent {agent['id']} will end; the provider of its machine says: {agent['notice']}.")
