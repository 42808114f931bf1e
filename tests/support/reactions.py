"""Reactions of an agent's stand-in to reports: the directives that it sends to the trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tenuto.schemas.reports import TrackerReport, TrainingEndedReport, ValidationReport
from tenuto.schemas.wire import worker_pb2 as pb


def stop_at(length: int) -> Callable[[TrackerReport], pb.Directive | None]:
    def react(report: TrackerReport) -> pb.Directive | None:
        at_target = isinstance(report, ValidationReport) and report.length >= length
        return pb.Directive(action=pb.Directive.STOP, target_length=length) if at_target else None

    return react


def stop_ended(report: TrackerReport) -> pb.Directive | None:
    """As the search: a trial that ended by itself is stopped."""
    return pb.Directive(action=pb.Directive.STOP, target_length=1) if isinstance(report, TrainingEndedReport) else None


def ends_of(reports: Iterable[TrackerReport]) -> list[tuple[int, int, str]]:
    """(batches, length, reason) of each early end."""
    return [(item.batches, item.length, item.said) for item in reports if isinstance(item, TrainingEndedReport)]
