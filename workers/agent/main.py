"""The agent as a process: logging, signals, exit codes."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import Any

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.tasks import stop_task
from tenuto.workers.agent.app import AgentApp, AgentError
from tenuto.workers.agent.slots import NoSlots

logger = logging.getLogger(__name__)

EXIT_SETTINGS = 64
"""Starting again will not help: a person has to change something."""


def main() -> None:
    """SIGTERM, SIGINT: workers save and leave, then the agent. SIGHUP: the agent leaves, workers go on until the next agent
    on the same directory finds them (for an upgrade). A kill -9 is like SIGHUP."""
    try:
        settings = Settings.from_environment()
        logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        asyncio.run(_run(settings))
    except (SettingsError, AgentError, NoSlots) as error:
        print(f"agent: {error}", file=sys.stderr)
        sys.exit(EXIT_SETTINGS)


async def _run(settings: Settings) -> None:
    app = AgentApp(settings, SystemClock())
    loop = asyncio.get_running_loop()
    received: asyncio.Future[signal.Signals] = loop.create_future()

    def receive(number: signal.Signals) -> None:
        if not received.done():
            received.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, receive, number)
    running: asyncio.Task[None] | None = None
    try:
        await app.open()
        logger.info("agent is ready")
        running = asyncio.create_task(app.run())
        awaited: set[asyncio.Future[Any]] = {running, received}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if received.done() and received.result() != signal.SIGHUP:
            await app.stop()
    finally:
        await stop_task(running)
        await app.close()
