"""job ls, move, set; pool ls, set; share ls, set."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.changing import change
from tenuto.cli.common import ExperimentId, Json, client
from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.picture import picture
from tenuto.cli.say import say
from tenuto.client.errors import ClientError, Refused

if TYPE_CHECKING:
    from tenuto.schemas.config.resources import Resources

app = typer.Typer(no_args_is_help=True)
app.command("picture")(picture)
app.command("set")(change)
pool_app = typer.Typer(no_args_is_help=True)
share_app = typer.Typer(no_args_is_help=True)
Pool = Annotated[str, typer.Argument(help="Name of the pool.")]


@app.command("ls")
def list_jobs(
    context: typer.Context,
    pool: Annotated[str | None, typer.Option("--pool", "-p", help="Only this pool.")] = None,
    at: Annotated[
        int | None, typer.Option(metavar="POSITION", help="Show the queue as it was at this log position.", min=1)
    ] = None,
    json: Json = False,
) -> None:
    """Show the queue of each pool: who has slots, who waits, and why."""
    from tenuto.cli.output import console, print_json, table, when

    asked = {"pool": pool, "at": at}
    answer: dict[str, Any] = client(context).get("/jobs", **{name: value for name, value in asked.items() if value})
    if json:
        print_json(answer)
        return
    if at:
        say(f"At position {at}, {when(answer['time_us'])}:")
    pools = [found for found in answer["pools"] if found["rows"] or found["agents"] or pool]
    if not pools:
        say(_empty(client(context), pool) if pool else "No pool has agents or experiments.")
    for found in pools:
        fair = found["policy"] == "fair_share"
        heads = (">place", ">exp", "owner", ">priority", ">slots", *((">share",) if fair else ()), ">waiting", "why it waits")
        title = f"pool {found['pool']} ({found['policy']}): {found['free']} of {found['capacity']} slots free"
        cells = [
            (
                row["position"],
                row["experiment_id"] or "-",
                f"{row['workspace']}/{row['user']}",
                row["priority"],
                _slots(row),
                *((row["share"],) if fair else ()),
                row["trials_waiting"],
                _sentence(row),
            )
            for row in found["rows"]
        ]
        console().print(table(title, heads, cells))
        hidden = found["waiting"] - sum(row["trials_waiting"] > 0 for row in found["rows"])
        if hidden > 0:
            say(f"and {hidden} more experiments that wait")
        if found["waiting"] and not at:
            _tell_of_nodes(context, found["pool"])


def _tell_of_nodes(context: typer.Context, pool: str) -> None:
    """Prints, for a pool with a provisioner, which nodes come for waiting gangs and why no more do."""
    for line in _of_nodes(client(context), pool):
        say(f"  {line}")


def _of_nodes(rest: Any, pool: str) -> list[str]:
    from tenuto.cli.lacking_nodes import lacking

    with contextlib.suppress(Refused):
        found = rest.get(f"/pools/{pool}/provisioning")
        failed, later = found["last_failure"], any(item["hindrance"] == "later" for item in found["standings"])
        told = later and failed and failed["message"]
        return lacking(found) + ([f"node {failed['node_id']} could not be had: {failed['message']}"] if told else [])
    return []


def _empty(rest: Any, pool: str) -> str:
    """Sentence about a pool that the scheduler does not know."""
    if _provisioning(rest, pool) is None:
        return f"There is no pool {pool}."
    return f"Pool {pool} has neither nodes nor experiments: nodes come when work waits (`tenuto pool show {pool}`)."


def _provisioning(rest: Any, pool: str) -> dict[str, Any] | None:
    """Provisioning settings of the pool; None if it has no provisioner, or if they cannot be read."""
    from tenuto.schemas.provisioning import STATIC

    try:
        found: dict[str, Any] = rest.get(f"/pools/{pool}/provisioning")["provisioning"]
    except ClientError:
        return None
    return found if found["provisioner"] != STATIC else None


def _comes_by_itself(settings: dict[str, Any] | None, slots: int) -> bool:
    """True if a provisioner starts nodes that could hold a gang of so many slots."""
    if settings is None:
        return False
    most = max((kind["slots"] for kind in settings["node_types"]), default=0)
    return slots <= most * int(settings["nodes_max"])


def note_if_too_large(rest: Any, resources: Resources, image: str | None = None) -> None:
    """Warns, right after a submission, if the experiment needs more slots than its pool has, or an image that no nodes of it run.
    This is no error: agents may be added later. An unreachable scheduler is no error, either."""
    try:
        pools = rest.get("/jobs", pool=resources.pool)["pools"]
    except ClientError:
        return
    offered = sum(pool["capacity"] for pool in pools)
    lacks = offered < resources.slots_min or not any(pool["agents"] for pool in pools)
    settings = _provisioning(rest, resources.pool) if lacks and not resources.fallback_pools else None
    if _comes_by_itself(settings, resources.slots_min):
        assert settings is not None
        if image and not any(kind["images"] or kind.get("node_images") for kind in settings["node_types"]):
            say(
                f"Note: nodes of pool {resources.pool} run no images of trials, so the trials wait for agents with Docker; "
                "`tenuto job ls` says what else can be done.",
                file=sys.stderr,
            )
            return
        say(f"Nodes of pool {resources.pool} come when work waits: `tenuto node ls` shows them as they come.", file=sys.stderr)
        return
    if not resources.slots_min and not any(pool["agents"] for pool in pools) and not resources.fallback_pools:
        say(f"Note: pool {resources.pool} has no agent yet; the trials wait for one.", file=sys.stderr)
    if offered < resources.slots_min and not resources.fallback_pools:
        say(
            f"Note: a trial needs {resources.slots_min} slot{'s' * (resources.slots_min > 1)}, but the agents of pool "
            f"{resources.pool} offer {offered}; it waits until more come. `tenuto agent ls` shows what there is, "
            "`tenuto job set` changes the pool.",
            file=sys.stderr,
        )


def waiting_for(rest: Any, experiment: int) -> str:
    """Reason why the experiment's trials wait for slots; empty if none waits, or the scheduler is unreachable."""
    try:
        pools = rest.get("/jobs")["pools"]
    except ClientError:
        return ""
    rows = [row for pool in pools for row in pool["rows"]]
    return next((_sentence(row) for row in rows if row["experiment_id"] == experiment and row["text"]), "")


