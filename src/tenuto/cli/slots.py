"""agent enable, agent disable, slot enable, slot disable."""

from __future__ import annotations

from typing import Annotated

import typer

from tenuto.cli.agents import app as agent_app
from tenuto.cli.common import client
from tenuto.cli.say import say

slot_app = typer.Typer(no_args_is_help=True)
Agent = Annotated[str, typer.Argument(help="Name of the agent, as in `tenuto agent ls`.")]
SlotId = Annotated[int, typer.Argument(help="Number of the slot on that agent.", min=0)]
Drain = Annotated[bool, typer.Option("--drain", help="Let what runs there go on to its end.")]


def _disable(context: typer.Context, agent: str, slot: int | None, drain: bool) -> None:
    client(context).post(f"/agents/{agent}/disable", {"slot_id": slot, "drain": drain})
    what = f"Agent {agent}" if slot is None else f"Slot {slot} of agent {agent}"
    rest = "what runs there goes on to its end" if drain else "what runs there saves a checkpoint and goes on elsewhere"
    say(f"{what} takes nothing new; {rest}.")


def _enable(context: typer.Context, agent: str, slot: int | None) -> None:
    client(context).post(f"/agents/{agent}/enable", {"slot_id": slot})
    say(f"Agent {agent} is in service." if slot is None else f"Slot {slot} of agent {agent} is in service.")


@agent_app.command("disable")
def disable_agent(context: typer.Context, agent: Agent, drain: Drain = False) -> None:
    """Take an agent out of service, also for when it comes back, until it is enabled."""
    _disable(context, agent, None, drain)


@agent_app.command("enable")
def enable_agent(context: typer.Context, agent: Agent) -> None:
    """Put an agent with all its slots back into service."""
    _enable(context, agent, None)


@slot_app.command("disable")
def disable_slot(context: typer.Context, agent: Agent, slot: SlotId, drain: Drain = False) -> None:
    """Take one slot out of service."""
    _disable(context, agent, slot, drain)


@slot_app.command("enable")
def enable_slot(context: typer.Context, agent: Agent, slot: SlotId) -> None:
    """Put one slot back into service."""
    _enable(context, agent, slot)
