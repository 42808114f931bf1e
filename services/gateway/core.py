"""The gateway's rules, assembled for the service loop and replay."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.codec import Codec
from tenuto.kernel.core import Command, FoldedCore
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.notice import WebhookTriggered
from tenuto.schemas.events.request import RequestEvent
from tenuto.services.gateway import state
from tenuto.services.gateway.decide import decide
from tenuto.services.gateway.evolve import FOLDS, ONLY_DECIDED_ON
from tenuto.services.gateway.state import State


class GatewayCore(FoldedCore[State]):
    """No guards: a request that arrives while the search ends the experiment is harmless, whichever is recorded first."""

    name = "gateway"
    rule_version = 5
    """2: shares and half-lives are remembered; a snapshot of version 1 does not know those that were set before it. 3: users have
    several tokens, which expire, and own what was submitted since they were made. 4: an infinite metric is
    beyond a webhook's bound and never better, as NaN. 5: the fork that a rule makes is what a submission of it would be, its
    shortest rung, too."""
    folds = FOLDS
    codec = Codec(State)

    def initial(self) -> State:
        return state.initial()

    def evolve(self, state: State, event: Event) -> State:
        # Of what is only decided on, the payload is not even decoded while there is no webhook.
        return state if event.type in ONLY_DECIDED_ON else FOLDS.evolve(state, event)

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return decide(state, cause)

    def correlation_id(self, state: State, data: EventData) -> str:
        if isinstance(data, (RequestEvent, WebhookTriggered)) and data.experiment_id is not None:
            return str(data.experiment_id)
        return ""

    def check(self, state_: State) -> None:
        state.check(state_)
