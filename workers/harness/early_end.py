"""The report of a training that its own code ends before the length that the search asked for."""

from __future__ import annotations

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.events.trial import ENDED_CHARACTERS_MAX
from tenuto.schemas.reports import TrainingEndedReport
from tenuto.schemas.text import storable
from tenuto.workers.harness.report_ids import ids_of


def reason_of(said: object) -> str:
    """A reason in one line of bounded length."""
    return storable(" ".join(str(said).split()))[:ENDED_CHARACTERS_MAX]


def ended_report(assignment: Assignment, batches: int, length: int, said: str) -> TrainingEndedReport:
    return TrainingEndedReport(**ids_of(assignment), batches=batches, length=length, said=said)


def sentence(batches: int, said: str, validated_at: int | None) -> str:
    """Sentence for the trial's log. `validated_at`: None if the trial has no validation."""
    why = f" ({said})" if said else ""
    counts = "it has no validation" if validated_at is None else f"its validation at batch {validated_at} counts"
    return f"the training ended by itself at batch {batches}{why}: {counts}, and it is not trained further"
