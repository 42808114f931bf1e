"""automation rules set, ls, rm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

app = typer.Typer(no_args_is_help=True)
Workspace = Annotated[str, typer.Option("--workspace", "-w", help="Workspace whose experiments they are for.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML: a list of rules, or a map with one under `automation`.")]


@app.command("set")
def set_rules(context: typer.Context, file: File, workspace: Workspace = "default") -> None:
    """Have the rules followed for all experiments of a workspace, in place of those that there are."""
    rules = _read(file)
    done = client(context).put(_path(workspace), {"rules": rules})
    count = "1 rule" if len(rules) == 1 else f"{len(rules)} rules"
    say(f"Workspace {workspace} has {count}." if done["changed"] else f"Workspace {workspace} has these rules already.")


@app.command("ls")
def list_rules(context: typer.Context, workspace: Workspace = "default", json: Json = False) -> None:
    """Show the rules of a workspace."""
    from tenuto.cli.output import print_json, show_rows

    found = client(context).get(_path(workspace))
    if json:
        print_json(found)
        return
    cells = [
        (number, rule["on"], _settings(rule), rule["do"], rule.get("webhook", ""), rule["times_max"])
        for number, rule in enumerate(found["rules"])
    ]
    columns = (">rule", "on", "when", "do", "webhook", ">times at most")
    show_rows(columns, cells, f"Workspace {workspace} has no rules; `tenuto automation rules set` gives it some.")
    if cells:
        say(f"They were set by {found['user']}.")


@app.command("rm")
def remove_rules(context: typer.Context, workspace: Workspace = "default") -> None:
    """Take all rules of a workspace away. Those of experiments' own stay."""
    done = client(context).delete(_path(workspace))
    say(f"Workspace {workspace} has no rules any more." if done["changed"] else f"Workspace {workspace} has no rules.")


def _read(file: Path) -> list[Any]:
    """Raises CliError. What a rule may be is the gateway's to say."""
    from tenuto.cli.yaml_notes import read_yaml

    found = read_yaml(file)
    rules = found.get("automation") if isinstance(found, dict) else found
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise CliError(f"{file} has no list of rules; docs/automation.md shows one.")
    return rules


def _settings(rule: dict[str, Any]) -> str:
    beside = ("on", "do", "webhook", "times_max", "overrides")
    return ", ".join(f"{name} {value}" for name, value in rule.items() if name not in beside and value is not None)


def _path(workspace: str) -> str:
    return f"/workspaces/{quote(workspace, safe='')}/rules"
