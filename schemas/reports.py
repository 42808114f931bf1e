"""Reports of workers and agents on their way to the record: JSON bodies on ingress subjects, identity in message headers.

Reports in a lane carry consecutive sequence numbers, so a receiver can tell a repeated report from a missing one without reading
its body.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, model_validator
from typing_extensions import TypedDict

from tenuto.schemas.base import Model
from tenuto.schemas.events.run import Cause, Rendezvous, WorkersExit
from tenuto.schemas.events.trial import Damage, DataUse, Ended, LogMatch, ModelNotice, Progress, Save, Straggler, Validation
from tenuto.schemas.record import EnvironmentRecord
from tenuto.schemas.upcasters import cause_by_code

# Message headers of every report.
HEADER_AGENT = "Tenuto-Agent"
HEADER_SPOOL = "Tenuto-Spool"
"""Id of the agent's spool. A new id means that numbering began again at 1, because the agent's disk was lost."""
HEADER_SEQUENCE = "Tenuto-Sequence"
HEADER_KIND = "Tenuto-Kind"
HEADER_FOLLOWED = "Tenuto-Followed"
"""Set if the next report of this lane was published at the same time: the receiver can commit both at once."""
HEADER_ROUND = "Tenuto-Round"
"""Number of the sending round. A new round begins when the agent learns that reports were lost."""
HEADER_MESSAGE_ID = "Nats-Msg-Id"
HEADER_TRACE = "traceparent"
HEADER_TOKEN = "Tenuto-Token"
"""Token that proves that the report's allocation was assigned to its sender."""
HEADER_CLEAR = "Tenuto-Clear"
"""Set on a position request: the receiver first removes the agent's messages of this lane from the stream. The agent has every
uncommitted one on its disk, and sends it again."""


REPORT_BYTES_MAX = 7 * 1024 * 1024
"""Largest report, below the bus's limit for one message (8 MiB): a larger one could never leave the spool."""
METRICS_MAX = 2_000
"""Most metrics of one report: enough for one metric per class in the largest benchmarks (some 1,200 classes)."""
METRIC_NAME_CHARACTERS_MAX = 256
METRICS_CHARACTERS_MAX = 64 * 1024
"""Most characters of all metric names of one report together. A validation is recorded for ever, and each service reads it at
each start."""


def never_reported(metric: str, reported: Iterable[str]) -> str:
    """The sentence about a search whose metric no validation had. `reported`: the names that they had."""
    return (
        f"No trial reported the metric {metric!r} that the searcher compares; reported were: "
        f"{', '.join(reported) or 'no metric at all'}. Set searcher.metric to one of these, or return that metric from the "
        "evaluation."
    )


def metrics_refusal(metrics: Collection[str]) -> str:
    """Reason why these metrics (by name) are too many or too long for one report; empty if they fit."""
    if len(metrics) > METRICS_MAX:
        return f"it has {len(metrics)} metrics, where one report may have {METRICS_MAX}: report fewer, or averages of them"
    if sum(map(len, metrics)) > METRICS_CHARACTERS_MAX or any(len(name) > METRIC_NAME_CHARACTERS_MAX for name in metrics):
        return (
            f"it has metrics with long names: each may have {METRIC_NAME_CHARACTERS_MAX} characters, all of one report "
            f"{METRICS_CHARACTERS_MAX} together"
        )
    return ""


def _bounded(metrics: dict[str, float]) -> dict[str, float]:
    if why := metrics_refusal(metrics):
        raise ValueError(why)
    return metrics


Metrics = Annotated[dict[str, float], AfterValidator(_bounded)]


# The fields that the record has as well are declared once, with the events.


class TrialReport(Model):
    """A report of a worker about its trial."""

    trial_id: str


class ValidationReport(Validation, TrialReport):
    kind: Literal["validation"] = "validation"
    metrics: Metrics


