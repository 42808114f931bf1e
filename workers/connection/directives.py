"""The latest directive for the worker, shared between the thread that listens to the agent and the one that trains."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import get_args

from tenuto.schemas.assignments import Action

ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True)
class Directive:
    action: Action
    target_length: int
    """Length to train to, in the unit of the experiment's `searcher.max_length`."""

    @property
    def leave(self) -> bool:
        return self.action != "run"


class AgentGone(Exception):
    """The agent was silent, or did not know this worker, for longer than its restart takes."""


class DirectiveBox:
    """Holds the latest directive. A request to leave from inside the process (`leave`) is not undone by a later `run` of the
    agent."""

    def __init__(self, first: Directive) -> None:
        self._changed = threading.Condition()
        self._current = first
        self._held = False
        self._gone: str | None = None

    @property
    def current(self) -> Directive:
        """The latest directive. Raises AgentGone."""
        if self._gone is not None:
            raise AgentGone(self._gone)
        return self._current

    def differs(self, seen: Directive) -> bool:
        """True if the directive is not the one last seen. Cheap: asked after every batch."""
        return self._current is not seen or self._gone is not None

    def put(self, directive: Directive) -> None:
        with self._changed:
            if directive != self._current and not (self._held and not directive.leave):
                self._current = directive
                self._changed.notify_all()

    def leave(self, action: Action) -> None:
        """Asks the training thread to leave, whatever the agent says later. Called by a signal handler, so it takes no lock,
        which the interrupted thread might hold; a waiting thread notices within WAIT_SECONDS_MAX."""
        self._held = True
        self._current = Directive(action, self._current.target_length)

    def agent_gone(self, reason: str) -> None:
        with self._changed:
            self._gone = reason
            self._changed.notify_all()

    def wait_change(self, seen: Directive) -> Directive:
        """Blocks until the directive differs from `seen`. Raises AgentGone."""
        with self._changed:
            while not self.differs(seen):
                self._changed.wait(WAIT_SECONDS_MAX)
        return self.current


WAIT_SECONDS_MAX = 0.5
"""Pause between checks of a waiting thread, because a signal handler cannot wake it."""