def waits(rest: Any, experiment: int) -> list[str]:
    """Reason why the experiment's trials wait for slots, and the words about nodes that come, or do not come, for its pool."""
    if not (reason := waiting_for(rest, experiment)):
        return []
    pool = rest.get(f"/experiments/{experiment}")["config"]["resources"]["pool"]
    return [reason, *_of_nodes(rest, pool)]


def _slots(row: dict[str, Any]) -> str:
    """Trials without slots run, too; and those that leave have theirs still."""
    if row["slots_per_trial"] == 0:
        return f"0 ({row['auxiliary_trials']} run)"
    return f"{row['slots']} ({row['slots_leaving']} being freed)" if row["slots_leaving"] else str(row["slots"])


def _sentence(row: dict[str, Any]) -> str:
    from tenuto.cli.output import when
    from tenuto.schemas.queue import expected_when

    text, trial = str(row["text"]), row["expected_trial"]
    if not (text and row["expected_us"]):
        return text
    ends = f" when trial {trial} ends" if trial else ""
    return f"{text.removesuffix(expected_when(trial))}; expected {when(row['expected_us'])}{ends}"


@app.command()
def move(
    context: typer.Context,
    experiment: ExperimentId,
    ahead_of: Annotated[int | None, typer.Option(help="To just before this experiment.", min=1)] = None,
    behind: Annotated[int | None, typer.Option(help="To just behind this experiment.", min=1)] = None,
) -> None:
    """Move an experiment in the queue, beside another one, whose priority it takes over."""
    if (ahead_of is None) == (behind is None):
        raise UsageError("Give either --ahead-of or --behind: the experiment beside which it should be.")
    body = {"ahead_of": ahead_of} if ahead_of is not None else {"behind": behind}
    client(context).post(f"/jobs/{experiment}/move", body)
    say(f"Experiment {experiment} is {'ahead of' if ahead_of is not None else 'behind'} experiment {ahead_of or behind}.")


@pool_app.callback()
def pools() -> None:
    pass


