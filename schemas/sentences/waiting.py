"""Reasons why a trial waits for slots, for questions about the queue. None of them is recorded: the scheduler sends them in
its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.schemas.events.agent import IMAGES_LABEL
from tenuto.schemas.queue import expected_when
from tenuto.schemas.sentences.amounts import are, slots
from tenuto.schemas.sentences.rules import Data, Numbers, rule

QUEUE = "queue"
"""Key of these rules in place of an event's type. The subject of the sentences is a row with its `pool`."""
NAMES_SHOWN_MAX = 3
"""Most experiments or agents named in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Waiting(Numbers):
    """Sentences about waiting begin with a verb and end without a full stop, so that a reader can put a subject before them."""


@dataclass(frozen=True, kw_only=True)
class GangWaits(Waiting):
    """Slots that the gang needs, and where."""

    slots_wanted: int
    locality: str = "any"
    """`agent` or `rack`: all slots are on one. `any`: anywhere."""
    device: str = ""
    labels: tuple[str, ...] = ()
    """Labels that the agents must have."""
    exclude: tuple[str, ...] = ()
    """First few of the agents that the gang must not be placed on."""

    @property
    def kind(self) -> str:
        text = {"agent": " on one agent", "rack": " in one rack"}.get(self.locality, "")
        if self.device:
            text += f" with device {self.device}"
        if labels := [label for label in self.labels if label != IMAGES_LABEL]:
            text += f" labelled {', '.join(labels)}"
        if IMAGES_LABEL in self.labels:
            text += " where images run (TENUTO_DOCKER_URL, or node_images of the pool)"
        return f"{text} outside {', '.join(self.exclude)}" if self.exclude else text

    @property
    def needs(self) -> str:
        return f"needs {slots(self.slots_wanted)}{self.kind}"


def kept_for(experiments: Sequence[int]) -> str:
    names = ", ".join(str(number) for number in experiments[:NAMES_SHOWN_MAX])
    more = len(experiments) - NAMES_SHOWN_MAX
    return f"kept for experiment{'s' if len(experiments) > 1 else ''} {names}" + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, kw_only=True)
class Expected(GangWaits):
    expected_us: int | None = None
    """Expected start of the trial, in microseconds since 1970. Readers show it in their own time zone."""
    expected_trial: str = ""
    """Trial whose end makes room for the gang then."""

    @property
    def expected(self) -> str:
        return expected_when(self.expected_trial) if self.expected_trial else ""


@rule(QUEUE, "too_large")
@dataclass(frozen=True, kw_only=True)
class TooLarge(GangWaits):
    slots_offered: int
    """Slots that the pool's agents offer, busy or not."""

    def sentence(self, about: Data) -> str:
        offer = f"all agents of pool {about['pool']} together offer {self.slots_offered}"
        return f"{self.needs}, but {offer}; it waits for more agents"


@rule(QUEUE, "no_room")
@dataclass(frozen=True, kw_only=True)
class NoRoom(GangWaits):
    slots_offered: int = 0
    """Slots that the pool's agents offer, busy or not."""
    agents_apart: int = 0
    """Number of the pool's agents that run as a whole in an image that the trial does not name."""

    def sentence(self, about: Data) -> str:
        pool, apart = about["pool"], ""
        if self.agents_apart:
            has, which = ("1 agent", "runs") if self.agents_apart == 1 else (f"{self.agents_apart} agents", "run")
            apart = f" ({has} there {which} in an image that it does not name, for trials that do)"
        if not self.slots_wanted:
            return f"needs no slots{self.kind}, but pool {pool} has no agent in service that may run it{apart}; it waits for one"
        return f"{self.needs}, which no agents of pool {pool} can offer even when idle{apart}; it waits for other agents"


@rule(QUEUE, "agents_full")
@dataclass(frozen=True, kw_only=True)
class AgentsFull(GangWaits):
    agents: int
    """Number of agents that may run the trial."""
    trials_max: int
    """Most trials without slots that these agents take together."""

    def sentence(self, about: Data) -> str:
        those = "the only agent" if self.agents == 1 else f"each of the {self.agents} agents"
        full = f"has as many such trials as it takes ({self.trials_max} in all)"
        return f"needs no slots{self.kind}, but {those} of pool {about['pool']} that may run it {full}"


@rule(QUEUE, "no_room_yet")
@dataclass(frozen=True, kw_only=True)
class NoRoomYet(Expected):
    slots_free_most: int
    """Most free slots in one of the rooms that the gang may be placed in."""
    rooms: int
    """Number of these rooms."""
    rooms_nearest: int
    """Number of the rooms with the most free slots."""
    kept_for: tuple[int, ...] = ()
    """Experiments for which some of the free slots are kept."""

    def sentence(self, about: Data) -> str:
        if self.rooms == 1:
            text = f"{self.needs}; {are(self.slots_free_most)} free there"
        else:
            what = {"agent": "agent", "rack": "rack"}.get(self.locality, "set")
            have = f"1 {what} has" if self.rooms_nearest == 1 else f"{self.rooms_nearest} {what}s have"
            text = f"{self.needs}; {have} {self.slots_free_most} free, none has more"
        if self.kept_for:
            text += f"; slots there are {kept_for(self.kept_for)}"
        return f"{text}{self.expected}"


