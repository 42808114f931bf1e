"""exp set and job set: what can change while an experiment runs."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from tenuto.cli.common import ExperimentId, client
from tenuto.cli.errors import UsageError
from tenuto.cli.say import say


def change(
    context: typer.Context,
    experiment: ExperimentId,
    priority: Annotated[int | None, typer.Option(help="1 is the most urgent, 99 the least.", min=1, max=99)] = None,
    weight: Annotated[float | None, typer.Option(help="Share relative to the user's other experiments.")] = None,
    max_slots: Annotated[int | None, typer.Option(help="Most slots it uses at once; 0 removes the limit.", min=0)] = None,
    max_wall_hours: Annotated[
        float | None, typer.Option(help="Hours that it runs at most, waiting and pauses not counted; 0 removes the limit.", min=0)
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Another pool; running trials save a checkpoint and go on there.")] = None,
    max_trials: Annotated[int | None, typer.Option(help="Trials of the search in all.", min=1)] = None,
    max_concurrent_trials: Annotated[int | None, typer.Option(help="Trials at once, at most.", min=1)] = None,
) -> None:
    """Change an experiment's priority, weight, limits of slots and time, pool or limits of trials while it runs."""
    wanted: dict[str, Any] = {
        "priority": priority,
        "weight": weight,
        "pool": pool,
        "max_trials": max_trials,
        "max_concurrent_trials": max_concurrent_trials,
    }
    body = {name: value for name, value in wanted.items() if value is not None}
    if max_slots is not None:
        body["max_slots"] = max_slots or None
    if max_wall_hours is not None:
        body["max_wall_hours"] = max_wall_hours or None
    if not body:
        raise UsageError(
            "Nothing to change: give --priority, --weight, --max-slots, --max-wall-hours, --pool, --max-trials or"
            " --max-concurrent-trials."
        )
    rest = client(context)
    rest.patch(f"/experiments/{experiment}", body)
    say(f"Experiment {experiment} is changed.", flush=True)
    if pool is not None:
        _note_on_image(rest, experiment, pool)


def _note_on_image(rest: Any, experiment: int, pool: str) -> None:
    from pydantic import ValidationError

    from tenuto.cli.image_notes import note_if_no_node_runs_it
    from tenuto.client.errors import ClientError
    from tenuto.schemas.config.environment import Environment

    # The change is made: a note that cannot be told, such as by an older client, is no failure.
    with contextlib.suppress(ClientError, ValidationError):
        config = rest.get(f"/experiments/{experiment}")["config"]
        environment = config.get("environment") or {}
        if environment.get("image"):
            pools = (pool, *config["resources"].get("fallback_pools", ()))
            note_if_no_node_runs_it(rest, pools, Environment.model_validate(environment))
