"""One part of `tenuto exp create --local --test`, in a process of its own: trains a few batches of a record, and writes down how
that ended.

`python -P -m tenuto.workers.local.rehearsal RECORD MODEL_DIR RESULT PERIOD LEAVE_AT`, with LEAVE_AT 0 for a part that trains to
its end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tenuto.schemas.base import Model
from tenuto.schemas.reports import CheckpointReport
from tenuto.workers.core_api.local_record import Body, read_run
from tenuto.workers.core_api.session import say
from tenuto.workers.errors import describe
from tenuto.workers.harness.quick_end import QuickEnd
from tenuto.workers.harness.schedule import ShortSchedule
from tenuto.workers.local.running import Foreground
from tenuto.workers.local.terminal import Terminal

PERIODS = 3
"""Number of checkpoints of the first part: the second part resumes from the first, and is compared at the second."""


class Result(Model):
    """Outcome of a part."""

    error: str = ""
    """Sentence and traceback for the user. Empty: the part succeeded."""


def rehearse(record: Path, model_directory: Path, period: int, leave_at: int) -> Result:
    """Trains a part, which leaves when a checkpoint at `leave_at` is stored. The result has whatever the user's code raised."""
    config = read_run(record).config
    full = config.searcher.max_length.value
    parts: list[Foreground] = []
    terminal = Terminal(config, lengths=False)

    def show(body: Body) -> None:
        terminal(body)
        if leave_at and isinstance(body, CheckpointReport) and body.batches >= leave_at:
            parts[0].session.box.leave("preempt")

    try:
        parts.append(
            Foreground.open(record, show=show, shorten=lambda schedule: ShortSchedule.of_full(schedule, full, period, PERIODS))
        )
        parts[0].train(model_directory)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's code raises, SystemExit included
        text = describe(error, model_directory)
        say(f"the trial failed: {text}")
        return Result(error=text)
    return Result()


if __name__ == "__main__":
    ending = QuickEnd()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    record, model_directory, target = map(Path, sys.argv[1:4])  # a script is given other arguments
    period, leave_at = map(int, sys.argv[4:6])
    result = rehearse(record, model_directory, period, leave_at)
    target.with_suffix(".partial").write_bytes(result.to_json())
    os.replace(target.with_suffix(".partial"), target)
    ending.code = 0