@pool_app.command("ls")
def list_pools(context: typer.Context, json: Json = False) -> None:
    """Show the pools: how each shares its slots, and how many are free."""
    from tenuto.cli.output import print_json, show_rows
    from tenuto.schemas.provisioning import STATIC

    found = [
        {name: value for name, value in pool.items() if name != "rows"} for pool in client(context).get("/jobs", limit=1)["pools"]
    ]
    # The scheduler knows pools by their agents and experiments, and one whose nodes come by themselves may have neither.
    by_itself = {item["pool"]: item["provisioning"]["provisioner"] for item in client(context).get("/pools")}
    nothing = {"agents": 0, "capacity": 0, "free": 0, "leaving": 0, "waiting": 0}
    unknown = by_itself.keys() - {pool["pool"] for pool in found}
    found += [{"pool": name, "policy": "priority", "usage_half_life_hours": None, **nothing} for name in unknown]
    found = [pool | {"nodes_from": by_itself.get(pool["pool"], STATIC)} for pool in sorted(found, key=lambda pool: pool["pool"])]
    if json:
        print_json(found)
        return
    rows = [
        (
            pool["pool"],
            pool["nodes_from"],
            pool["policy"] + (f", half-life {hours:g} h" if (hours := pool["usage_half_life_hours"]) else ""),
            pool["agents"],
            pool["capacity"],
            pool["free"],
            pool["leaving"],
            pool["waiting"],
        )
        for pool in found
    ]
    heads = ("pool", "nodes from", "policy", ">agents", ">slots", ">free", ">being freed", ">experiments that wait")
    show_rows(heads, rows, "No pool has agents or experiments.")


@pool_app.command("set")
def set_policy(
    context: typer.Context,
    pool: Pool,
    policy: Annotated[str, typer.Argument(help="priority, fair_share or fifo.")],
    half_life_hours: Annotated[
        float | None, typer.Option(help="fair_share: past use counts, and is forgotten by half in this time.")
    ] = None,
    no_half_life: Annotated[bool, typer.Option("--no-half-life", help="Past use counts no longer, and is forgotten.")] = False,
    preempt: Annotated[bool, typer.Option("--preempt", help="Running trials give way under the new policy, too.")] = False,
) -> None:
    """Choose how a pool shares its slots. What runs goes on, unless --preempt is given. A half-life that was set stays, unless
    another one or --no-half-life is given."""
    if no_half_life and half_life_hours is not None:
        raise UsageError("Give either --half-life-hours or --no-half-life.")
    body: dict[str, Any] = {"policy": policy}
    if no_half_life or half_life_hours is not None:
        body["usage_half_life_hours"] = half_life_hours
    if preempt:
        body["preempt"] = True
    client(context).put(f"/pools/{pool}", body)
    say(f"Pool {pool} shares by {policy}.")


@share_app.callback()
def shares() -> None:
    pass


@share_app.command("ls")
def list_shares(context: typer.Context, json: Json = False) -> None:
    """Show weights and quotas, and the slots in use."""
    from tenuto.cli.output import print_json, show_rows

    found = client(context).get("/shares")
    if json:
        print_json(found)
        return
    rows = [(row["owner"], row["name"], f"{row['weight']:g}", row["max_slots"] or "-", row["slots"]) for row in found]
    heads = ("owner", "name", ">weight", ">most slots", ">slots in use")
    show_rows(heads, rows, "No share is set, and no slots are in use.")


@share_app.command("set")
def set_share(
    context: typer.Context,
    owner: Annotated[str, typer.Argument(help="workspace or user.")],
    name: str,
    weight: Annotated[float | None, typer.Option(help="Share relative to others, in pools that share fairly.")] = None,
    max_slots: Annotated[int | None, typer.Option(help="Most slots that it uses at once.", min=1)] = None,
    no_max_slots: Annotated[bool, typer.Option("--no-max-slots", help="Remove the limit.")] = False,
) -> None:
    """Set weight and quota of a workspace or a user. What is not named stays as it is."""
    if owner not in ("workspace", "user"):
        raise CliError(f"The owner of a share is a workspace or a user, not {owner!r}.")
    if no_max_slots and max_slots is not None:
        raise UsageError("Give either --max-slots or --no-max-slots.")
    body: dict[str, Any] = {} if weight is None else {"weight": weight}
    if no_max_slots or max_slots is not None:
        body["max_slots"] = max_slots
    if not body:
        raise UsageError("Nothing to change: give --weight, --max-slots or --no-max-slots.")
    client(context).put(f"/shares/{owner}/{name}", body)
    said = [] if weight is None else [f"weight {weight:g}"]
    if "max_slots" in body:
        said.append("no limit of slots" if max_slots is None else f"at most {max_slots} slot{'s' * (max_slots != 1)}")
    say(f"{owner.capitalize()} {name} has {' and '.join(said)} from now on.")
