"""The process of an automation: from its start at the gateway to its clean end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from tenuto.automation.app import App
from tenuto.automation.ledger import Ledger, Retry, Superseded
from tenuto.automation.rules import HandlerThread, RuleRunner
from tenuto.automation.sources import Source, SseSource
from tenuto.automation.window import Window
from tenuto.client import AsyncClient
from tenuto.client.errors import Away, ClientError
from tenuto.client.target import Target

GRACE_SECONDS = 10.0
"""Time after SIGTERM for handlers that are at work. An event whose handler is cut off is handled again at the next start."""
LAST_NOTE_SECONDS = 5.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run(
    app: App,
    target: Target,
    *,
    after: int | None = None,
    source: Callable[[AsyncClient], Source] | None = None,
    say: Callable[[str], None] = lambda text: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Runs the rules until SIGTERM, SIGINT, or `stop` is set. `after`: position behind which new rules begin; None: the present
    end of the log. Raises ClientError if another process took over or the token is revoked."""
    stop = asyncio.Event() if stop is None else stop
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        with contextlib.suppress(ValueError, NotImplementedError):  # not in the main thread, where signals are another's
            loop.add_signal_handler(number, stop.set)
    async with AsyncClient(target, notice=say) as client:
        chosen = SseSource(client, say) if source is None else source(client)
        body = {"rules": sorted(app.rules), "after": after, "source": chosen.name}
        started = await client.put(f"/automations/{app.name}", body)
        known = {item["rule"]: item["position"] for item in started["rules"]}
        positions = {rule: known[rule] for rule in sorted(app.rules)}
        ledger = Ledger(client, app.name, started["run"], positions)
        window = Window(client, min(positions.values()))
        runners = {
            name: RuleRunner(app.name, rule, HandlerThread(name, target, say), window, ledger, client, say)
            for name, rule in app.rules.items()
        }

        def retry(item: Retry) -> None:
            if item.rule in runners:
                runners[item.rule].retry(item)

        ledger.retry = retry
        say(f"automation {app.name} runs: {', '.join(f'{rule} behind {position}' for rule, position in positions.items())}")
        await _until_stopped(stop, chosen, window, ledger, list(runners.values()))
    say(f"automation {app.name} has ended")


async def _until_stopped(stop: asyncio.Event, source: Source, window: Window, ledger: Ledger, runners: list[RuleRunner]) -> None:
    working = [asyncio.create_task(runner.run()) for runner in runners]
    around = [asyncio.create_task(source.run(window)), asyncio.create_task(ledger.run())]
    stopped = asyncio.create_task(stop.wait())
    superseded = False
    try:
        await asyncio.wait([*working, *around, stopped], return_when=asyncio.FIRST_COMPLETED)
        for finished in (*working, *around):
            if finished.done():
                finished.result()
    except Superseded as error:
        superseded = True
        raise ClientError(str(error)) from None
    finally:
        for runner in runners:
            runner.stop()
        await asyncio.wait(working, timeout=0.0 if superseded else GRACE_SECONDS)
        for unfinished in (*working, *around, stopped):
            unfinished.cancel()
        await asyncio.gather(*working, *around, stopped, return_exceptions=True)
        if not superseded:
            with contextlib.suppress(Superseded, ClientError, TimeoutError):
                async with asyncio.timeout(LAST_NOTE_SECONDS):
                    await _last_note(ledger)


async def _last_note(ledger: Ledger) -> None:
    while True:
        try:
            await ledger.note(ended=True)
            return
        except Away:
            await asyncio.sleep(0.5)
