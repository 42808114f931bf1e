"""The gateway's rules, assembled for the service loop and replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from immutables import Map

from tenuto.kernel.core import Command
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import Request
from tenuto.services.gateway import decide, evolve, state
from tenuto.services.gateway.state import Live, Share, State, Token, User


class GatewayCore:
    name = "gateway"
    rule_version = 3
    """2: shares and half-lives are remembered; a snapshot of version 1 does not know those that were set before it. 3: users have
    several tokens, which expire, and own what was submitted since they were made."""
    consumes = frozenset({"ExperimentCompleted", "ExperimentFailed", "ExperimentCanceled"})
    emits = frozenset(
        {
            "ExperimentSubmitted",
            "ExperimentPauseRequested",
            "ExperimentResumeRequested",
            "ExperimentCancelRequested",
            "ExperimentPriorityChanged",
            "ExperimentWeightChanged",
            "ExperimentSlotLimitChanged",
            "ExperimentTrialLimitsChanged",
            "ExperimentMoved",
            "ExperimentPoolChanged",
            "SearchOperationsRequested",
            "PoolPolicyChanged",
            "ShareChanged",
            "SlotsClosed",
            "SlotsOpened",
            "UserCreated",
            "UserRemoved",
            "TokenCreated",
            "TokenRevoked",
        }
    )

    def initial(self) -> State:
        return state.initial()

    def evolve(self, state: State, event: Event) -> State:
        return evolve.evolve(state, event)

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return decide.decide(state, cause)

    def correlation_id(self, state: State, data: EventData) -> str:
        return str(data.experiment_id) if isinstance(data, Request) else ""

    def guards(self, state: State, cause: Event | Command) -> Mapping[str, int]:
        """None: a request that arrives while the search ends the experiment is harmless, whichever is recorded first."""
        return {}

    def check(self, state_: State) -> None:
        state.check(state_)

    def dump(self, state: State) -> bytes:
        document = {
            "submitted": state.submitted,
            "live": [vars(state.live[key]) for key in sorted(state.live)],
            "users": [vars(state.users[key]) for key in sorted(state.users)],
            "tokens": [vars(state.tokens[key]) for key in sorted(state.tokens)],
            "shares": {key: list(state.shares[key]) for key in sorted(state.shares)},
            "half_lives": dict(state.half_lives.items()),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    def load(self, data: bytes) -> State:
        document = json.loads(data)
        users = [User(**item) for item in document["users"]]
        return State(
            document["submitted"],
            Map({item["experiment_id"]: Live(**item) for item in document["live"]}),
            Map({user.name: user for user in users}),
            Map({item["token_hash"]: Token(**item) for item in document["tokens"]}),
            Map({owner: Share(*share) for owner, share in document["shares"].items()}),
            Map(document["half_lives"]),
        )
