"""The scheduler's log, replayed in another process, ends in the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys

from tenuto.schemas.envelope import encode_event
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.request import ExperimentPauseRequested
from tests.support.scheduler_driver import Driver, exited, joined, requested, submitted

REFOLD = """
import sys
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.envelope import decode_event
from tenuto.services.scheduler.core import SchedulerCore
events = [decode_event(line.rstrip(b"\\n")) for line in sys.stdin.buffer]
core = SchedulerCore()
assert verify_decisions(core, events).ok
sys.stdout.buffer.write(core.dump(fold(core, events)))
"""


def test_another_process_replays_the_log_to_the_same_bytes() -> None:
    """With another hash seed, so that an iteration in hash order would show."""
    driver = Driver()
    for number in range(1, 8):
        driver.feed(submitted(number, slots=1 + number % 3, priority=(10, 42, 60)[number % 3]), *requested(number, *range(1, 6)))
    for name in ("north", "south", "east", "west", "up", "down"):
        driver.feed(joined(name, 3))
    for allocation in sorted(driver.state.allocations)[::2]:
        driver.feed(exited(allocation, "lost"))
    driver.feed(AgentLost(agent_id="south", reason="lease"), ExperimentPauseRequested(experiment_id=3))
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", REFOLD],
            input=b"\n".join(encode_event(event) for event in driver.log) + b"\n",
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        assert done.stdout == driver.core.dump(driver.state)
    assert driver.state.grants > 10
