"""Search methods of other packages: named in a configuration, recorded with what decided, never in the way of other searches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

from tenuto.cli.replay import verify
from tenuto.kernel import plugins, search_methods
from tenuto.kernel.plugins import Plugin
from tenuto.kernel.replay import verify_decisions
from tenuto.schemas.config import PluginSearcher, Searcher
from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import parse_config
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentSubmitted, ExperimentTrialLimitsChanged
from tenuto.schemas.events.search import ExperimentFailed, ExperimentStarted, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFinished, ValidationReported
from tenuto.schemas.sentences import sentence_of
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.evolve import evolve
from tenuto.services.searcher.explain import preview, undecidable
from tenuto.services.searcher.methods.base import PluginRules
from tenuto.services.searcher.state import Experiment, Trial, initial
from tests.support.example_plugins import importable
from tests.support.search_judge import ACTOR
from tests.support.search_world import Faults, World, submitted

GROUP = search_methods.GROUP
CONFIG = """
name: t
entrypoint: a:B
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}
searcher: {name: median_stopping, metric: loss, max_length: {epochs: 6}, max_trials: 12%s}
"""
MEDIAN = {"name": "median_stopping", "max_trials": 20, "max_concurrent_trials": 4, "settings": {"parts": 4, "grace": 3}}


@pytest.fixture
def installed(example_plugins: Path) -> Iterator[None]:
    with importable(example_plugins):
        yield


@contextmanager
def declaring(*found: Plugin) -> Iterator[None]:
    """This Python has these plug-ins and Tenuto's own meanwhile."""
    own = tuple(plugin for plugin in plugins.declared(GROUP) if plugin.own)
    with pytest.MonkeyPatch.context() as patch:
        plugins.find.cache_clear()
        plugins.load.cache_clear()
        patch.setattr(plugins, "declared", lambda group: own + found)
        yield
    plugins.find.cache_clear()
    plugins.load.cache_clear()


def other(value: str, version: str = "2.0") -> Plugin:
    return Plugin(GROUP, "median_stopping", "other", version, EntryPoint("median_stopping", value, GROUP))


class Failing(PluginRules[Any]):
    """Fails when the second trial has reached its target."""

    def reached(self, experiment: Experiment, trial: Trial) -> Any:
        if trial.number == 2:
            raise ZeroDivisionError("the second one")
        return super().reached(experiment, trial)


def run(searcher: dict[str, Any] = MEDIAN) -> list[Event]:
    return World(submitted(searcher), seed=3, slots=4, faults=Faults()).run()


def own(log: list[Event]) -> list[Event]:
    return [event for event in log if event.actor == ACTOR]


def test_settings_left_out_are_written_down(installed: None) -> None:
    config = search_methods.parsed(CONFIG % "")
    assert isinstance(config.searcher, PluginSearcher)
    assert config.searcher.settings == {"parts": 3, "grace": 4}
    assert parse_config(config.to_json()) == config, "who only reads the record needs no package"


def test_wrong_settings_are_refused_by_their_path(installed: None) -> None:
    with pytest.raises(ConfigError) as refused:
        search_methods.parsed(CONFIG % ", settings: {parts: 1, speed: 3}")
    assert str(refused.value) == (
        "searcher.settings.parts: must be a whole number, at least 2, at most 50 (found 1)\n"
        "searcher.settings.speed: there is no such field; allowed are grace, parts (found 3)"
    )


def test_a_name_that_nobody_declares_is_refused_with_those_there_are(installed: None) -> None:
    text = (CONFIG % ", settings: {a: 1}").replace("median_stopping", "medianstopping")
    with pytest.raises(ConfigError) as refused:
        search_methods.parsed(text)
    assert "searcher.name: there is no such search method; did you mean median_stopping? it must be one of" in str(refused.value)
    assert "hyperband, median_stopping, nsga2" in str(refused.value)


def test_what_decides_is_recorded_and_decides_again(installed: None) -> None:
    log = run()
    started = next(event.data for event in log if isinstance(event.data, ExperimentStarted))
    assert started.plugin is not None
    assert (started.plugin.package, started.plugin.version, started.plugin.rules) == ("tenuto-example-plugins", "1.0", "1")
    assert verify_decisions(SearcherCore(), log).ok
    told = [sentence_of(event) for event in log if isinstance(event.data, (TrialRequested, TrialStopped))]
    assert any("Its hyperparameters are point 2 of a lattice." in one for one in told)
    assert any("worse than the median" in one for one in told)
    assert not any("cannot put into words" in one for one in told)


def test_the_start_keeps_a_limit_that_was_changed_before_it(installed: None) -> None:
    """The searcher may decide the start without having read the change, which stands before it in the log."""
    log = run()
    first, started = (next(e.data for e in log if isinstance(e.data, kind)) for kind in (ExperimentSubmitted, ExperimentStarted))
    changed = ExperimentTrialLimitsChanged(experiment_id=1, max_concurrent_trials=7)
    before, after = initial(), initial()
    for one, other_one in zip((first, changed, started), (first, started, changed), strict=True):
        before, after = evolve(before, one), evolve(after, other_one)
    assert before == after
    assert before.experiments[1].concurrent_trials_max == 7


