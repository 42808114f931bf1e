"""template: set, ls, show, rm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say
from tenuto.client.errors import Refused

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the template.")]
Of = Annotated[str | None, typer.Option("--workspace", "-w", help="Workspace that it is of. Default: the whole cluster.")]


@app.command("set")
def put(
    context: typer.Context,
    name: Name,
    file: Annotated[Path, typer.Argument(help="YAML in the shape of a configuration, with what the template says only.")],
    workspace: Of = None,
) -> None:
    """Make a template, or change it. Experiments that were submitted with it keep what it gave them."""
    made = send(context, _path(name, workspace), file)
    say(f"Template {name} is set (version {made['version']}); configurations name it with `template: {name}`.")


@app.command("ls")
def list_templates(context: typer.Context, workspace: Of = None, json: Json = False) -> None:
    """Show the templates that you see: of the whole cluster, and of workspaces."""
    from tenuto.cli.output import print_json, show_rows, size

    found = client(context).get("/templates", workspace=workspace)
    if json:
        print_json(found)
        return
    rows = [
        (item["name"], item["workspace"] or "(all)", item["version"], size(item["size_bytes"]), item["digest"][:12])
        for item in found
    ]
    show_rows(("template", "workspace", ">version", ">size", "digest"), rows, "There are none: `tenuto template set` makes one.")


@app.command()
def show(context: typer.Context, name: Name, workspace: Of = None, json: Json = False) -> None:
    """Print a template (YAML)."""
    show_part(client(context).get(_path(name, workspace)), json=json)


@app.command()
def rm(context: typer.Context, name: Name, workspace: Of = None) -> None:
    """Remove a template. Experiments that were submitted with it keep what it gave them."""
    client(context).delete(_path(name, workspace))
    say(f"Template {name} is removed.")


def send(context: typer.Context, path: str, file: Path) -> dict[str, Any]:
    """Raises CliError with every problem of the file."""
    from tenuto.cli.merging import refused
    from tenuto.schemas.config.errors import Problem

    try:
        made: dict[str, Any] = client(context).put(path, {"config": file.read_text()})
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"Cannot read {file}: {getattr(error, 'strerror', None) or 'it is no text'}; give a YAML file.") from error
    except Refused as error:
        if not error.problems or error.path == "config":
            raise
        raise refused(file, [Problem(**item) for item in error.problems]) from error
    return made


def show_part(found: dict[str, Any], *, json: bool) -> None:
    from tenuto.cli.output import print_json
    from tenuto.schemas.config.yaml_text import dump_yaml

    if json:
        print_json(found)
        return
    say(dump_yaml(found["config"]).rstrip())


def _path(name: str, workspace: str | None) -> str:
    where = "" if workspace is None else f"/workspaces/{quote(workspace, safe='')}"
    return f"{where}/templates/{quote(name, safe='')}"
