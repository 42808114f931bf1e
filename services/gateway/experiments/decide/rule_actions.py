"""Decisions of the rules of experiments and workspaces. A rule acts `times_max` times, and a fork has
no rule that forks: so no rule acts for ever, and none starts another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from tenuto.kernel.core import Refused
from tenuto.schemas.config import ExperimentConfig, derive
from tenuto.schemas.config.automation import Rule
from tenuto.schemas.config.judging import Unfit, judged
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.automation import ExperimentRuleActed
from tenuto.schemas.events.notice import WebhookTriggered
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentPauseRequested, ExperimentSubmitted
from tenuto.schemas.record import Parent
from tenuto.services.gateway.experiments.commands import SubmitExperiment
from tenuto.services.gateway.experiments.policies.rules_state import Ruled
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.notices.decide.triggered_notices import triggered
from tenuto.services.gateway.notices.evolve import fold as fold_notices
from tenuto.services.gateway.notices.policies.triggers import Fired, experiment_id_of, fired_by
from tenuto.services.gateway.notices.state import WAITING_MAX, is_hidden
from tenuto.services.gateway.rights.access import Principal

CheckNew = Callable[[ExperimentsState, Principal, ExperimentConfig], None]
"""Check that a subject may submit such an experiment. Raises Refused."""


def act(state: ExperimentsState, event: Event, decided: Sequence[EventData], check_new: CheckNew) -> list[EventData]:
    """Actions of rules on an event of another service, which is folded already. `decided`: notices that follow from the event
    anyway, which are not folded yet."""
    acting = state.acting
    if not acting.experiments and not acting.placed and acting.ended is None and acting.placed_ended is None:
        return []  # the event's payload is not even decoded
    data = event.data
    experiment_id = experiment_id_of(data)
    every = acting.ruled(experiment_id)
    if not every or experiment_id is None:
        return []
    watched = state.notices.watched(experiment_id)
    state = _with_notices(state, decided, event.time_us)
    found: list[EventData] = []
    forks = 0
    for ruled, index, rule in [(item, index, rule) for item in every for index, rule in enumerate(item.triggers)]:
        if ruled.acted[index] >= rule.times_max:
            continue
        if (fired := fired_by(ruled, index, watched, data)) is None:
            continue
        if rule.do == "fork":
            done = _forked(state, rule, ruled, experiment_id, forks, check_new)
        else:
            done = _done(state, rule, ruled, experiment_id, event, fired)
        if not done or (rule.do in ("pause", "kill") and done[0] in found):
            continue
        state = _with_notices(state, done, event.time_us)
        fork = next((item.experiment_id for item in done if isinstance(item, ExperimentSubmitted)), None)
        forks += fork is not None
        acts = ExperimentRuleActed(
            experiment_id=experiment_id,
            rule=index,
            do=rule.do,
            count=ruled.acted[index] + 1,
            times_max=rule.times_max,
            event_type=event.type,
            trial_id=getattr(data, "trial_id", None),
            fork_id=fork,
            workspace=ruled.workspace,
            reason=fired.reason,
        )
        found += [acts, *done]
    return found


def _with_notices(state: ExperimentsState, events: Sequence[EventData], time_us: int) -> ExperimentsState:
    """So that the next notice to the same webhook has the next number."""
    notices = state.notices
    for data in events:
        if isinstance(data, WebhookTriggered):
            notices = fold_notices(notices, data, time_us)
    return state if notices is state.notices else replace(state, notices=notices)


def _done(
    state: ExperimentsState, rule: Rule, ruled: Ruled, experiment_id: int, event: Event, fired: Fired
) -> Sequence[EventData]:
    """Nothing where it is so already, or cannot be."""
    live = state.live.get(experiment_id)
    if rule.do == "pause":
        done = live is not None and not live.paused and not live.canceled
        return [ExperimentPauseRequested(experiment_id=experiment_id)] if done else ()
    if rule.do == "kill":
        done = live is not None and not live.killed
        return [ExperimentCancelRequested(experiment_id=experiment_id, kill=True)] if done else ()
    webhook = state.notices.webhooks.get(rule.webhook or "")
    if webhook is None or webhook.owner != ruled.user or len(webhook.waiting) >= WAITING_MAX:
        return ()
    if is_hidden(state.notices.watched(experiment_id), experiment_id, ruled.user, state.hidden_from):
        return ()
    trial = getattr(event.data, "trial_id", None)
    return [triggered(webhook, event.time_us, fired, event_type=event.type, experiment_id=experiment_id, trial_id=trial)]


def _forked(
    state: ExperimentsState, rule: Rule, ruled: Ruled, experiment_id: int, forks: int, check_new: CheckNew
) -> Sequence[EventData]:
    """Events of a fork; empty if the user was removed meanwhile, or may no longer submit there."""
    owner = state.owner(ruled.user, experiment_id)
    if ruled.config is None or not (owner in state.users or state.may_all(owner)):
        return ()
    try:
        config = fork_config(ruled.config, experiment_id, ruled.seed, rule)
        check_new(state, state.subject(ruled.user), config)
    except Refused:
        return ()
    except (Unfit, ValidationError):
        return ()  # what a submission was told is what this release would say; the rules of an earlier one stay unused
    submitted = ExperimentSubmitted(
        experiment_id=state.submitted + 1 + forks,
        config=config,
        seed=ruled.seed,
        context_hash=ruled.context_hash,
        context_size_bytes=ruled.context_size_bytes,
        user=ruled.user,
        parent=Parent(relation="fork", experiment_id=experiment_id),
    )
    return [submitted]


def fork_config(
    config: ExperimentConfig, experiment_id: int, seed: int, rule: Rule, document: dict[str, Any] | None = None
) -> ExperimentConfig:
    """`document`: the configuration as JSON says it, where that is known already. Raises Unfit and ValidationError."""
    before = json.loads(config.to_json()) if document is None else document
    made = derive.fork(before, experiment_id, seed, rule.overrides)
    made["automation"] = [item for item in made.get("automation") or [] if item.get("do") != "fork"]
    same = {name: getattr(config, name) for name, value in made.items() if name in before and value == before[name]}
    return judged(made, same)


def forked(config: ExperimentConfig, rule: Rule) -> ExperimentConfig | None:
    """Configuration that the rule would submit, as far as it is known before. None: it would be refused."""
    try:
        return fork_config(config, 1, 0, rule)
    except (Unfit, ValidationError):
        return None


def check_workspace_rules(state: ExperimentsState, rules: Sequence[Rule], user: str) -> None:
    """Raises Refused."""
    for index, rule in enumerate(rules):
        if rule.do == "fork":
            raise Refused(
                f"rules[{index}].do: fork is for rules of an experiment, as here it would submit one user's code for another; "
                "take pause, kill or webhook.",
                "invalid",
            )
        webhook = state.notices.webhooks.get(rule.webhook or "")
        if rule.do == "webhook" and (webhook is None or webhook.owner != user):
            why = f"{user} has no webhook {rule.webhook!r}"
            raise Refused(
                f"rules[{index}].webhook: {why}; make it first (`tenuto webhook create`), or leave the rule out.", "invalid"
            )


FORKS_MAX = 5
"""Rules of one experiment that fork: each fork is read and judged while its submission is decided on, and others wait."""


def check_rules(state: ExperimentsState, command: SubmitExperiment, check_new: CheckNew) -> None:
    """Checks that each fork would be a configuration that may be submitted now, and that each webhook is the user's. Raises
    Refused. A reproduction has the rules of the original, whichever user asks for it: a notice to another user's webhook is left
    out there, and so is a fork that the asker may not submit."""
    config, reproduced = command.config, command.parent is not None and command.parent.relation == "reproduction"
    forks = sum(rule.do == "fork" for rule in config.automation)
    if forks > FORKS_MAX and not reproduced:
        raise Refused(
            f"automation: {forks} rules fork the experiment, and {FORKS_MAX} may; leave some out, or use a program "
            "(`tenuto automation run`).",
            "invalid",
        )
    document = json.loads(config.to_json()) if forks else {}
    for index, rule in enumerate(config.automation):
        webhook = state.notices.webhooks.get(rule.webhook or "")
        if rule.do == "webhook" and not reproduced and (webhook is None or webhook.owner != command.user):
            why = f"{command.user} has no webhook {rule.webhook!r}"
            raise Refused(
                f"automation[{index}].webhook: {why}; make it first (`tenuto webhook create`), or leave the rule out.", "invalid"
            )
        if rule.do == "fork":
            try:
                fork = fork_config(config, 1, 0, rule, document)
                if not reproduced:
                    check_new(state, state.subject(command.user), fork)
            except Refused as error:
                raise Refused(f"automation[{index}]: the fork would be refused: {error}", error.code) from None
            except (Unfit, ValidationError) as error:
                raise Refused(f"automation[{index}].overrides: {_first(error)}: the fork would be refused.", "invalid") from None


def _first(error: Unfit | ValidationError) -> str:
    if isinstance(error, Unfit):
        path, message, *_ = error.problems[0]
        return f"{path}: {message}"
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, "))))
