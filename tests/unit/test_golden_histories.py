"""Logs of real clusters, kept for ever: every version reads them, and what their rule versions decided is decided again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest

from tenuto.cli.replay import cores
from tenuto.kernel.core import AnyCore, Command
from tenuto.kernel.decision import rule_version_of
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import ExperimentCompleted, TrialPaused
from tenuto.schemas.events.trial import TrialFailed
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.state import State
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.methods import RULE_VERSION, RULE_VERSIONS_KNOWN
from tenuto.services.searcher.state import SearcherState
from tests.support import histories
from tests.support.record import broken_rules

NAMES = histories.names()
CORES = {core.name: core for core in cores()}
RECORDED = ("searcher", "scheduler", "launcher", "tracker")
DECIDING = ("searcher", "scheduler", "tracker")
"""Services whose decisions follow from the log alone. Those of launcher and gateway answer agents and users, whose requests are
not in the log."""


@cache
def history(name: str) -> list[Event]:
    return histories.read(name)


@cache
def versions(name: str) -> Counter[tuple[str, int]]:
    """Number of events that each service has decided there, by rule version."""
    found = ((event.actor.partition("/")[0], rule_version_of(event.actor)) for event in history(name))
    return Counter((service, version) for service, version in found if version is not None)


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_sound(name: str) -> None:
    assert broken_rules(history(name)) == []


@pytest.mark.parametrize("service", DECIDING)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_decided_again_as_recorded(name: str, service: str) -> None:
    """What another rule version decided is only folded."""
    verdict = verify_decisions(CORES[service], history(name))
    assert verdict.ok, "\n".join(map(str, verdict.divergences))
    if versions(name).keys() == {(service, CORES[service].rule_version)}:
        assert verdict.decisions


@pytest.mark.parametrize("service", RECORDED)
def test_the_present_rules_have_a_history(service: str) -> None:
    """Else a changed rule would not be noticed."""
    version = CORES[service].rule_version
    decided = sum(versions(name)[service, version] for name in NAMES)
    assert decided >= 200, f"record one for {service}/{version}: python tests/golden/record.py --help"


class _Hasty(SearcherCore):
    """A searcher core with a changed rule and an unchanged rule version."""

    def settle(self, state: SearcherState, cause: Event | Command) -> tuple[list[EventData], SearcherState]:
        decided, after = super().settle(state, cause)
        return [data for data in decided if not isinstance(data, TrialPaused)], after


class _Generous(SchedulerCore):
    """The same of the scheduler: nobody is asked to give way."""

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return [data for data in super().decide(state, cause) if not isinstance(data, AllocationPreempted)]


@pytest.mark.parametrize("core", [_Hasty(), _Generous()], ids=["searcher", "scheduler"])
def test_a_rule_that_changes_without_its_version_is_noticed(core: AnyCore) -> None:
    verdicts = [verify_decisions(core, history(name)) for name in NAMES if versions(name)[core.name, core.rule_version]]
    assert any(not verdict.ok for verdict in verdicts)


@pytest.mark.parametrize("service", DECIDING)
def test_an_altered_history_is_noticed(service: str) -> None:
    """A decision is left out: what follows from the rest is another one."""
    core = CORES[service]
    name = max(NAMES, key=lambda one: versions(one)[service, core.rule_version])
    log = history(name)
    answers = [at for at, event in enumerate(log) if event.type in core.emits and event.causation_id is not None]
    ids = {event.id for event in log}
    gone = next(at for at in answers[len(answers) // 2 :] if log[at].causation_id in ids)
    assert not verify_decisions(core, [*log[:gone], *log[gone + 1 :]]).ok


@pytest.mark.parametrize("name", NAMES)
def test_every_service_folds_it(name: str) -> None:
    for core in CORES.values():
        core.check(fold(core, history(name)))


@pytest.mark.parametrize("version", [version for version in RULE_VERSIONS_KNOWN if version != RULE_VERSION])
def test_what_earlier_rules_of_the_search_decided_is_decided_again(version: int) -> None:
    verdicts = [verify_decisions(SearcherCore(version), history(name)) for name in NAMES if versions(name)["searcher", version]]
    assert all(verdict.ok for verdict in verdicts)
    assert sum(verdict.decisions for verdict in verdicts) >= 200


def test_searches_that_went_on_with_an_earlier_one_ended() -> None:
    """On a real cluster, with scripts: trials at 2, 4, 8 and 16 batches in searches over 40."""
    log = history("searches-2026-11-further")
    ended = {event.data.experiment_id: event.data for event in log if isinstance(event.data, ExperimentCompleted)}
    made = {event.data.experiment_id: event.data.parent for event in log if isinstance(event.data, ExperimentSubmitted)}
    went_on = {child: parent.experiment_id for child, parent in made.items() if parent is not None}
    assert len(went_on) == 3
    for child, parent in went_on.items():
        assert ended[child].trials >= ended[parent].trials
        assert (ended[child].best_metric or 0) <= (ended[parent].best_metric or 0), "what was reached is not lost"
    failed = {event.data.trial_id for event in log if isinstance(event.data, TrialFailed)}
    for child, parent in went_on.items():
        mine, before = ({trial.split("-")[1] for trial in failed if trial.startswith(f"{one}-")} for one in (child, parent))
        assert mine <= before, "only what fails by its hyperparameters"
