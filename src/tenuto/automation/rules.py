"""One rule at work: its events in order, each until it is handled or parked."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from typing import Any

from tenuto.automation.app import Park, Rule
from tenuto.automation.cluster import AsOf, Cluster
from tenuto.automation.events import Event
from tenuto.automation.ledger import Ledger, Retry
from tenuto.automation.window import Told, Window, page
from tenuto.client import AsyncClient
from tenuto.client.errors import Away, ClientError, Refused
from tenuto.client.target import Target

PAUSE_SECONDS = 1.0
"""Wait before the second attempt; doubles up to PAUSE_SECONDS_MAX, with jitter."""
PAUSE_SECONDS_MAX = 300.0
LABELS_KEPT = 1_000
LABELS_SECONDS = 10.0
"""Time for which an experiment's labels are cached; they may be changed at any time."""
Say = Callable[[str], None]


class Labels:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._known: OrderedDict[int, tuple[float, frozenset[str]]] = OrderedDict()

    async def of(self, experiment_id: int, position: int) -> frozenset[str]:
        """Labels of the experiment as of an event's position: before it, the experiment may be missing. Empty if it was deleted.
        Raises ClientError, and Away if the cluster has not reached that position yet."""
        found = self._known.get(experiment_id)
        if found is None or time.monotonic() - found[0] > LABELS_SECONDS:
            try:
                view = await AsOf(self._client, position).get(f"/experiments/{experiment_id}")
                labels = frozenset(view.get("labels") or view["config"].get("labels") or ())
            except Refused as error:
                if error.word not in ("not_found", "gone"):
                    raise
                labels = frozenset()
            found = self._known[experiment_id] = (time.monotonic(), labels)
            while len(self._known) > LABELS_KEPT:
                self._known.popitem(last=False)
        return found[1]


async def concerns(rule: Rule, told: Told, labels: Labels) -> bool:
    correlation = str(told.get("correlation_id", ""))
    experiment_id = int(correlation) if correlation.isdecimal() else None
    if not rule.wants(told["type"], experiment_id):
        return False
    return not rule.labels or (experiment_id is not None and rule.labels <= await labels.of(experiment_id, told["position"]))


class HandlerThread:
    """Event loop for one rule's handler, in a thread of its own: a handler that computes for minutes, or that blocks, holds up no
    other rule. It keeps no process alive."""

    def __init__(self, name: str, target: Target, notice: Say) -> None:
        self._loop = asyncio.new_event_loop()
        self.client = AsyncClient(target, notice=notice)
        threading.Thread(target=self._loop.run_forever, name=f"rule-{name}", daemon=True).start()

    async def call(self, made: Coroutine[Any, Any, object]) -> None:
        """Result of the handler, whose errors it raises. If this is cancelled, so is the handler."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_guarded(made), self._loop))


class HandlerFailed(Exception):
    """The text is the error of a handler."""


async def _guarded(made: Coroutine[Any, Any, object]) -> None:
    """Runs a handler; its own exit or cancellation is an error like others, and ends neither thread nor process."""
    try:
        await made
    except (Park, ClientError):
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise HandlerFailed("CancelledError: the handler canceled itself") from None
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise HandlerFailed(f"{type(error).__name__}: {error}") from error


class RuleRunner:
    def __init__(
        self, app: str, rule: Rule, thread: HandlerThread, window: Window, ledger: Ledger, client: AsyncClient, say: Say
    ) -> None:
        self._app, self._rule, self._thread, self._window, self._ledger = app, rule, thread, window, ledger
        self._client, self._say, self._labels = client, say, Labels(client)
        self._progress = ledger.progress[rule.name]
        self._wake = window.waking()
        self._retries: deque[Retry] = deque()
        self.stopping = asyncio.Event()

    def stop(self) -> None:
        self.stopping.set()
        self._wake.set()

    def retry(self, retry: Retry) -> None:
        """Tries a parked event again, before the next one."""
        self._retries.append(retry)
        self._wake.set()

    async def run(self) -> None:
        """Runs until `stop`. Raises Refused if the token is revoked."""
        while not self.stopping.is_set():
            self._wake.clear()
            try:
                while self._retries and not self.stopping.is_set():
                    await self._again(self._retries[0])
                    self._retries.popleft()
                found = await self._window.after(self._progress.position)
                for told in found.events:
                    if self.stopping.is_set():
                        return
                    if await concerns(self._rule, told, self._labels) and not await self._handle(told):
                        return
                    self._moved(told["position"])
                    if self._retries:
                        break
            except Away:
                await self._pause(PAUSE_SECONDS)
                continue
            if not found.events:
                self._moved(found.upto)
                if found.upto >= self._window.start and not self._retries:
                    await self._wake.wait()

    def _moved(self, position: int) -> None:
        if position > self._progress.position:
            self._progress.position = position
            # What it passes over is noted with the next heartbeat: a restart passes over it again.

    async def _handle(self, told: Told) -> bool:
        """Tries the event until it is handled or parked; False if the process stops before."""
        failed = 0
        while not self.stopping.is_set():
            reason = await self._attempt(told)
            if reason is None:
                self._settled(told)
                self._say(f"{self._rule.name}: {told['type']} at {told['position']} is handled")
                return True
            if isinstance(reason, Away):
                failed = max(failed, 1)  # the cluster's trouble, not the handler's: it is waited for
            else:
                failed += 1
            if isinstance(reason, Park) or failed >= self._rule.attempts:
                try:
                    await self._ledger.park(self._rule.name, told["position"], told["type"], str(reason))
                except Refused as error:
                    reason = error
                else:
                    self._settled(told)
                    self._say(f"{self._rule.name}: {told['type']} at {told['position']} is parked: {reason}")
                    return True
            pause = min(PAUSE_SECONDS * 2.0 ** min(failed - 1, 20), PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.0)
            self._progress.attempts, self._progress.problem = failed, str(reason)
            self._progress.next_us = int((time.time() + pause) * 1e6)
            self._ledger.changed()
            self._say(
                f"{self._rule.name}: {told['type']} at {told['position']} failed ({failed}), next in {pause:.0f} s: {reason}"
            )
            await self._pause(pause)
        return False

    async def _attempt(self, told: Told) -> Exception | None:
        """Error of one attempt; None: the event is handled."""
        try:
            event = Event.of(told)
            cluster = Cluster(self._thread.client, self._app, self._rule.name, event.id, event.position)
            async with asyncio.timeout(self._rule.timeout_seconds):
                await self._thread.call(self._rule.handler(event, cluster))  # type: ignore[arg-type]
        except TimeoutError:
            return HandlerFailed(f"it did not return within {self._rule.timeout_seconds:g} s")
        except Exception as error:
            return error
        return None

    def _settled(self, told: Told) -> None:
        progress = self._progress
        progress.position = max(progress.position, told["position"])
        progress.attempts, progress.problem, progress.next_us = 0, "", None
        self._ledger.changed()

    async def _again(self, retry: Retry) -> None:
        found = await page(self._client, retry.position - 1, retry.position, 1)
        reason: Exception | None = HandlerFailed("the event cannot be read any more")
        if found:
            reason = await self._attempt(found[0])
        if reason is None:
            self._ledger.handled(retry.number)
            self._say(f"{self._rule.name}: parked event {retry.number} is handled")
            return
        event_type = found[0]["type"] if found else "unreadable"
        await self._ledger.park(self._rule.name, retry.position, event_type, str(reason))
        self._ledger.tried(retry.number)
        self._say(f"{self._rule.name}: parked event {retry.number} stays parked: {reason}")

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            pass
