"""The agent's process: logging, signals, exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.exit_codes import EXIT_LOST, EXIT_REVOKED, EXIT_SETTINGS
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.tasks import stop_task
from tenuto.workers.agent.app import AgentApp
from tenuto.workers.agent.checked_settings import AgentError
from tenuto.workers.agent.directory_watch import LOOK_SECONDS
from tenuto.workers.agent.joining import Joined, NotJoined, settings_of
from tenuto.workers.agent.membership import Membership
from tenuto.workers.agent.slots import NoSlots

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class AgentLostError(RuntimeError):
    pass


class AgentRevokedError(RuntimeError):
    pass


def main() -> None:
    """Runs the agent. SIGTERM, SIGINT: workers save and leave, then the agent. SIGHUP: the agent leaves, and workers go on
    until the next agent on the same directory finds them (for an upgrade). A kill -9 is like SIGHUP. SIGUSR1: the agent's time
    ends (its batch system wants the node back): what runs saves and goes on elsewhere, and the agent leaves. So does SIGTERM
    where the agent knows its end, or its settings say that the signal means it (a pod)."""
    try:
        settings, joined = settings_of(Settings.from_environment())
        logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        asyncio.run(_run(settings, joined))
    except AgentRevokedError as error:
        print(f"agent: {error}", file=sys.stderr)
        sys.exit(EXIT_REVOKED)
    except AgentLostError as error:
        print(f"agent: {error}", file=sys.stderr)
        sys.exit(EXIT_LOST)
    except (SettingsError, AgentError, NoSlots, NotJoined) as error:
        print(f"agent: {error}", file=sys.stderr)
        sys.exit(EXIT_SETTINGS)
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _listen(receive: Callable[[signal.Signals], None]) -> None:
    """Has `receive` called on the running loop with each signal, as long as there is the loop.

    The loop's own handlers would leave the signals to their default as it closes. A batch system's warning (Slurm sends it up to
    a minute early) or a second SIGTERM would then kill an agent that has left in order, and its job or pod would count as
    failed."""
    loop = asyncio.get_running_loop()

    def handle(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the agent ends anyway
            loop.call_soon_threadsafe(receive, signal.Signals(number))

    for number in SIGNALS:
        signal.signal(number, handle)


async def _run(settings: Settings, joined: Joined | None) -> None:
    membership = Membership(joined)
    app = AgentApp(settings, SystemClock(), on_refused=membership.refused)
    received: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()

    def receive(number: signal.Signals) -> None:
        if number == signal.SIGUSR1:
            app.departure.announce("now")
        elif number == signal.SIGTERM and app.departure.by_signal:
            app.departure.announce("now", app.departure.signal_seconds_max)
        elif not received.done():
            received.set_result(number)

    _listen(receive)
    running: asyncio.Task[None] | None = None
    lost: asyncio.Task[str] | None = None
    departed: asyncio.Task[None] | None = None
    revoked: asyncio.Task[str] | None = None
    try:
        await app.open()
        logger.info("agent is ready")
        running, lost = asyncio.create_task(app.run()), asyncio.create_task(app.lost())
        departed, revoked = asyncio.create_task(app.departed()), asyncio.create_task(membership.revoked())
        awaited: set[asyncio.Future[Any]] = {running, received, lost, departed, revoked}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if not received.done() and not departed.done():
            await asyncio.wait({lost}, timeout=LOOK_SECONDS)  # `lost` has the better reason
        if lost.done():
            logger.critical("%s", lost.result())
            await app.leave()
            raise AgentLostError(lost.result())
        if revoked.done():
            logger.critical("%s", revoked.result())
            await app.manager.abandon()  # the services would accept no checkpoint of theirs
            raise AgentRevokedError(revoked.result())
        if received.done() and received.result() != signal.SIGHUP:
            await app.stop()
        elif running.done():
            running.result()
        elif departed.done():
            departed.result()
            await app.stop()
            await stop_task(running)  # or one more of its heartbeats would follow the last one
            await app.say_gone()
            logger.info("the agent's time is over")
    finally:
        await stop_task(revoked)
        await stop_task(departed)
        await stop_task(lost)
        await stop_task(running)
        await app.close()
