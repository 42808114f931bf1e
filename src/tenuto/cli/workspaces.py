"""workspace and project: ls, create, show, set, archive, unarchive; project move, rename."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from tenuto.cli.common import ExperimentId, Json, client
from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.say import say
from tenuto.cli.templates import send, show_part

app = typer.Typer(no_args_is_help=True)
project_app = typer.Typer(no_args_is_help=True)
Workspace = Annotated[str, typer.Argument(metavar="WORKSPACE", help="Name of the workspace.")]
Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Name of the project.")]
Of = Annotated[str, typer.Option("--workspace", "-w", help="Workspace of the project.")]
Description = Annotated[str | None, typer.Option(help="Text for people.")]
Private = Annotated[
    bool | None,
    typer.Option("--private/--open", help="Private: only who has a role in it sees it. Open: every user is a member."),
]


@app.command("ls")
def list_workspaces(context: typer.Context, json: Json = False) -> None:
    """Show the workspaces that you see."""
    from tenuto.cli.output import print_json, show_rows

    found = client(context).get("/workspaces")
    if json:
        print_json(found)
        return
    rows = [(item["name"], _kind(item), item["projects"], item["experiments"], item["description"]) for item in found]
    show_rows(("workspace", "", "projects", "experiments", "description"), rows, "There are none.")


@app.command()
def create(context: typer.Context, workspace: Workspace, private: Private = None, description: Description = None) -> None:
    """Make a workspace, whose admin you are."""
    body = {"name": workspace, "private": bool(private), "description": description or ""}
    client(context).post("/workspaces", body)
    say(f"Workspace {workspace} is made; experiments name it with `resources.workspace: {workspace}`.")


@app.command()
def show(
    context: typer.Context,
    workspace: Workspace,
    defaults: Annotated[bool, typer.Option("--defaults", help="Print what its configurations get by default (YAML).")] = False,
    json: Json = False,
) -> None:
    """Show one workspace, its limits, and what you may do in it."""
    from tenuto.cli.output import print_json, size

    if defaults:
        show_part(client(context).get(f"{_path(workspace)}/defaults"), json=json)
        return
    found = client(context).get(_path(workspace))
    if json:
        print_json(found)
        return
    say(f"Workspace {workspace}{', ' if _kind(found) else ''}{_kind(found)}: {found['projects']} projects, "
        f"{found['experiments']} experiments. {found['description']}".rstrip())  # fmt: skip
    slots = f"{found['slots_max']} slots at most" if found["slots_max"] else "any number of slots"
    say(f"Its experiments have a priority from {found['priority_min']} to {found['priority_max']}, and use {slots} each.")
    say(f"Images: {', '.join(found['images']) or 'any'}.")
    most = f" of at most {size(found['storage_bytes_max'])}" if found["storage_bytes_max"] else ""
    say(f"Checkpoints: {size(found['storage_bytes'])}{most}.")
    if found["wall_hours_max"]:
        say(f"Each of its experiments runs for {found['wall_hours_max']:g} h at most.")
    say(f"You may: {', '.join(found['permissions'])}.")


@app.command("set")
def change(
    context: typer.Context,
    workspace: Workspace,
    private: Private = None,
    description: Description = None,
    priority_min: Annotated[int | None, typer.Option(help="Most urgent priority of its experiments (1).")] = None,
    priority_max: Annotated[int | None, typer.Option(help="Least urgent priority of its experiments (99).")] = None,
    slots_max: Annotated[int | None, typer.Option(help="Most slots of one of its experiments; 0: no limit.")] = None,
    image: Annotated[
        list[str] | None, typer.Option(help="Image that its experiments may run in; * stands for any text (repeatable).")
    ] = None,
    any_image: Annotated[bool, typer.Option("--any-image", help="Its experiments may run in any image.")] = False,
    storage_max: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most that its checkpoints may have, such as 500GB; 0: no limit.")
    ] = None,
    wall_hours_max: Annotated[
        float | None, typer.Option(help="Longest time in hours that one of its experiments runs; 0: no limit.")
    ] = None,
    defaults: Annotated[
        Path | None, typer.Option(help="YAML with what its configurations get where neither they nor a template say anything.")
    ] = None,
    no_defaults: Annotated[bool, typer.Option("--no-defaults", help="Its configurations get nothing of their own.")] = False,
) -> None:
    """Change who sees a workspace, its description, its defaults, or what its experiments may ask for."""
    if (image and any_image) or (defaults is not None and no_defaults):
        raise UsageError("Give --image or --any-image, and --defaults or --no-defaults, not both.")
    limits: dict[str, Any] = {"priority_min": priority_min, "priority_max": priority_max, "slots_max": slots_max}
    limits["storage_bytes_max"] = None if storage_max is None else bytes_of(storage_max)
    limits["wall_hours_max"] = wall_hours_max
    images = [] if any_image else image or None
    body = {"private": private, "description": description, **limits, "images": images}
    if defaults is not None:
        made = send(context, f"{_path(workspace)}/defaults", defaults)
        say(f"Workspace {workspace} has the defaults of {defaults} (version {made['version']}).")
    if no_defaults:
        client(context).delete(f"{_path(workspace)}/defaults")
        say(f"Workspace {workspace} has no defaults.")
    if any(value is not None for value in body.values()) or not (defaults or no_defaults):
        _change(context, _path(workspace), f"Workspace {workspace}", body)


UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def bytes_of(text: str) -> int:
    """`500GB` or `2.5 TiB` in bytes. Raises CliError."""
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].lower() not in UNITS:
        raise CliError(f"{text!r} is no size; write a number with a unit, such as 500GB or 2TiB.")
    return round(float(found[1]) * UNITS[found[2].lower()])


@app.command()
def archive(context: typer.Context, workspace: Workspace) -> None:
    """Let a workspace take no new experiments. Nothing of it is deleted."""
    _change(context, _path(workspace), f"Workspace {workspace}", {"archived": True})


@app.command()
def unarchive(context: typer.Context, workspace: Workspace) -> None:
    """Let an archived workspace take experiments again."""
    _change(context, _path(workspace), f"Workspace {workspace}", {"archived": False})


@project_app.command("ls")
def list_projects(context: typer.Context, workspace: Of = "default", json: Json = False) -> None:
    """Show the projects of a workspace."""
    from tenuto.cli.output import print_json, show_rows

    found = client(context).get(f"{_path(workspace)}/projects")
    if json:
        print_json(found)
        return
    rows = [(item["name"], _kind(item), item["experiments"], item["description"]) for item in found]
    show_rows(("project", "", "experiments", "description"), rows, f"There are none in workspace {workspace}.")


@project_app.command("create")
def create_project(context: typer.Context, project: Project, workspace: Of = "default", description: Description = None) -> None:
    """Make a project in a workspace."""
    client(context).post(f"{_path(workspace)}/projects", {"name": project, "description": description or ""})
    say(f"Project {project} of workspace {workspace} is made; experiments name it with `project: {project}`.")


@project_app.command("rename")
def rename_project(
    context: typer.Context,
    project: Project,
    name: Annotated[str, typer.Argument(metavar="NAME", help="New name.")],
    workspace: Of = "default",
) -> None:
    """Give a project another name. Its experiments follow; configurations on record keep the old one."""
    _change(context, _path(workspace, project), f"Project {project}", {"name": name})


@project_app.command("set")
def change_project(context: typer.Context, project: Project, workspace: Of = "default", description: Description = None) -> None:
    """Change the description of a project."""
    _change(context, _path(workspace, project), f"Project {project}", {"description": description})


@project_app.command("archive")
def archive_project(context: typer.Context, project: Project, workspace: Of = "default") -> None:
    """Let a project take no new experiments. Nothing of it is deleted."""
    _change(context, _path(workspace, project), f"Project {project}", {"archived": True})


@project_app.command("unarchive")
def unarchive_project(context: typer.Context, project: Project, workspace: Of = "default") -> None:
    """Let an archived project take experiments again."""
    _change(context, _path(workspace, project), f"Project {project}", {"archived": False})


@project_app.command("move")
def move(
    context: typer.Context,
    experiment: ExperimentId,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Project of the experiment's workspace; empty: none.")],
) -> None:
    """Put an experiment into another project of its workspace."""
    changed = client(context).put(f"/experiments/{experiment}/project", {"project": project})["changed"]
    where = f"in project {project}" if project else "in no project"
    say(f"Experiment {experiment} is {where}." if changed else f"Experiment {experiment} already was {where}.")


def _path(workspace: str, project: str | None = None) -> str:
    found = f"/workspaces/{quote(workspace, safe='')}"
    return found if project is None else f"{found}/projects/{quote(project, safe='')}"


def _kind(item: dict[str, Any]) -> str:
    return ", ".join(word for word in ("private", "archived") if item.get(word))


def _change(context: typer.Context, path: str, what: str, body: dict[str, Any]) -> None:
    given = {name: value for name, value in body.items() if value is not None}
    if not given:
        raise UsageError("Nothing to change: give an option (`--help` lists them).")
    changed = client(context).patch(path, given)["changed"]
    say(f"{what} is changed." if changed else f"{what} already was so: nothing changed.")
