"""Decisions of the gateway: the events of a request, or its refusal. A repeated request changes nothing more."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Command
from tenuto.kernel.decision_tables import joined
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.services.gateway.cluster import decide as cluster
from tenuto.services.gateway.experiments import decide as experiments
from tenuto.services.gateway.experiments.decide.experiments import check_fork
from tenuto.services.gateway.experiments.decide.rule_actions import act
from tenuto.services.gateway.notices import decide as notices
from tenuto.services.gateway.notices.decide.triggered_notices import follow, follow_own
from tenuto.services.gateway.people import decide as people
from tenuto.services.gateway.state import State
from tenuto.services.gateway.templates import decide as templates

DECISIONS = joined(people.DECISIONS, templates.DECISIONS, cluster.DECISIONS, experiments.DECISIONS, notices.DECISIONS)


def decide(state: State, cause: Event | Command) -> Sequence[EventData]:
    """Events that follow from a cause. Raises Refused, for an experiment that is not known (not_found), has ended or is being
    canceled (conflict), or is another user's (forbidden); likewise for other resources."""
    if isinstance(cause, Event):
        # Without a webhook or a rule the payload is not even decoded.
        found = follow(state.notices, cause.data, cause.time_us, state.hidden_from) if state.notices.webhooks else ()
        return [*found, *act(state, cause, found, check_fork)]
    decision = DECISIONS.get(type(cause))
    if decision is None:
        return ()
    events = decision(state, cause)
    return [*events, *follow_own(state.notices, events, cause.time_us, state.hidden_from)]
