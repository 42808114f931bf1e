"""pool create, change, check, show, mounts; node ls, release, logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.lacking_nodes import lacking, trouble
from tenuto.cli.say import say

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(no_args_is_help=True)

POOLS_ASKED_MAX = 20
"""Most pools whose provider's words are asked for in one list of nodes."""
COSTS = "workspace_cost_per_hour_max"
Pool = Annotated[str, typer.Argument(help="Name of the pool.")]
NodeId = Annotated[str, typer.Argument(metavar="NODE", help="Id of the node, such as gpus-7.")]
Provisioner = Annotated[
    str | None,
    typer.Option("--provisioner", help="What starts its nodes: a plug-in of the launcher, such as ssh; or static: people do."),
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Setting of the provisioner, such as partition=gpu; repeated.")]
File = Annotated[Path | None, typer.Option("--file", "-f", help="All of it as YAML: provisioner, settings, node_types, limits.")]
Slots = Annotated[int | None, typer.Option("--slots", min=1, help="Slots of a node, if all nodes are alike.")]
Cost = Annotated[float | None, typer.Option("--cost", min=0, help="Price of such a node for an hour.")]
Device = Annotated[str | None, typer.Option("--device", help='Name of its GPUs as the driver gives it, or "cpu".')]
Images = Annotated[bool | None, typer.Option("--images/--no-images", help="Its agents run trials that name an image.")]
NodeImages = Annotated[
    list[str] | None,
    typer.Option(
        "--node-image", help="Image in which a node may run as a whole for trials that name it (*: any text); repeated."
    ),
]
Labels = Annotated[list[str] | None, typer.Option("--label", help="Label of its agents, key=value; repeated.")]
Least = Annotated[int | None, typer.Option("--min", min=0, help="Nodes that are kept, whether work waits or not.")]
Most = Annotated[int | None, typer.Option("--max", min=0, help="Most nodes at once.")]
CostMost = Annotated[float | None, typer.Option("--cost-max", min=0, help="Most that all nodes may cost per hour.")]
CostsMost = Annotated[
    list[str] | None,
    typer.Option("--workspace-cost-max", help="The same for one workspace, such as vision=20 (*=10: each other); repeated."),
]
Idle = Annotated[float | None, typer.Option("--idle-seconds", help="A node without work for so long is given back.")]
Join = Annotated[float | None, typer.Option("--join-seconds", help="A node whose agent takes longer to join has failed.")]


def add_to(pools: typer.Typer) -> None:
    pools.command("create")(create)
    pools.command("change")(change)
    pools.command("check")(check)
    pools.command("show")(show)
    pools.command("mounts")(mounts)


def create(
    context: typer.Context, pool: Pool, provisioner: Provisioner = None, sets: Sets = None, file: File = None,
    slots: Slots = None, cost: Cost = None, device: Device = None, images: Images = None, label: Labels = None,
    least: Least = None, most: Most = None, cost_max: CostMost = None, workspace_cost_max: CostsMost = None,
    idle_seconds: Idle = None, join_seconds: Join = None, node_image: NodeImages = None,
) -> None:  # fmt: skip
    """Have the nodes of a pool started when work waits, and given back when it does not."""
    from tenuto.kernel import plugins

    if provisioner is None and file is None:
        known = ", ".join(plugins.names("tenuto.provisioners"))
        raise CliError(f"Say where the nodes come from: --provisioner with a name (there are here: {known}), or a --file.")
    given = _given(provisioner, sets, slots, cost, device, images, label, node_image)
    limits = _limits(least, most, cost_max, idle_seconds, join_seconds) | _by_workspace(workspace_cost_max)
    _put(context, pool, _merged(_read(file), given, limits))
    say(f"Pool {pool} has nodes when work waits. `tenuto pool check {pool}` says what is missing.")


def change(
    context: typer.Context, pool: Pool, provisioner: Provisioner = None, sets: Sets = None,
    slots: Slots = None, cost: Cost = None, device: Device = None, images: Images = None, label: Labels = None,
    least: Least = None, most: Most = None, cost_max: CostMost = None, workspace_cost_max: CostsMost = None,
    idle_seconds: Idle = None, join_seconds: Join = None, node_image: NodeImages = None,
) -> None:  # fmt: skip
    """Change where a pool's nodes come from, or its limits; what is not named stays. `--set NAME=` removes a setting, and
    `--provisioner static` gives all nodes back."""
    now = client(context).get(f"/pools/{pool}/provisioning")["provisioning"]
    given = _given(provisioner, sets, slots, cost, device, images, label, node_image)
    limits = _limits(least, most, cost_max, idle_seconds, join_seconds) | _by_workspace(workspace_cost_max)
    if not given and not limits:
        raise UsageError("Nothing to change: `tenuto pool change --help` shows what there is.")
    _put(context, pool, _merged(now, given, limits))
    say(f"Pool {pool} is changed.")


def mounts(
    context: typer.Context,
    pool: Pool,
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH[:rw]]...", help="All that may be mounted, such as /data /scratch:rw.")
    ] = None,
    nothing: Annotated[bool, typer.Option("--none", help="Nothing may be mounted.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Whatever each agent's operator allows (TENUTO_DOCKER_MOUNTS).")] = False,
    json: Json = False,
) -> None:
    """Show or set what containers may mount on a pool's agents, within what each agent's operator allows."""
    from tenuto.cli.output import print_json

    if (paths is not None) + nothing + reset > 1:
        raise UsageError("Give either paths, or --none, or --reset.")
    if paths or nothing or reset:
        allowed = [{"path": path.removesuffix(":rw"), "writable": path.endswith(":rw")} for path in paths or ()]
        client(context).put(f"/pools/{pool}/mounts", {"mounts": None if reset else allowed})
    found = client(context).get(f"/pools/{pool}/mounts")
    if json:
        print_json(found)
        return
    if found["mounts"] is None:
        say(f"Pool {pool} says nothing of mounts: each agent's operator does (TENUTO_DOCKER_MOUNTS).")
        return
    told = ", ".join(item["path"] + (" (writable)" if item.get("writable") else "") for item in found["mounts"])
    say(f"Containers in pool {pool} may mount {told or 'nothing'}, within what each agent's operator allows.")


