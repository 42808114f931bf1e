"""Rules of a workspace, for all its experiments."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.automation import WorkspaceRulesChanged
from tenuto.services.gateway.experiments.commands import SetWorkspaceRules
from tenuto.services.gateway.experiments.decide.rule_actions import check_workspace_rules
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.rights.permissions import CHANGES_WORKSPACE
from tenuto.services.gateway.rights.workspaces import check_workspace


def set_rules(state: ExperimentsState, command: SetWorkspaceRules) -> Sequence[EventData]:
    check_workspace(state, command, CHANGES_WORKSPACE)
    check_workspace_rules(state, command.rules, command.user)
    known = state.acting.workspaces.get(command.workspace)
    if (known.rules if known is not None else ()) == command.rules and (known is None or known.user == command.user):
        return []
    return [WorkspaceRulesChanged(workspace=command.workspace, rules=command.rules, user=command.user)]


DECISIONS = decisions(set_rules)
