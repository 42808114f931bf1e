"""Folds what rules of experiments and workspaces compare."""

from __future__ import annotations

from dataclasses import replace

from tenuto.schemas.events import EventData
from tenuto.schemas.events.automation import ExperimentRuleActed, WorkspaceRulesChanged
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.trial import ValidationReported
from tenuto.services.gateway.experiments.policies.rules_state import Acting, Ruled, WorkspaceRules
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.notices.evolve import ENDS
from tenuto.services.gateway.notices.policies.triggers import experiment_id_of, marked


def fold(state: ExperimentsState, data: EventData) -> Acting:
    acting = state.acting
    if isinstance(data, ExperimentSubmitted):
        if data.config.automation:
            acting = acting.with_ruled(data.experiment_id, _ruled(data))
        return _placed(acting, data.experiment_id, data.config.resources.workspace)
    if isinstance(data, WorkspaceRulesChanged):
        return _changed(state, data)
    experiment_id = experiment_id_of(data)
    every = acting.ruled(experiment_id)
    if not every or experiment_id is None:
        return acting
    if isinstance(data, ENDS):
        return acting.without(experiment_id)
    for ruled in every:
        if isinstance(data, ValidationReported):
            marks = marked(ruled, state.notices.watched(experiment_id), data)
            acting = acting.with_ruled(experiment_id, replace(ruled, marks=marks))
        elif isinstance(data, ExperimentRuleActed) and data.workspace == ruled.workspace:
            acted = tuple(data.count if index == data.rule else count for index, count in enumerate(ruled.acted))
            acting = acting.with_ruled(experiment_id, replace(ruled, acted=acted))
    return acting


def _placed(acting: Acting, experiment_id: int, workspace: str) -> Acting:
    """Copy with the workspace's rules for the experiment, from their beginning."""
    found = acting.workspaces.get(workspace)
    if found is None:
        known = acting.placed
        return replace(acting, placed=known.delete(experiment_id)) if experiment_id in known else acting
    ruled = Ruled(triggers=found.rules, acted=(0,) * len(found.rules), user=found.user, workspace=workspace)
    return acting.with_ruled(experiment_id, ruled)


def _changed(state: ExperimentsState, data: WorkspaceRulesChanged) -> Acting:
    """The new rules are those of all its experiments that have not ended."""
    acting, known = state.acting, state.acting.workspaces
    if data.rules:
        known = known.set(data.workspace, WorkspaceRules(data.rules, data.user))
    elif data.workspace in known:
        known = known.delete(data.workspace)
    acting = replace(acting, workspaces=known)
    for experiment_id in sorted(state.live):
        if state.live[experiment_id].workspace == data.workspace:
            acting = _placed(acting, experiment_id, data.workspace)
    return acting


def _ruled(data: ExperimentSubmitted) -> Ruled:
    rules = tuple(data.config.automation)
    forks = any(rule.do == "fork" for rule in rules)
    return Ruled(
        triggers=rules,
        acted=(0,) * len(rules),
        user=data.user,
        seed=data.seed,
        context_hash=data.context_hash,
        context_size_bytes=data.context_size_bytes,
        config=data.config if forks else None,
    )
