"""Decisions of the gateway: the events of a request, or its refusal. A repeated request changes nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenuto.kernel.core import Command
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.services.gateway import commands
from tenuto.services.gateway.decide import (
    access,
    cluster,
    deletions,
    experiments,
    joining,
    limits,
    nodes,
    signing_in,
    sso,
    templates,
    unmanaged,
    users,
    webhooks,
    workspaces,
)
from tenuto.services.gateway.policies.acting import act
from tenuto.services.gateway.policies.following import follow, follow_own
from tenuto.services.gateway.state import State

DECISIONS: Mapping[type, Callable[[State, Any], Sequence[EventData]]] = {
    commands.SubmitExperiment: experiments.submit,
    commands.PauseExperiment: experiments.pause,
    commands.ResumeExperiment: experiments.resume,
    commands.CancelExperiment: experiments.cancel,
    commands.ChangeExperiment: experiments.change,
    commands.DescribeExperiment: experiments.describe,
    commands.ArchiveExperiment: experiments.archive,
    commands.UnarchiveExperiment: experiments.unarchive,
    commands.DeleteExperiment: deletions.delete,
    commands.KeepExperiment: deletions.keep,
    commands.CarryOutDeletion: deletions.carry_out,
    commands.EndOverdue: limits.end_overdue,
    commands.NoteStorage: limits.note_storage,
    commands.MoveExperiment: experiments.move,
    commands.RequestOperations: experiments.request_operations,
    commands.CreateUnmanagedExperiment: unmanaged.create,
    commands.StartUnmanagedTrial: unmanaged.start,
    commands.ChangeUnmanagedTrial: unmanaged.change,
    commands.SetPoolPolicy: cluster.set_pool_policy,
    commands.ProvisionPool: nodes.provision,
    commands.SetPoolMounts: nodes.set_mounts,
    commands.ReleaseNode: nodes.release,
    commands.CreateNodeToken: nodes.create_token,
    commands.SetShare: cluster.set_share,
    commands.NoteSecretKey: cluster.note_secret_key,
    commands.CloseSlots: cluster.close_slots,
    commands.OpenSlots: cluster.open_slots,
    commands.CreateJoinToken: joining.create_token,
    commands.RevokeJoinToken: joining.revoke_token,
    commands.Enroll: joining.enroll,
    commands.RevokeAgent: joining.revoke_agent,
    commands.CreateUser: users.create,
    commands.RemoveUser: users.remove,
    commands.PutIntoProject: experiments.put_into_project,
    commands.CreateWorkspace: workspaces.create,
    commands.ChangeWorkspace: workspaces.change,
    commands.SetWorkspaceRules: workspaces.set_rules,
    commands.SetTemplate: templates.set_template,
    commands.RemoveTemplate: templates.remove_template,
    commands.SetDefaults: templates.set_defaults,
    commands.CreateProject: workspaces.create_project,
    commands.ChangeProject: workspaces.change_project,
    commands.CreateRole: access.create_role,
    commands.ChangeRole: access.change_role,
    commands.RemoveRole: access.remove_role,
    commands.GrantRole: access.grant,
    commands.RevokeRole: access.revoke,
    commands.CreateToken: users.create_token,
    commands.RevokeToken: users.revoke_token,
    commands.SetPassword: signing_in.set_password,
    commands.SignIn: signing_in.sign_in,
    commands.SignInByLink: signing_in.sign_in_by_link,
    commands.LinkUser: sso.link,
    commands.SignInAtProvider: sso.sign_in,
    commands.CreateWebhook: webhooks.create,
    commands.ChangeWebhook: webhooks.change,
    commands.TellWaits: webhooks.tell_waits,
    commands.RemoveWebhook: webhooks.remove,
    commands.ChangeWebhookSecret: webhooks.change_secret,
    commands.TryWebhook: webhooks.try_out,
    commands.Redeliver: webhooks.redeliver,
    commands.NoteDelivery: webhooks.note,
}
"""Command -> what decides it."""


def decide(state: State, cause: Event | Command) -> Sequence[EventData]:
    """Raises Refused, for an experiment that is not known (not_found), has ended or is being canceled (conflict), or is
    somebody else's (forbidden), and so for what else is asked about."""
    if isinstance(cause, Event):
        # Without a webhook or a rule the payload is not even decoded.
        found = follow(state.notices, cause.data, cause.time_us, state.hidden_from) if state.notices.webhooks else ()
        return [*found, *act(state, cause, found, experiments.check_fork)]
    decision = DECISIONS.get(type(cause))
    if decision is None:
        return ()
    events = decision(state, cause)
    return [*events, *follow_own(state.notices, events, cause.time_us, state.hidden_from)]
