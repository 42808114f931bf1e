"""Rules of experiments' configurations: what they do, how often, and that everything of it is on record."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

import pytest
import yaml

from tenuto.kernel.core import Refused
from tenuto.kernel.decision import step
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.automation import Rule
from tenuto.schemas.config.derive import fork
from tenuto.schemas.config.reading import parse_config, validated
from tenuto.schemas.config.resources import Resources
from tenuto.schemas.config.rungs import told
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import WorkspaceSettings
from tenuto.schemas.events.automation import ExperimentRuleActed
from tenuto.schemas.events.notice import WebhookTriggered
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted, NewUser
from tenuto.schemas.events.search import ExperimentCompleted
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.record import Parent
from tenuto.schemas.sentences import sentence
from tenuto.schemas.webhooks import EventTrigger, Filters
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.experiments.commands import (
    NoteStorage,
    PauseExperiment,
    ResumeExperiment,
    SetWorkspaceRules,
    SubmitExperiment,
)
from tenuto.services.gateway.experiments.decide.rule_actions import fork_config
from tenuto.services.gateway.notices.commands import CreateWebhook
from tenuto.services.gateway.people.commands import ChangeWorkspace, CreateUser

ID = UUID(int=7)
CONFIG = """
entrypoint: train.py
hyperparameters: {rate: 0.1}
searcher: {name: single, metric: loss, max_length: {batches: 100}}
automation:
"""


def config(rules: str) -> ExperimentConfig:
    return parse_config((CONFIG + rules).encode())


class Core:
    def __init__(self) -> None:
        self.core, self.count = GatewayCore(), 0
        self.state = self.core.initial()

    def ask(self, order: Any, **fields: Any) -> list[Any]:
        self.count += 1
        command = order(id=uuid5(ID, str(self.count)), time_us=self.count, user=fields.pop("user", "admin"), **fields)
        self.state, events = step(self.core, self.state, command, seen_position=0, time_us=self.count)
        return [event.data for event in events]

    def ask_itself(self, order: Any, **fields: Any) -> list[Any]:
        """What the gateway tells of what it looked at."""
        self.count += 1
        command = order(id=uuid5(ID, str(self.count)), time_us=self.count, **fields)
        self.state, events = step(self.core, self.state, command, seen_position=0, time_us=self.count)
        return [event.data for event in events]

    def submit(self, rules: str, **fields: Any) -> int:
        [data] = self.ask(SubmitExperiment, config=config(rules), seed=5, context_hash="c" * 64, context_size_bytes=9, **fields)
        return int(data.experiment_id)

    def happens(self, data: EventData) -> list[Any]:
        self.count += 1
        event = Event(
            id=uuid5(ID, str(self.count)), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION,
            time_us=self.count, payload=data.to_json(), actor="test/1",
        )  # fmt: skip
        self.state = self.core.evolve(self.state, event)
        self.state, events = step(self.core, self.state, event, seen_position=0, time_us=self.count)
        self.core.check(self.state)
        assert self.core.codec.load(self.core.codec.dump(self.state)) == self.state
        return [event.data for event in events]

    def loss(self, value: float, trial: str = "1-1") -> list[Any]:
        return self.happens(
            ValidationReported(trial_id=trial, allocation_id=f"{trial}-1", batches=10, length=10, metrics={"loss": value})
        )

    def completes(self, experiment_id: int) -> list[Any]:
        reason = Reason(rule="test")
        return self.happens(
            ExperimentCompleted(experiment_id=experiment_id, best_trial_id=None, best_metric=None, trials=1, reason=reason)
        )


def names(found: list[Any]) -> list[str]:
    return [item.TYPE for item in found]


def test_a_loss_that_explodes_ends_the_experiment_and_the_record_says_why() -> None:
    core = Core()
    core.submit("  - on: metric\n    metric: loss\n    above: 1e6\n    do: kill\n")
    assert core.loss(1.0) == []
    acts, cancel = core.loss(float("nan"))
    assert (cancel.TYPE, cancel.kill, cancel.experiment_id) == ("ExperimentCancelRequested", True, 1)
    assert (acts.rule, acts.do, acts.count, acts.times_max, acts.trial_id) == (0, "kill", 1, 1, "1-1")
    assert acts.reason.rule == "metric_beyond"
    told = sentence(acts.TYPE, acts.model_dump(mode="json"), "gateway/3")
    assert "loss" in told, told
    assert "1-1" in told, told
    assert core.loss(1.0) == core.loss(1e9) == [], "killed already"
    assert core.loss(1e9, "2-1") == [], "nobody's"


def test_a_rule_acts_so_many_times_and_no_more() -> None:
    core = Core()
    core.submit("  - {on: metric, metric: loss, above: 10, do: pause, times_max: 2}\n")
    for _ in range(2):
        assert names(core.loss(11)) == ["ExperimentRuleActed", "ExperimentPauseRequested"]
        assert core.loss(12) == [], "it was beyond before"
        assert core.loss(1) == []
        assert names(core.ask(ResumeExperiment, experiment_id=1)) == ["ExperimentResumeRequested"]
    assert core.loss(11) == []
    core.submit("  - {on: metric, metric: loss, above: 10, do: pause}\n")
    core.ask(PauseExperiment, experiment_id=2)
    assert core.loss(11, "2-1") == [], "it is paused already, and that counts as nothing"
    assert core.state.acting.experiments[2].acted == (0,)


def test_a_fork_is_made_once_and_makes_no_other() -> None:
    core = Core()
    rules = (
        "  - {on: experiment, states: [completed], do: fork, overrides: {name: longer, searcher: {max_length: {batches: 200}}}, "
        "times_max: 5}\n  - {on: metric, metric: loss, above: 10, do: kill}\n"
    )
    core.submit(rules)
    acts, submitted = core.completes(1)
    assert isinstance(acts, ExperimentRuleActed)
    assert isinstance(submitted, ExperimentSubmitted)
    assert (acts.fork_id, submitted.experiment_id, submitted.parent.experiment_id) == (2, 2, 1)  # type: ignore[union-attr]
    assert (submitted.config.name, submitted.config.searcher.max_length.batches) == ("longer", 200)
    assert (submitted.seed, submitted.context_hash, submitted.user) == (5, "c" * 64, "admin")
    assert [rule.do for rule in submitted.config.automation] == ["kill"]
    assert core.state.submitted == 2
    assert names(core.completes(2)) == []
    with pytest.raises(Refused, match=r"automation\[0\]\.overrides: .*the fork would be refused"):
        core.submit("  - {on: experiment, states: [completed], do: fork, overrides: {searcher: {max_trails: 3}}}\n")


def test_so_many_rules_fork_and_each_fork_is_what_a_submission_of_it_would_be() -> None:
    core = Core()
    rule = "  - {on: experiment, states: [completed], do: fork, overrides: %s}\n"
    with pytest.raises(Refused, match="automation: 6 rules fork the experiment, and 5 may"):
        core.submit(rule % "{name: again}" * 6)
    changes = (
        "{hyperparameters: {rate: 0.5}}",
        "{labels: [x], resources: {priority: 7}}",
        "{searcher: {max_length: {epochs: 2}}}",
        "{searcher: {name: asha, max_trials: 16, max_length: {batches: 640}}}",
        "{searcher: {name: hyperband, max_rungs: 3, max_length: {batches: 640}}}",
    )
    original = config("".join(rule % change for change in changes))
    for index, change in enumerate(changes):
        made = fork_config(original, 3, 5, original.automation[index])
        plain = fork(json.loads(original.to_json()), 3, 5, yaml.safe_load(change))
        assert made == validated({**plain, "automation": []})
        assert made.to_json() == ExperimentConfig.model_validate(json.loads(made.to_json())).to_json()


def test_a_fork_of_a_rule_compares_first_where_a_submission_would() -> None:
    core = Core()
    rule = "  - {on: experiment, states: [completed], do: fork, overrides: {searcher: %s}}\n"
    core.submit(rule % "{name: asha, max_trials: 16, max_length: {batches: 640}}")
    _, submitted = core.completes(1)
    assert told(submitted.config) == "40, 160, 640 batches; at most 16 trials"
    for changes, why in (
        ("searcher: {name: random, max_trials: 4, starting_points: [{momentum: 1}]}", r"searcher.starting_points\[0\]"),
        ("hyperparameters: {rate: {type: log, minval: -400, maxval: 0}}", "hyperparameters.rate: "),
    ):
        with pytest.raises(Refused, match=rf"automation\[0\]\.overrides: {why}.*: the fork would be refused"):
            core.submit(f"  - {{on: experiment, states: [completed], do: fork, overrides: {{{changes}}}}}\n")


def test_a_fork_of_a_rule_is_judged_as_a_submission_by_the_limits_of_its_workspace() -> None:
    core = Core()
    rule = "  - {on: experiment, states: [completed], do: fork, overrides: {resources: {priority: 10}}, times_max: 9}\n"
    core.ask(ChangeWorkspace, workspace="default", settings=WorkspaceSettings(priority_min=20))
    with pytest.raises(Refused, match=r"automation\[0\]: the fork would be refused: Workspace default takes priorities from 20"):
        core.submit(rule)
    core.ask(ChangeWorkspace, workspace="default", settings=WorkspaceSettings(priority_min=1, storage_bytes_max=1_000))
    for _ in range(4):
        core.submit(rule)
    assert core.ask_itself(NoteStorage, workspace="default", stored_bytes=999) == []
    assert "fork" in [acts.do for acts in core.completes(1)[:1]], "there is room"
    [noted] = core.ask_itself(NoteStorage, workspace="default", stored_bytes=1_000)
    assert (noted.stored_bytes, noted.limit_bytes) == (1_000, 1_000)
    assert core.ask_itself(NoteStorage, workspace="default", stored_bytes=1_500) == [], "it is noted already"
    assert core.completes(2) == [], "the workspace takes no new experiments"
    core.ask(ChangeWorkspace, workspace="default", settings=WorkspaceSettings(storage_bytes_max=2_000))
    assert core.ask_itself(NoteStorage, workspace="default", stored_bytes=1_500)[0].limit_bytes == 2_000
    core.ask(ChangeWorkspace, workspace="default", settings=WorkspaceSettings(wall_hours_max=5, priority_min=30))
    assert core.completes(3) == [], "the limit of priorities is another one now"
    core.ask(ChangeWorkspace, workspace="default", settings=WorkspaceSettings(priority_min=1))
    assert names(core.completes(4)) == ["ExperimentRuleActed", "ExperimentSubmitted"]
    assert core.state.live[6].workspace_hours_max == 5, "and it has the time of its workspace"


def test_a_notice_goes_to_ones_own_webhook_only() -> None:
    core = Core()
    hook = {"kind": "http", "place": "x", "group_seconds": 0.0, "recoveries": False, "sealed_id": "s"}
    core.ask(CreateWebhook, name="mine", triggers=(EventTrigger(types=("ValidationReported",)),), filters=Filters(), **hook)
    core.submit("  - {on: metric, metric: loss, above: 10, do: webhook, webhook: mine}\n" * 2)
    found = core.loss(11)
    assert [item.number for item in found if isinstance(item, WebhookTriggered)] == [1, 2, 3], "each has its own number"
    state = core.state.acting
    stranger = replace(state.experiments[1], user="eve", acted=(0, 0))
    core.state = replace(core.state, acting=replace(state, experiments=state.experiments.set(1, stranger)))
    core.loss(1)
    assert names(core.loss(11)) == ["WebhookTriggered"], "the webhook's own trigger"
    rule = "  - {on: metric, metric: loss, above: 10, do: webhook, webhook: mine}\n"
    with pytest.raises(Refused, match=r"automation\[0\]\.webhook: eve has no webhook 'mine'; make it first"):
        core.submit(rule, user="eve")
    core.submit(rule, user="eve", parent=Parent(relation="reproduction", experiment_id=1))
    with pytest.raises(Refused, match="admin has no webhook 'his'"):
        core.submit(rule.replace("mine", "his"))


def rules(text: str) -> tuple[Rule, ...]:
    return tuple(config(text).automation)


KILLS = "  - {on: metric, metric: loss, above: 10, do: kill}\n"
PAUSES = "  - {on: metric, metric: loss, above: 5, do: pause, times_max: 2}\n"


def test_rules_of_a_workspace_hold_for_its_experiments_until_they_are_taken_away() -> None:
    core = Core()
    core.submit("  []\n")
    elsewhere = config("  []\n").model_copy(update={"resources": Resources(workspace="vision")})
    core.ask(SubmitExperiment, config=elsewhere, seed=5, context_hash="c" * 64, context_size_bytes=9)
    [changed] = core.ask(SetWorkspaceRules, workspace="default", rules=rules(PAUSES + KILLS))
    assert (changed.TYPE, changed.user, len(changed.rules)) == ("WorkspaceRulesChanged", "admin", 2)
    assert core.ask(SetWorkspaceRules, workspace="default", rules=rules(PAUSES + KILLS)) == []
    assert core.submit(KILLS) == 3
    assert core.loss(11, "2-1") == [], "it is in another workspace"
    acts, paused = core.loss(7)
    assert (acts.workspace, acts.rule, acts.do, acts.count, paused.TYPE) == ("default", 0, "pause", 1, "ExperimentPauseRequested")
    acts, killed = core.loss(11)
    assert (acts.workspace, acts.rule, acts.do, killed.kill) == ("default", 1, "kill", True)
    # Both the experiment's own rule and one of the workspace fit; it is killed once, by its own.
    own, killed, of_workspace, paused = core.loss(11, "3-1")
    assert (own.workspace, own.rule, own.do) == ("", 0, "kill")
    assert (of_workspace.workspace, of_workspace.do) == ("default", "pause")
    assert core.state.acting.placed[3].acted == (1, 0)
    assert core.state.acting.experiments[3].acted == (1,)
    core.completes(3)
    assert 3 not in core.state.acting.placed
    core.ask(SetWorkspaceRules, workspace="default", rules=())
    core.submit("  []\n")
    assert core.loss(11, "4-1") == core.loss(11, "1-1") == []
    assert not core.state.acting.workspaces
    assert not core.state.acting.placed


def test_rules_of_a_workspace_are_its_admins_and_submit_nothing_for_others() -> None:
    core = Core()
    core.ask(CreateUser, new=NewUser(name="eve"), token_hash="a" * 64)
    core.submit("  []\n")
    with pytest.raises(Refused, match="eve may not do this in workspace default"):
        core.ask(SetWorkspaceRules, workspace="default", rules=rules(KILLS), user="eve")
    with pytest.raises(Refused, match="There is no workspace vision"):
        core.ask(SetWorkspaceRules, workspace="vision", rules=rules(KILLS))
    with pytest.raises(Refused, match=r"rules\[0\]\.do: fork is for rules of an experiment"):
        core.ask(SetWorkspaceRules, workspace="default", rules=rules("  - {on: experiment, states: [failed], do: fork}\n"))
    notice = rules("  - {on: metric, metric: loss, above: 10, do: webhook, webhook: hook, times_max: 9}\n")
    with pytest.raises(Refused, match=r"rules\[0\]\.webhook: admin has no webhook 'hook'; make it first"):
        core.ask(SetWorkspaceRules, workspace="default", rules=notice)
    hook = {"kind": "http", "place": "x", "group_seconds": 0.0, "recoveries": False, "sealed_id": "s"}
    core.ask(CreateWebhook, name="hook", triggers=(EventTrigger(types=("AgentLost",)),), filters=Filters(), **hook)
    core.ask(SetWorkspaceRules, workspace="default", rules=notice)
    assert names(core.loss(11)) == ["ExperimentRuleActed", "WebhookTriggered"], "to the admin's webhook, whoever submitted it"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{on: metric, metric: loss, above: 1, do: explode}", "do"),
        ("{on: metric, metric: loss, do: kill}", "above or below"),
        ("{on: agent_lost, do: kill}", "on"),
        ("{on: metric, metric: loss, above: 1, do: webhook}", "webhook"),
        ("{on: metric, metric: loss, above: 1, do: kill, overrides: {name: x}}", "overrides"),
        ("{on: metric, metric: loss, above: 1, do: kill, times_max: 1000}", "times_max"),
        ("{do: kill}", "automation"),
        ("kill", "automation"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        config(f"  - {rule}\n")