def check(context: typer.Context, pool: Pool, file: File = None, json: Json = False) -> None:
    """Find what is missing for nodes of a pool (rights, partition, image, quota), and start none."""
    from tenuto.cli.output import print_json

    found = client(context).post(f"/pools/{pool}/check", _read(file) if file is not None else None)
    if json:
        print_json(found)
    else:
        for item in found["findings"]:
            said = item["problem"] or item["note"]
            mark = "problem" if item["problem"] else "note   " if said else "ok     "
            say(f"{mark}  {item['what']}{': ' + said if said else ''}")
    if not found["ready"]:
        raise typer.Exit(1)


def show(context: typer.Context, pool: Pool, json: Json = False) -> None:
    """Show where a pool's nodes come from, what it lacks, and the last failure."""
    from tenuto.cli.output import print_json

    found = client(context).get(f"/pools/{pool}/provisioning")
    if json:
        print_json(found)
        return
    settings = found["provisioning"]
    say(f"pool {pool}: provisioner {settings['provisioner']}")
    for name, value in sorted(settings["settings"].items()):
        say(f"  {name} = {value}")
    for kind in settings["node_types"]:
        price = f", {kind['cost_per_hour']:g} per hour" if kind["cost_per_hour"] else ""
        slots = f"{kind['slots']} slot{'s' * (kind['slots'] != 1)}"
        images = f", in images of trials: {', '.join(kind['node_images'])}" if kind.get("node_images") else ""
        say(f"  nodes of type {kind['name']}: {slots}{', ' + kind['device'] if kind['device'] else ''}{price}{images}")
    most = settings["cost_per_hour_max"]
    limit = f", for at most {most:g} per hour" if most is not None else ""
    say(f"  {settings['nodes_min']} to {settings['nodes_max']} nodes{limit}")
    for name, cost in sorted(settings.get(COSTS, {}).items()):
        say(f"  {'each other workspace' if name == '*' else f'workspace {name}'}: for at most {cost:g} per hour")
    say(f"  given back after {settings['idle_seconds']:g} s without work")
    say(f"nodes: {found['nodes']}, of which {found['nodes_coming']} are coming")
    for line in [*lacking(found), *_last_failure(found)]:
        say(line)


def _last_failure(pool: dict[str, Any]) -> list[str]:
    from tenuto.cli.output import when

    if not (failed := pool["last_failure"]):
        return []
    words = f" ({failed['message']})" if failed["message"] else ""
    again = f"; asked for again from {when(failed['retry_at_us'])}" if failed["retry_at_us"] else ""
    why = failed["reason"] or failed["failure"]
    return [f"last failure, {when(failed['at_us'])}: node {failed['node_id']}: {why}{words}{again}"]


@app.callback()
def nodes() -> None:
    pass


@app.command("ls")
def list_nodes(
    context: typer.Context,
    pool: Annotated[str | None, typer.Option("--pool", "-p", help="Only this pool.")] = None,
    json: Json = False,
) -> None:
    """List the nodes that provisioners start, and why each is there, does not come, or has failed."""
    from tenuto.cli.output import print_json, show_rows, when

    found = client(context).get("/nodes", pool=pool)
    if json:
        print_json(found)
        return
    pools = _lacking_nodes(client(context), found, pool)
    words = _words(pools)
    rows = [
        (item["id"], item["phase"], item["node_type"], item["slots"], f"{item['cost_per_hour']:g}", item["provider_id"],
         when(item["requested_us"]), item["message"] or " ".join([item["reason"], *words.get(item["id"], ())]))
        for item in found
    ]  # fmt: skip
    heads = ("node", "phase", "type", ">slots", ">cost/h", "at the provider", "since", "why")
    show_rows(heads, rows, "No provisioner has a node now; one that ended is in `tenuto event tail --from 1`.")
    for each in pools:
        for line in trouble(each) + (_last_failure(each) if _matters(each, found) else []):
            say(f"pool {each['pool']}: {line}")


