"""Trial runs of rules: past events are given to them; calls that change something are recorded, and not made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tenuto.automation.app import App, Park, Rule
from tenuto.automation.cluster import Call, DryCluster, NotMade
from tenuto.automation.events import Event
from tenuto.automation.rules import Labels, concerns
from tenuto.automation.window import page
from tenuto.client import AsyncClient


@dataclass(frozen=True)
class Tried:
    rule: str
    position: int
    event_type: str
    experiment_id: int | None
    calls: tuple[Call, ...]
    end: str
    """End of the handler if it did not return: its error, or that it needs the result of a call that was not made."""


async def replay(app: App, client: AsyncClient, after: int, upto: int | None = None) -> AsyncIterator[Tried]:
    """Events behind `after`, in order, up to `upto` or the present end of the log. Reads of the handlers see the cluster as it is
    now. Raises ClientError."""
    if upto is None:
        upto = int((await client.get("/status"))["head"])
    labels = Labels(client)
    while after < upto and (events := await page(client, after, upto)):
        for told in events:
            after = told["position"]
            for rule in app.rules.values():
                if not await concerns(rule, told, labels):
                    continue
                cluster = DryCluster(client, app.name, rule.name, told["id"], told["position"])
                end = await _end(rule, told, cluster)
                yield Tried(rule.name, after, told["type"], _experiment(told), tuple(cluster.calls), end)


async def _end(rule: Rule, told: dict[str, Any], cluster: DryCluster) -> str:
    """Calls the handler; see `Tried.end`."""
    try:
        event = Event.of(told)
        async with asyncio.timeout(rule.timeout_seconds):
            await rule.handler(event, cluster)
    except NotMade as error:
        return str(error)
    except Park as error:
        return f"It is parked: {error}"
    except TimeoutError:
        return f"It did not return within {rule.timeout_seconds:g} s."
    except Exception as error:
        return f"It fails: {type(error).__name__}: {error}"
    return ""


def _experiment(told: dict[str, object]) -> int | None:
    correlation = str(told.get("correlation_id", ""))
    return int(correlation) if correlation.isdecimal() else None
