"""Log lines of workers, page by page and live."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tenuto.cli.output import when
from tenuto.cli.say import json_text, say
from tenuto.client.messages import items

if TYPE_CHECKING:
    from tenuto.client.blocking.client import Client

PAGE_LINES = 1_000
POLL_SECONDS = 0.5


def show_logs(rest: Client, path: str, *, follow: bool, json: bool, ended: Callable[[], bool]) -> None:
    """With `json` one object per line, so that a live stream can be read by programs."""
    after = 0
    while True:
        over = follow and ended()  # asked before reading: what came until then is read below
        while page := items(rest.get(path, after=after, limit=PAGE_LINES)):
            for line in page:
                if json:
                    print(json_text(line), flush=True)
                else:
                    say(
                        f"{when(line['time_us'])} [{line['trial_id']} rank {line['rank']} {line['stream']}] {line['text']}",
                        flush=True,
                    )
            after = page[-1]["line"]
        if not follow or over:
            return
        time.sleep(POLL_SECONDS)
