"""Reactions of an agent's stand-in to reports: the directives that it sends to the trial."""

from __future__ import annotations

from collections.abc import Callable

from tenuto.schemas.reports import TrackerReport, ValidationReport
from tenuto.schemas.wire import worker_pb2 as pb


def stop_at(length: int) -> Callable[[TrackerReport], pb.Directive | None]:
    def react(report: TrackerReport) -> pb.Directive | None:
        at_target = isinstance(report, ValidationReport) and report.length >= length
        return pb.Directive(action=pb.Directive.STOP, target_length=length) if at_target else None

    return react
