"""Log lines of workers, page by page and live."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tenuto.cli.output import when
from tenuto.cli.say import json_text, say

if TYPE_CHECKING:
    from tenuto.client.blocking.client import Client

PAGE_LINES = 1_000
POLL_SECONDS = 0.5
LATE_LOOKS = 4
"""Looks in a row without a new line after which an ended run counts as having said all: its lines are stored apart from the
events, and on a busy machine the last ones come up to some seconds after its end."""

Text = Annotated[str | None, typer.Option("--text", help="Only lines with this text, in small or large letters.")]
Rank = Annotated[int | None, typer.Option("--rank", help="Only lines of this rank.", min=0)]
Level = Annotated[
    str | None,
    typer.Option(
        "--level", metavar="LEVEL", help="Only lines that say this level or a higher one: debug, info, warning, error, critical."
    ),
]


def show_logs(
    rest: Client,
    path: str,
    *,
    follow: bool,
    json: bool,
    ended: Callable[[], bool],
    text: str | None = None,
    rank: int | None = None,
    level: str | None = None,
) -> None:
    """Prints log lines; with `json` one object per line, so that programs can read a live stream."""
    after, quiet = 0, 0
    while True:
        over = follow and (quiet > 0 or ended())  # asked before reading: what came until then is read below
        before = after
        for page in rest.pages(path, after=after, limit=PAGE_LINES, text=text, rank=rank, level=level):
            for line in page:
                if json:
                    print(json_text(line), flush=True)
                else:
                    say(
                        f"{when(line['time_us'])} [{line['trial_id']} rank {line['rank']} {line['stream']}] {line['text']}",
                        flush=True,
                    )
            after = page[-1]["line"] if page else after
        quiet = quiet + 1 if over and after == before else int(over)
        if not follow or quiet > LATE_LOOKS:
            return
        time.sleep(POLL_SECONDS)
