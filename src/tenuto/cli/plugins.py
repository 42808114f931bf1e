"""plugin ls: what is installed behind Tenuto's ports on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tenuto.cli.common import Json

if TYPE_CHECKING:
    from tenuto.kernel.plugins import Plugin

app = typer.Typer(no_args_is_help=True)


@app.callback()
def root() -> None:
    """Keeps `ls` a command of its own while it is the only one."""


@app.command("ls")
def list_plugins(
    check: Annotated[bool, typer.Option("--check", help="Import each, and say which cannot be used.")] = False,
    json: Json = False,
) -> None:
    """List the plug-ins of this machine's Python: Tenuto's own, and those of other packages. No cluster is asked."""
    from tenuto.cli.output import print_json, show_rows
    from tenuto.kernel import plugins

    found = [plugin for group in plugins.GROUPS for plugin in plugins.declared(group)]
    names = ("group", "name", "package", "version", *(("problem",) if check else ()))
    rows = [(item.group, item.name, item.package, item.version, *([_problem(item)] if check else [])) for item in found]
    if json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show_rows(names, rows, "No plug-ins are installed, not even Tenuto's own: install the package again.")


def _problem(plugin: Plugin) -> str:
    """Reason why the plug-in cannot be used; empty if it can."""
    from tenuto.kernel import plugins

    try:
        plugins.load(plugin.group, plugin.name)
    except plugins.PluginError as error:
        return str(error)
    return ""
