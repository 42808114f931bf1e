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
from tenuto.kernel.reactions import CannotPark, Failure, Reaction, ReceiverProgress, Retries

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


class _RuleDelivery:
    """Delivery of one event to the handler of a rule. `retry`: the parked event, if it is one."""

    def __init__(self, runner: RuleRunner, position: int, told: Told | None, retry: Retry | None = None) -> None:
        self._runner, self._position, self._told, self._retry = runner, position, told, retry
        self._type = "unreadable" if told is None else told["type"]
        self._what = f"{self._type} at {position}" if retry is None else f"parked event {retry.number}"

    def stopped(self) -> bool:
        return self._runner.stopping.is_set()

    async def attempt(self) -> None:
        if self._told is None:
            raise HandlerFailed("the event cannot be read any more")
        rule = self._runner.rule
        event = Event.of(self._told)
        try:
            async with asyncio.timeout(rule.timeout_seconds):
                await self._runner.thread.call(rule.handler(event, self._runner.cluster(event)))  # type: ignore[arg-type]
        except TimeoutError:
            raise HandlerFailed(f"it did not return within {rule.timeout_seconds:g} s") from None
        if self._retry is not None:
            self._runner.ledger.handled(self._retry.number)
        self.say("is handled")

    def failure(self, error: Exception) -> Failure:
        return Failure(str(error), "final" if isinstance(error, Park) else "outage" if isinstance(error, Away) else "attempt")

    async def park(self, progress: ReceiverProgress, failure: Failure) -> None:
        try:
            await self._runner.ledger.park(self._runner.rule.name, self._position, self._type, failure.reason)
        except Refused as error:
            raise CannotPark(str(error)) from None
        if self._retry is not None:
            self._runner.ledger.tried(self._retry.number)
        self.say(f"is parked: {failure.reason}")

    async def wait(self, progress: ReceiverProgress, failure: Failure) -> None:
        seconds = max(0.0, (progress.next_us or 0) / 1e6 - time.time())
        if self._retry is None:
            self._runner.note(progress)
        count = "" if failure.kind == "outage" else f" ({progress.attempts})"
        self.say(f"failed{count}, next in {seconds:.0f} s: {failure.reason}")
        await self._runner.pause(seconds)

    def say(self, text: str) -> None:
        self._runner.say(f"{self._runner.rule.name}: {self._what} {text}")


class RuleRunner:
    def __init__(
        self, app: str, rule: Rule, thread: HandlerThread, window: Window, ledger: Ledger, client: AsyncClient, say: Say
    ) -> None:
        self.rule, self.thread, self.ledger, self.say = rule, thread, ledger, say
        self._app, self._window, self._client, self._labels = app, window, client, Labels(client)
        self._wake = window.waking()
        self._retries: deque[Retry] = deque()
        self._reaction = self._reacting(rule.attempts, ledger.progress[rule.name])
        self.stopping = asyncio.Event()

    def _reacting(self, attempts: int, progress: ReceiverProgress) -> Reaction:
        retries = Retries(PAUSE_SECONDS, PAUSE_SECONDS_MAX, attempts_max=attempts)
        return Reaction(retries, lambda: time.time_ns() // 1000, random.random, progress)

    def stop(self) -> None:
        self.stopping.set()
        self._wake.set()

    def retry(self, retry: Retry) -> None:
        """Tries a parked event again, before the next one."""
        self._retries.append(retry)
        self._wake.set()

    def cluster(self, event: Event[Any]) -> Cluster:
        return Cluster(self.thread.client, self._app, self.rule.name, event.id, event.position)

    async def run(self) -> None:
        """Runs until `stop`. Raises Refused if the token is revoked."""
        while not self.stopping.is_set():
            self._wake.clear()
            try:
                while self._retries and not self.stopping.is_set():
                    await self._again(self._retries[0])
                    self._retries.popleft()
                found = await self._window.after(self._reaction.progress.position)
                for told in found.events:
                    if self.stopping.is_set():
                        return
                    if await concerns(self.rule, told, self._labels) and not await self._handle(told):
                        return
                    self._passed(told["position"])
                    if self._retries:
                        break
            except Away:
                await self.pause(PAUSE_SECONDS)
                continue
            if not found.events:
                self._passed(found.upto)
                if found.upto >= self._window.start and not self._retries:
                    await self._wake.wait()

    def note(self, progress: ReceiverProgress) -> None:
        self.ledger.progress[self.rule.name] = progress
        self.ledger.changed()

    def _passed(self, position: int) -> None:
        # Without `changed`: it is noted with the next heartbeat, as a restart passes over the same events again.
        self._reaction.progress = self.ledger.progress[self.rule.name] = self._reaction.progress.passed(position)

    async def _handle(self, told: Told) -> bool:
        """Tries the event until it is handled or parked; False if the process stops before."""
        delivery = _RuleDelivery(self, told["position"], told)
        if not await self._reaction.settle(delivery, told["position"]):
            return False
        self.note(self._reaction.progress)
        return True

    async def _again(self, retry: Retry) -> None:
        """Tries a parked event once more; what fails is parked again."""
        found = await page(self._client, retry.position - 1, retry.position, 1)
        delivery = _RuleDelivery(self, retry.position, found[0] if found else None, retry)
        await self._reacting(1, ReceiverProgress()).settle(delivery, retry.position)

    async def pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            pass