def _words(pools: Iterable[dict[str, Any]]) -> dict[str, tuple[str]]:
    """Provider's messages on coming nodes, such as why one still waits in its queue, by node."""
    return {item["node_id"]: (f"Its provider: {item['words']}.",) for pool in pools for item in pool.get("coming", ())}


def _lacking_nodes(rest: Any, nodes: list[dict[str, Any]], pool: str | None) -> list[dict[str, Any]]:
    """Pools to explain further: nodes come, gangs wait for some, or the last node failed."""
    coming = {node["pool"] for node in nodes if node["phase"] in ("requested", "started")}
    pools = [item for item in rest.get("/pools") if pool in (None, item["pool"])]
    chosen = [item for item in pools if item["pool"] in coming or item["wanted"] or item["last_failure"]]
    asked = {item["pool"] for item in chosen[:POOLS_ASKED_MAX]}
    return [rest.get(f"/pools/{item['pool']}/provisioning") if item["pool"] in asked else item for item in chosen]


def _matters(pool: dict[str, Any], nodes: list[dict[str, Any]]) -> bool:
    """True for a failure while something still waits, or no node has joined. It is told although its node has ended and is no
    longer listed, else the list would say nothing of why there is none."""
    joined = any(node["pool"] == pool["pool"] and node["phase"] == "joined" for node in nodes)
    return pool["last_failure"] is not None and (bool(pool["wanted"]) or not joined)


@app.command("release")
def release(
    context: typer.Context,
    node: NodeId,
    now: Annotated[bool, typer.Option("--now", help="What runs there saves a checkpoint and goes on elsewhere.")] = False,
) -> None:
    """Give a node back: nothing new begins there, and when nothing runs there, it ends."""
    client(context).post(f"/nodes/{node}/release", {"drain": not now})
    say(f"Node {node} is given back.")


@app.command("logs")
def logs(
    context: typer.Context,
    node: NodeId,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000, help="Most lines, from the end.")] = 200,
) -> None:
    """Print what a node's agent, or its boot, has printed."""
    printed = client(context).get(f"/nodes/{node}/logs", lines=lines)["logs"]
    say(printed or f"Node {node} has printed nothing so far; `tenuto node ls` says how it comes on.")


def _given(
    provisioner: str | None, sets: Iterable[str] | None, slots: int | None, cost: float | None, device: str | None,
    images: bool | None, labels: list[str] | None, node_images: list[str] | None,
) -> dict[str, Any]:  # fmt: skip
    patterns = None if node_images is None else [item for item in node_images if item]
    kind = {
        "slots": slots, "cost_per_hour": cost, "device": device, "images": images, "labels": labels, "node_images": patterns,
    }  # fmt: skip
    found: dict[str, Any] = {"provisioner": provisioner} if provisioner is not None else {}
    if sets:
        pairs = [item.partition("=") for item in sets]
        if wrong := [name for name, equals, _ in pairs if not equals]:
            raise CliError(f"--set wants NAME=VALUE (found {wrong[0]!r}).")
        found["settings"] = {name: value for name, _, value in pairs}
    if named := {name: value for name, value in kind.items() if value is not None}:
        found["node_type"] = named
    return found


def _limits(
    least: int | None, most: int | None, cost_max: float | None, idle_seconds: float | None, join_seconds: float | None
) -> dict[str, Any]:
    named = {
        "nodes_min": least, "nodes_max": most, "cost_per_hour_max": cost_max, "idle_seconds": idle_seconds,
        "join_seconds": join_seconds,
    }  # fmt: skip
    return {name: value for name, value in named.items() if value is not None}


def _by_workspace(given: Iterable[str] | None) -> dict[str, Any]:
    found: dict[str, float | None] = {}
    for item in given or ():
        name, equals, cost = item.partition("=")
        try:
            found[name] = float(cost) if cost else None
        except ValueError:
            equals = ""
        if not equals:
            raise CliError(f"--workspace-cost-max wants WORKSPACE=COST, or WORKSPACE= for no limit (found {item!r}).")
    return {COSTS: found} if found else {}


def _merged(now: dict[str, Any], given: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    body = now | limits | ({"provisioner": given["provisioner"]} if "provisioner" in given else {})
    settings = body.get("settings", {}) | given.get("settings", {})
    body["settings"] = {name: value for name, value in settings.items() if value}
    costs = now.get(COSTS, {}) | limits.get(COSTS, {})
    body[COSTS] = {name: cost for name, cost in costs.items() if cost is not None}
    if "node_type" in given:
        kinds = body.get("node_types") or [{}]
        if len(kinds) > 1:
            raise CliError("This pool has several types of nodes: change them by `tenuto pool create --file`.")
        body["node_types"] = [kinds[0] | given["node_type"]]
    return body


def _read(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    from tenuto.cli.yaml_notes import read_yaml

    found = read_yaml(file)
    if not isinstance(found, dict):
        raise CliError(f"{file} must be a YAML mapping with provisioner, settings, node_types and limits.")
    return found


def _put(context: typer.Context, pool: str, body: dict[str, Any]) -> None:
    client(context).put(f"/pools/{pool}/provisioning", body)
