"""Decisions about experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.services.gateway.experiments import commands
from tenuto.services.gateway.experiments.decide import deletions, experiments, limits, rules, unmanaged

DECISIONS: Mapping[type, Callable[[Any, Any], Sequence[EventData]]] = {
    commands.SubmitExperiment: experiments.submit,
    commands.PauseExperiment: experiments.pause,
    commands.ResumeExperiment: experiments.resume,
    commands.CancelExperiment: experiments.cancel,
    commands.ChangeExperiment: experiments.change,
    commands.DescribeExperiment: experiments.describe,
    commands.ArchiveExperiment: experiments.archive,
    commands.UnarchiveExperiment: experiments.unarchive,
    commands.PutIntoProject: experiments.put_into_project,
    commands.DeleteExperiment: deletions.delete,
    commands.KeepExperiment: deletions.keep,
    commands.CarryOutDeletion: deletions.carry_out,
    commands.EndOverdue: limits.end_overdue,
    commands.NoteStorage: limits.note_storage,
    commands.MoveExperiment: experiments.move,
    commands.RequestOperations: experiments.request_operations,
    commands.SetWorkspaceRules: rules.set_rules,
    commands.CreateUnmanagedExperiment: unmanaged.create,
    commands.StartUnmanagedTrial: unmanaged.start,
    commands.ChangeUnmanagedTrial: unmanaged.change,
}
"""Command -> what decides it."""
