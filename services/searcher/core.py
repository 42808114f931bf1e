"""The searcher's core: its rooms put together, as the service loop, replay and the simulator run them."""

from __future__ import annotations

from tenuto.kernel.codec import Codec
from tenuto.kernel.core import Command, FoldedCore, Refused
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.services.searcher.commands import GiveUp, ProposeTrial
from tenuto.services.searcher.decide import decide, give_up, propose, settle
from tenuto.services.searcher.evolve import FOLDS, evolve, experiment_of
from tenuto.services.searcher.methods import RULE_VERSION
from tenuto.services.searcher.state import SearcherState, check, derive, initial


class SearcherCore(FoldedCore[SearcherState]):
    """A `Core[SearcherState]`. What users want reaches it as recorded requests; its only commands are a trial that a
    sampler outside the pure rules proposes, and that there will be none."""

    name = "searcher"
    folds = FOLDS
    codec = Codec(SearcherState, derive)

    def __init__(self, rule_version: int = RULE_VERSION) -> None:
        """`rule_version`: by which rules experiments are searched that start now; older ones keep theirs."""
        self.rule_version = rule_version

    def initial(self) -> SearcherState:
        return initial()

    def evolve(self, state: SearcherState, event: Event) -> SearcherState:
        return evolve(state, event.data)

    def decide(self, state: SearcherState, cause: Event | Command) -> list[EventData]:
        if isinstance(cause, ProposeTrial):
            return propose(state, cause)
        if isinstance(cause, GiveUp):
            return give_up(state, cause)
        if not isinstance(cause, Event):
            raise Refused("The searcher takes no commands; ask the REST interface instead.", "invalid")
        return decide(state, cause.data, self.rule_version) if cause.type in self.consumes else []

    def settle(self, state: SearcherState, cause: Event | Command) -> tuple[list[EventData], SearcherState]:
        if isinstance(cause, Event) and cause.type in self.consumes:
            return settle(state, cause.data, self.rule_version)
        decided = self.decide(state, cause)
        for data in decided:
            state = evolve(state, data)
        return decided, state

    def correlation_id(self, state: SearcherState, data: EventData) -> str:
        experiment_id = experiment_of(data)
        return "" if experiment_id is None else str(experiment_id)

    def check(self, state: SearcherState) -> None:
        check(state)
