"""`exp replay`: the state at any position of the log, and every decision taken again and compared with the record."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenuto.client.blocking.client import Client
    from tenuto.kernel.core import AnyCore
    from tenuto.kernel.replay import Verdict
    from tenuto.schemas.envelope import Event


OWN_SERVICES = ("searcher", "tracker")
"""Services whose decisions about an experiment follow from its own events; scheduler and launcher decide over all experiments
at once, and the gateway only passes on what users ask for."""
WHOLE_EVENTS_MAX = 20_000
"""A log up to this length is read as a whole, in some seconds; of a longer one what the question needs."""


DEAREST_FIRST = ("scheduler", "searcher", "launcher", "tracker", "gateway")
"""Services by the time that their decisions take again: side by side the longest begins first."""
SIDE_BY_SIDE_EVENTS_MIN = 2_000
"""Events below which all services are done before other processes would have begun."""


@dataclass(frozen=True)
class ServiceVerdict:
    service: str
    rule_version: int
    verdict: Verdict
    of_experiment: int
    """Events of this service about the experiment."""


def cores() -> list[AnyCore]:
    """The pure cores of this build, the same code that the services run."""
    from tenuto.services.gateway.core import GatewayCore
    from tenuto.services.launcher.core import LauncherCore
    from tenuto.services.scheduler.core import SchedulerCore
    from tenuto.services.searcher.core import SearcherCore
    from tenuto.services.tracker.core import TrackerCore

    return [GatewayCore(), SearcherCore(), SchedulerCore(), LauncherCore(), TrackerCore()]


def fetch(client: Client, upto: int | None, experiment_id: int | None = None) -> list[Event]:
    """An experiment's events, by the log's index of them; None: the whole log."""
    from tenuto.schemas.envelope import decode_event

    return [decode_event(body) for body in client.event_bodies(upto=upto, experiment=experiment_id)]


def verify(events: list[Event], experiment_id: int, *, whole: bool = True) -> list[ServiceVerdict]:
    """`events`: the whole log; not `whole`: those of the experiment, on which the services of OWN_SERVICES alone depend. Searches
    that this Python cannot decide again are left out."""
    from tenuto.cli.side_by_side import each

    left_out = undecidable(events)

    def judge(core: AnyCore) -> ServiceVerdict:
        return _judge(core, events, experiment_id, left_out)

    parts = sorted(chosen(whole), key=lambda core: DEAREST_FIRST.index(core.name))
    verdicts = {item.service: item for item in each(judge, parts, worth_it=len(events) >= SIDE_BY_SIDE_EVENTS_MIN)}
    return [verdicts[core.name] for core in chosen(whole)]


def _judge(core: AnyCore, events: list[Event], experiment_id: int, left_out: Container[int]) -> ServiceVerdict:
    from tenuto.kernel.replay import verify_decisions

    own = sum(1 for event in events if event.type in core.emits and event.correlation_id == str(experiment_id))
    seen = [event for event in events if not _about(event, left_out)] if core.name == "searcher" and left_out else events
    return ServiceVerdict(core.name, core.rule_version, verify_decisions(core, seen), own)


def undecidable(events: Iterable[Event]) -> dict[int, str]:
    """Reasons why searches cannot be decided again here, as sentences, by experiment; empty: all can."""
    from tenuto.services.searcher.explain import undecidable

    return undecidable(events)


def _about(event: Event, experiments: Container[int]) -> bool:
    from tenuto.services.searcher.evolve import experiment_of

    return experiment_of(event.data) in experiments


def chosen(whole: bool) -> list[AnyCore]:
    return [core for core in cores() if whole or core.name in OWN_SERVICES]


def digests(events: Iterable[Event], upto: int | None, *, whole: bool = True) -> dict[str, str]:
    """SHA-256 of each service's state at the position, or of what those events make of it: equal logs give equal digests, on any
    machine."""
    from tenuto.kernel.replay import fold

    events = list(events)
    return {core.name: hashlib.sha256(core.dump(fold(core, events, upto))).hexdigest() for core in chosen(whole)}
