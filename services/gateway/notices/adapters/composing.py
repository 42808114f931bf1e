"""Puts notices into words, with data about the experiment from the views at that moment: its name, the error, the last lines of
the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from tenuto.kernel.clock import Clock
from tenuto.services.gateway.notices.adapters.messages import LOG_LINES_MAX, About, Message, told
from tenuto.services.gateway.notices.policies.delivering import message_id
from tenuto.services.gateway.notices.state import Notice, Webhook

VIEWS_SECONDS_MAX = 2.0
"""Longest wait for the views to show what the notice is about; an incomplete message is better than a late one."""


class ExperimentFacts(Protocol):
    """Facts about an experiment that a message shows; those of a trial are in `TrialFacts`."""

    @property
    def name(self) -> str: ...

    @property
    def user(self) -> str: ...

    @property
    def error(self) -> str | None: ...


class TrialFacts(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def error(self) -> str | None: ...


class Line(Protocol):
    @property
    def text(self) -> str: ...


class MessageViews(Protocol):
    """Views that a message is composed from."""

    async def experiment(self, experiment_id: int, /) -> ExperimentFacts | None: ...

    async def trial(self, trial_id: str, /) -> TrialFacts | None: ...

    async def last_lines(self, experiment_id: int, trial_number: int | None, count: int, /) -> Iterable[Line]: ...


class Composer:
    def __init__(
        self, views: MessageViews, caught_up: Callable[[], Awaitable[None]], clock: Clock, public_url: str, actor: str
    ) -> None:
        """`caught_up` returns when the views show what is decided on by now. `actor`: service and rules that decide notices."""
        self._views, self._caught_up, self._clock = views, caught_up, clock
        self._public_url, self._actor = public_url.rstrip("/"), actor

    async def compose(self, webhook: Webhook, notices: Sequence[Notice]) -> Message:
        """Raises errors of the database."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VIEWS_SECONDS_MAX):
                await self._caught_up()
        known: dict[tuple[int | None, str | None], About] = {}
        for notice in notices:
            key = (notice.experiment_id, notice.trial_id)
            if key not in known:
                known[key] = await self._about(notice)
        experiments = {notice.experiment_id for notice in notices}
        [only] = experiments if len(experiments) == 1 else [None]
        return Message(
            id=message_id(notices),
            webhook=webhook.name,
            time_us=self._clock.now_us(),
            notices=tuple(
                told(notice, known[notice.experiment_id, notice.trial_id], self._link(notice), self._actor) for notice in notices
            ),
            reference="" if only is None else webhook.references.get(only, ""),
        )

    async def _about(self, notice: Notice) -> About:
        if notice.experiment_id is None:
            return About()
        experiment = await self._views.experiment(notice.experiment_id)
        if experiment is None:
            return About()
        trial = None if notice.trial_id is None else await self._views.trial(notice.trial_id)
        number = None if trial is None else trial.number
        rows = await self._views.last_lines(notice.experiment_id, number, LOG_LINES_MAX)
        lines = tuple(row.text for row in rows)
        error = (trial.error if trial is not None else experiment.error) or ""
        return About(experiment.name, experiment.user, error if notice.severity != "info" else "", lines)

    def _link(self, notice: Notice) -> str:
        """Address on the web page, which asks a user who is not signed in to do so."""
        if notice.trial_id is not None:
            return f"{self._public_url}/trials/{notice.trial_id}"
        if notice.experiment_id is not None:
            return f"{self._public_url}/experiments/{notice.experiment_id}"
        return f"{self._public_url}/cluster"