def test_folding_needs_no_package(installed: None) -> None:
    core, log = SearcherCore(), run()
    half = log[: len(log) // 2]

    def folded() -> bytes:
        state = core.initial()
        for event in half:
            state = core.evolve(state, event)
        return core.dump(state)

    here = folded()
    with declaring():
        assert folded() == here
    assert core.dump(core.load(here)) == here


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ((), "There is no median_stopping among tenuto.search_methods here"),
        ((other("no_such_module_anywhere:Rules"),), "declared by other 2.0 as no_such_module_anywhere:Rules"),
        (
            (other("tests.support.broken_package:Rules"),),
            "ZeroDivisionError: when it is imported (declared by other 2.0",
        ),
        ((other("json:loads"),), "json:loads is no class derived from"),
        ((other("json:loads"), other("json:dumps", "3.0")), "is declared by other 2.0 and other 3.0"),
    ],
)
def test_a_package_that_cannot_be_used_fails_its_searches_and_no_other(found: tuple[Plugin, ...], why: str) -> None:
    with declaring(*found):
        [failed] = own(run())
        assert isinstance(failed.data, ExperimentFailed)
        assert why in failed.data.error
        assert own(run({"name": "random", "max_trials": 3}))[-1].type == "ExperimentCompleted"
        with pytest.raises(ConfigError) as refused:
            search_methods.parsed(CONFIG % "")
        assert "searcher.name: " in str(refused.value)


def test_rules_that_raise_an_error_stop_their_trials_and_the_search() -> None:
    with declaring(other(f"{__name__}:Failing")):
        log = run()
        decided = own(log)
        [failed] = [event.data for event in decided if isinstance(event.data, ExperimentFailed)]
        assert failed.error == "The search method median_stopping of other 2.0 failed with ZeroDivisionError: the second one."
        lost = [event for event in decided if isinstance(event.data, TrialStopped) and event.data.outcome == "canceled"]
        assert lost
        assert "its trials are stopped. The search method" in sentence_of(lost[0])
        assert decided[-1].type == "ExperimentFailed", "after the last trial has left"
        assert verify_decisions(SearcherCore(), log).ok, "the rules fail again"


def test_a_search_ends_when_its_package_is_gone_in_the_middle(installed: None) -> None:
    world = World(submitted(MEDIAN), seed=3, slots=4, faults=Faults())
    recorder = world.recorder
    recorder.put(world.request)
    assert recorder.state.experiments[1].active == 4
    with declaring():
        recorder.put(ValidationReported(trial_id="1-1", allocation_id="1-1-1", batches=40, length=4, metrics={"loss": 0.5}))
        stops = [event.data for event in recorder.log if isinstance(event.data, TrialStopped)]
        assert [stop.trial_id for stop in stops] == ["1-1", "1-2", "1-3", "1-4"]
    for trial in range(1, 5):  # the package is there again, and the end stays the end
        recorder.put(TrialFinished(trial_id=f"1-{trial}", batches=40, length=4, checkpoint_id=None))
    assert recorder.log[-1].type == "ExperimentFailed"
    assert undecidable(recorder.log).keys() == {1}


def test_other_rules_are_told_in_a_sentence(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    log = run()
    assert undecidable(log) == {}
    monkeypatch.setattr(plugins.load(GROUP, "median_stopping"), "VERSIONS", ("2", "3"))
    assert undecidable(log) == {
        1: "This experiment is searched by median_stopping of tenuto-example-plugins 1.0, rules 1, but installed here is"
        " tenuto-example-plugins 1.0, which has rules 2, 3; install tenuto-example-plugins 1.0 in this Python."
    }
    [verdict] = [item for item in verify(log, 1) if item.service == "searcher"]
    assert (verdict.verdict.ok, verdict.verdict.decisions) == (True, 0)


def test_preview_counts_its_trials(installed: None) -> None:
    plan = preview(search_methods.parsed(CONFIG % ""))
    assert [rung.length for rung in plan.rungs] == [2, 4, 6]
    assert (plan.trials, plan.problem, plan.exact) == (12, None, False)


def test_builtin_records_are_as_they_were() -> None:
    started = ExperimentStarted(experiment_id=1, method="asha", rule_version=6)
    assert json.loads(started.to_json()).keys() == {"experiment_id", "method", "rule_version"}
    assert from_json(submitted({"name": "random", "max_trials": 3}).config.searcher.to_json()).keys().isdisjoint({"settings"})


def test_the_record_of_what_decides_is_read_for_ever() -> None:
    line = (
        b'{"experiment_id":1,"method":"median_stopping","rule_version":6,"plugin":{"package":"p","version":"1.0","rules":"1",'
        b'"trials_max":4,"brackets":[{"trials":4,"lengths":[2,4]}],"best_max":[4],'
        b'"remembers":"nothing","replaces":true,"keeps_places":false}}'
    )
    assert ExperimentStarted.from_json(line).to_json() == line


def test_snapshots_of_another_process_can_be_used() -> None:
    """What pydantic prints of the settings' type is part of their shape."""
    assert " at 0x" not in str(Searcher)