@rule(QUEUE, "soon")
@dataclass(frozen=True, kw_only=True)
class Soon(GangWaits):
    slots_free: int

    def sentence(self, about: Data) -> str:
        return f"{self.needs}; {are(self.slots_free)} free and the others are being freed for it"


@rule(QUEUE, "preempting")
@dataclass(frozen=True, kw_only=True)
class Preempting(GangWaits):
    victims: int
    """Number of trials that leave for the gang."""
    shrink: bool = False
    """True: these trials are elastic and give up a part of their slots instead of leaving."""

    def sentence(self, about: Data) -> str:
        if self.shrink:
            others = "1 elastic trial gives" if self.victims == 1 else f"{self.victims} elastic trials give"
            return f"{self.needs}; {others} up slots for it at a checkpoint"
        others = "1 running trial saves" if self.victims == 1 else f"{self.victims} running trials save"
        return f"{self.needs}; {others} a checkpoint and give way to it"


@rule(QUEUE, "held")
@dataclass(frozen=True, kw_only=True)
class SlotsHeld(Expected):
    slots_free: int
    slots_leaving: int
    """Slots that are being freed."""
    slots_kept: int
    """Free slots that are kept for others."""
    kept_for: tuple[int, ...] = ()
    """Experiments that the free slots are kept for."""
    slots_offered: int
    """Slots that the pool's agents offer, busy or not."""

    def sentence(self, about: Data) -> str:
        free = self.slots_free + self.slots_kept
        text = f"{self.needs}; {free} of {self.slots_offered} {'is' if free == 1 else 'are'} free"
        if self.slots_kept:
            text += f", {self.slots_kept} of them {kept_for(self.kept_for)}"
        if self.slots_leaving:
            text += f", {are(self.slots_leaving)} being freed"
        return f"{text}, and no running trial has to give way to it{self.expected}"


@rule(QUEUE, "behind")
@dataclass(frozen=True, kw_only=True)
class Behind(GangWaits):
    kept: bool = True
    """True: the free slots are kept for others. False: the scheduler has not looked at the gang yet."""

    def sentence(self, about: Data) -> str:
        if self.kept:
            return f"{self.needs}; the free slots are kept for those ahead of it"
        return f"needs {slots(self.slots_wanted)}; those ahead of it are served first"


@rule(QUEUE, "limit")
@dataclass(frozen=True, kw_only=True)
class Limit(Waiting):
    owner: str
    """Owner of the limit: `experiment 3`, `user olga` or `workspace vision`."""
    slots_used: int = 0
    """Slots that the owner uses."""
    slots_max: int = 0
    """Most slots that the owner may use."""
    ahead_experiment: int | None = None
    """Experiment ahead, for which the rest of the limit is kept. None: none is."""
    slots_wanted_ahead: int = 0
    """Slots that the experiment ahead needs."""

    def sentence(self, about: Data) -> str:
        if self.ahead_experiment is None:
            return f"{self.owner} uses {slots(self.slots_used)} and may use {self.slots_max}"
        ahead = f"experiment {self.ahead_experiment}, which is ahead of it"
        return f"what is left of the quota of {self.owner} is kept for {ahead}"


@rule(QUEUE, "share")
@dataclass(frozen=True, kw_only=True)
class ShareUsed(GangWaits):
    slots_used: int
    """Slots that the trial's experiment uses."""
    slots_share: int
    """Fair share of the experiment, in slots."""
    expected_us: int | None = None
    """Latest start of the experiment's turn, in microseconds since 1970. None: its gang is not larger than its share."""

    def sentence(self, about: Data) -> str:
        text = f"{self.needs}; it uses {slots(self.slots_used)}, and its fair share is {self.slots_share} now"
        turn = "" if self.expected_us is None else ", less than one gang: it gets its slots in turn with the others"
        return text + turn


@rule(QUEUE, "leaving")
@dataclass(frozen=True, kw_only=True)
class Leaving(Waiting):
    trials: int
    """Number of trials that wait for slots again as soon as their workers have left."""
    slots: int
    """Slots that these trials are freeing."""

    def sentence(self, about: Data) -> str:
        if self.trials == 1:
            return f"1 trial gives up {slots(self.slots)} and waits for others as soon as its workers have left"
        return f"{self.trials} trials give up {slots(self.slots)} and wait for others as soon as their workers have left"
