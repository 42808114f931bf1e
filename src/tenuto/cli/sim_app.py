"""The group `tenuto sim`: each module of simulations registers its command here."""

from __future__ import annotations

import typer

from tenuto.cli.sim import search

app = typer.Typer(no_args_is_help=True)


@app.callback()
def simulate() -> None:
    pass


app.command()(search)
