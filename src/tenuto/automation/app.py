"""Automations that users write: an App, and functions that it calls for events."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from tenuto.schemas.events import EVENT_MODELS, EventData

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
ATTEMPTS = 6
"""Attempts at one event, about a minute in all: long enough for a passing trouble to be over."""
TIMEOUT_SECONDS = 3_600.0
"""Longest attempt: a handler that evaluates a checkpoint takes minutes."""
Handler = Callable[..., Awaitable[object]]
H = TypeVar("H", bound=Handler)


class Park(Exception):
    """Raised by a handler: this event cannot be handled, and is not tried again by itself. The text is the reason."""


@dataclass(frozen=True)
class Rule:
    name: str
    handler: Handler
    types: frozenset[str]
    labels: frozenset[str]
    experiments: frozenset[int]
    attempts: int
    timeout_seconds: float

    def wants(self, type_: str, experiment_id: int | None) -> bool:
        """True if type and experiment of the event match; labels are looked up after that."""
        return type_ in self.types and (not self.experiments or experiment_id in self.experiments)


class App:
    """Rules of one automation, whose positions in the log are kept under its name."""

    def __init__(self, name: str) -> None:
        """App of this `name`: small letters, digits, `_`, `.` and `-`, at most 63; a letter first. Raises ValueError for
        another."""
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name an automation: use small letters, digits, _, . and -, a letter first.")
        self.name = name
        """Name under which the positions are kept."""
        self.rules: dict[str, Rule] = {}
        """Rules by name."""

    def on(
        self,
        *types: str | type[EventData],
        labels: Collection[str] = (),
        experiments: Collection[int] = (),
        attempts: int = ATTEMPTS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Callable[[H], H]:
        """Calls the function, `async def rule(event, cluster)`, for each event of these types, in the order of the log. Its name
        is the rule's: the position is stored under it.

        `types`: classes of events, or their names. `labels`: only of experiments that have all of them; empty: of all.
        `experiments`: only of those with these ids; empty: of all. `attempts`: most attempts at one event, with growing pauses;
        then the event is parked. `timeout_seconds`: longest attempt.

        Raises ValueError for an unknown type, no type, a second rule of this name, and limits that are not positive; TypeError
        for a function that is no `async def`.

            from tenuto import automation

            app = automation.App("announce")

            @app.on("ExperimentCompleted", labels=["nightly"])
            async def announce(event, cluster):
                best = await cluster.get_trial(event.data.best_trial_id)
                print(f"experiment {event.experiment_id}: {best.hyperparameters}")
        """
        names = frozenset(item if isinstance(item, str) else item.TYPE for item in types)
        if not names:
            raise ValueError("on() needs the type of an event, such as ExperimentCompleted.")
        if unknown := sorted(names - EVENT_MODELS.keys()):
            raise ValueError(f"{unknown[0]!r} is no type of event: docs/reference/events.schema.json has all that there are.")
        if attempts < 1 or timeout_seconds <= 0:
            raise ValueError("attempts must be at least 1, and timeout_seconds above 0.")

        def add(handler: H) -> H:
            name = getattr(handler, "__name__", "")
            coroutine: bool = inspect.iscoroutinefunction(handler)  # a name, as mypy would narrow `handler` by the call
            if not coroutine:
                raise TypeError(f"{name} must be an `async def`, as it awaits the cluster.")
            if name in self.rules:
                raise ValueError(f"There are two rules named {name}: the name stands for a position in the log, so give another.")
            self.rules[name] = Rule(name, handler, names, frozenset(labels), frozenset(experiments), attempts, timeout_seconds)
            return handler

        return add


def app_of(names: dict[str, Any], wanted: str | None) -> App:
    """The App among the names of a module. Raises ValueError."""
    found = {item.name: item for item in names.values() if isinstance(item, App)}
    if wanted is not None and wanted not in found:
        raise ValueError(f"has no App named {wanted!r}, but {', '.join(sorted(found)) or 'none at all'}")
    if wanted is None and len(found) != 1:
        raise ValueError(f"has {len(found)} Apps: name one with --app" if found else "has no App: `app = automation.App(NAME)`")
    app = found[wanted] if wanted is not None else next(iter(found.values()))
    if not app.rules:
        raise ValueError(f"has no rule: decorate a function with `@app.on(...)` of App {app.name!r}")
    return app
