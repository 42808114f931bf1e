"""Requests and answers of the automation routes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tenuto.schemas.base import Model

AUTOMATION_NAME_PATTERN = r"^[a-z][a-z0-9_.-]{0,62}$"
RULES_MAX = 50
"""Each rule has a position of its own, which a heartbeat brings along."""
REASON_CHARACTERS_MAX = 2_000
MOVES_MAX = 1_000
RETRIES_MAX = 100
RuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$")]
Position = Annotated[int, Field(ge=0, le=2**62)]
Number = Annotated[int, Field(ge=1, le=2**62)]


class StartAutomationBody(Model):
    rules: tuple[RuleName, ...] = Field(min_length=1, max_length=RULES_MAX)
    after: Position | None = None
    """Position behind which rules begin that are new to the automation. null: the present end of the log."""
    source: Literal["sse", "nats"] = "sse"
    """Source from which the process reads events; only shown to users."""


class RuleMove(Model):
    rule: RuleName
    position: Position
    """Position of the last event that is handled or passed over."""
    attempts: int = Field(default=0, ge=0, le=2**31 - 1)
    """Failed attempts at the next event after that position. 0: none failed."""
    problem: str = Field(default="", max_length=REASON_CHARACTERS_MAX)
    next_us: Annotated[int, Field(ge=0, le=2**62)] | None = None
    """Time of the next attempt. null: none is scheduled."""


class RuleParks(Model):
    """An event that a rule could not handle, and passes over."""

    rule: RuleName
    position: Position
    event_type: str = Field(min_length=1, max_length=256)
    reason: str = Field(max_length=REASON_CHARACTERS_MAX)


class MoveAutomationBody(Model):
    run: Number
    """Run number that the start answered. After a later start, nothing is moved and the answer is 409."""
    rules: tuple[RuleMove, ...] = Field(default=(), max_length=MOVES_MAX)
    parked: tuple[RuleParks, ...] = Field(default=(), max_length=MOVES_MAX)
    handled: tuple[Number, ...] = Field(default=(), max_length=MOVES_MAX)
    """Numbers of parked events that were tried again and are handled."""
    ended: bool = False
    """True if the process ends."""


class RetryView(Model):
    number: int
    rule: str
    position: int


class MovedView(Model):
    retries: tuple[RetryView, ...]
    """Parked events that a user wants tried again."""


class RetryAutomationBody(Model):
    numbers: tuple[Number, ...] = Field(default=(), max_length=MOVES_MAX)
    """Numbers of parked events. Empty: all of the automation."""


class RetriedView(Model):
    numbers: tuple[int, ...]
    """Parked events that the process tries again, when it runs."""


class RemovedView(Model):
    name: str


class RuleView(Model):
    rule: str
    position: int
    behind: int
    """Events between that position and the end of the log, of whatever type."""
    attempts: int
    problem: str
    """Error of the last attempt; empty if it did not fail."""
    next_us: int | None
    parked: int


class ParkedEventView(Model):
    number: int
    rule: str
    position: int
    event_type: str
    reason: str
    parked_us: int
    retries: int
    retry_asked: bool


class AutomationView(Model):
    name: str
    owner: str
    run: int
    """Number of starts so far."""
    source: str
    state: Literal["running", "silent", "ended"]
    """silent: nothing was heard of its process for half a minute, and it did not say that it ends."""
    created_us: int
    seen_us: int
    rules: tuple[RuleView, ...]
    parked: tuple[ParkedEventView, ...]
    """The first hundred, in the order in which they were parked."""


class AutomationTroubleView(Model):
    name: str
    state: Literal["running", "silent", "ended"]
    """silent: nothing is heard of its process."""
    parked: int
    """Events that it could not handle, kept with their reasons."""
    problem: str
    """Rule and error of an event that is being tried again; empty if there is none."""