BREAKS_MAX = 20
BREAK_CHARACTERS_MAX = 500
Break = Annotated[str, Field(max_length=BREAK_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""One sentence about a break of exactness."""


class CheckpointReport(Save, TrialReport):
    kind: Literal["checkpoint"] = "checkpoint"
    checkpoint_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")
    location: str = Field(default="", exclude=True)
    """Not used: the location of a checkpoint follows from its experiment and its ids."""
    breaks: tuple[Break, ...] = Field(default=(), max_length=BREAKS_MAX)
    """Reasons why the trial is not resumed or repeated exactly, as far as its worker noticed up to this checkpoint."""


class DamageReport(Damage, TrialReport):
    kind: Literal["damaged_checkpoint"] = "damaged_checkpoint"


class ProgressReport(Progress, TrialReport):
    kind: Literal["progress"] = "progress"


class TrainingEndedReport(Ended, TrialReport):
    """The trial's own code ended its training early. Sent after its last validation."""

    kind: Literal["training_ended"] = "training_ended"


class EnvironmentReport(TrialReport):
    kind: Literal["environment"] = "environment"
    allocation_id: str
    environment: EnvironmentRecord


class DataReport(DataUse, TrialReport):
    kind: Literal["data"] = "data"


class LogMatchReport(LogMatch, TrialReport):
    """A printed line matched a log policy. The agent itself sends this report."""

    kind: Literal["log_match"] = "log_match"


class NoticeReport(ModelNotice, TrialReport):
    kind: Literal["notice"] = "notice"


class StragglerReport(Straggler, TrialReport):
    kind: Literal["straggler"] = "straggler"


TrackerReport = Annotated[
    ValidationReport
    | CheckpointReport
    | DamageReport
    | ProgressReport
    | TrainingEndedReport
    | EnvironmentReport
    | DataReport
    | LogMatchReport
    | NoticeReport
    | StragglerReport,
    Field(discriminator="kind"),
]
TRACKER_REPORT: TypeAdapter[TrackerReport] = TypeAdapter(TrackerReport)


class PartReport(Model):
    """A report of an agent about its part of an allocation."""

    trial_id: str
    allocation_id: str
    agent_id: str


class WorkersStartingReport(PartReport):
    kind: Literal["workers_starting"] = "workers_starting"


class WorkersStartedReport(PartReport):
    kind: Literal["workers_started"] = "workers_started"


class WorkersExitedReport(WorkersExit, PartReport):
    kind: Literal["workers_exited"] = "workers_exited"
    followed: bool = False
    """True: this part ended only because other parts of its gang ended."""
    cause: Cause | None
    """Same as in WorkersExited. Always written: agents of an older version, which may join a newer cluster, do not know it."""

    @model_validator(mode="before")
    @classmethod
    def _of_older_agents(cls, data: Any) -> Any:
        if isinstance(data, dict) and "cause" not in data:
            return {**data, "cause": cause_by_code(data.get("exit_code"))}
        return data


class RendezvousReport(Rendezvous, PartReport):
    """Address at which rank 0's side of a gang listens for the ranks on other agents."""

    kind: Literal["rendezvous"] = "rendezvous"


LauncherReport = Annotated[
    WorkersStartingReport | WorkersStartedReport | WorkersExitedReport | RendezvousReport, Field(discriminator="kind")
]
LAUNCHER_REPORT: TypeAdapter[LauncherReport] = TypeAdapter(LauncherReport)


class MetricPoint(Model):
    batches: int
    time_us: int
    metrics: Metrics


class MetricsReport(Model):
    kind: Literal["metrics"] = "metrics"
    trial_id: str
    allocation_id: str
    points: tuple[MetricPoint, ...]


class PointRead(TypedDict):
    """A MetricPoint as it is read where many are: a dictionary is made in half the time of an object."""

    __pydantic_config__ = MetricPoint.model_config  # type: ignore[misc]

    batches: int
    time_us: int
    metrics: Metrics


class MetricsRead(Model):
    """A MetricsReport as it is read where many are. What the one takes, the other takes."""

    kind: Literal["metrics"] = "metrics"
    trial_id: str
    allocation_id: str
    points: tuple[PointRead, ...]


class LogLine(Model):
    time_us: int
    rank: int
    stream: Literal["stdout", "stderr", "tenuto"]
    text: str


class LogsReport(Model):
    kind: Literal["logs"] = "logs"
    trial_id: str
    allocation_id: str
    lines: tuple[LogLine, ...]


class Committed(Model):
    """Message of a receiver to an agent: every report up to `sequence` is in the record (or parked), and may be dropped."""

    spool_id: str
    sequence: int
    resend: bool = False
    """True: the receiver saw a gap; the agent sends again from `sequence` + 1."""
    round: int = 0
    """Round of the reports behind the gap, with `resend`. Reports of a later round may be complete."""
    stored: int | None = None
    """Number of messages of the agent's lane, in an answer, that the stream held just before `sequence` was read. If it held
    none, every report that was sent and is not committed is lost. None: not known."""
