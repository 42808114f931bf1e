"""page: open the web page, signed in."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import Annotated

import typer

from tenuto.cli.common import client
from tenuto.cli.say import say


def page(
    context: typer.Context,
    browser: Annotated[bool, typer.Option(help="Open a browser; without it the link is only shown.")] = True,
) -> None:
    """Open the web page in your browser, signed in as you are here: with your session (`tenuto login`), or as the admin of the
    cluster on this machine. The link works once, within a minute."""
    rest = client(context)
    made = rest.post("/login/links")
    address = f"{rest.target.url}/#sign-in={made['code']}"
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin"
    if browser and screen and webbrowser.open(address):
        say(f"Your browser shows {rest.target.url}, where one click signs you in as {made['name']}.")
    else:
        say(f"Open this in a browser within a minute; it signs in {made['name']}, once:\n  {address}")
