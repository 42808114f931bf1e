"""Bodies of MLflow's requests. Fields that are not known are ignored, as MLflow's own server does: newer clients send more."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tenuto.schemas.config.experiment import NAME_CHARACTERS_MAX as DESCRIBED_NAME_CHARACTERS_MAX
from tenuto.schemas.text import visible
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.mlflow.adapters.run_data import Pair, RunPoint
from tenuto.services.gateway.mlflow.adapters.run_models import ModelPoint

NAME_CHARACTERS_MAX = 250
PARAMETER_CHARACTERS_MAX = 6_000
TAG_CHARACTERS_MAX = 8_000
"""These three are MLflow's own limits."""
METRICS_MAX = 1_000
PAIRS_MAX = 100
"""Most metrics and pairs of one log-batch. They are MLflow's own limits; its clients send several batches where one would exceed
them."""
TIME_MS_MAX = 2**53
"""Latest time: in microseconds it still fits a 64-bit integer."""
STEP_MAX = 2**62


def _name(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not have control characters")
    return text


Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARACTERS_MAX), AfterValidator(_name)]
Title = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_name)]
TimeMs = Annotated[int, Field(ge=0, le=TIME_MS_MAX)]
ExperimentRef = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,17})$")]
RunRef = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,17}-[1-9][0-9]{0,8}$")]
ModelRef = Annotated[str, Field(pattern=r"^m-[1-9][0-9]{0,17}-[1-9][0-9]{0,8}$")]
Step = Annotated[int, Field(ge=-STEP_MAX, le=STEP_MAX)]
ViewType = Literal["ACTIVE_ONLY", "DELETED_ONLY", "ALL"]
Status = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]


class MlflowBody(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, given: Any) -> Any:
        """Numbers may be texts, as protobuf writes them, so the models are not strict."""
        for name, value in given.items() if isinstance(given, dict) else ():
            if isinstance(value, bool) and name in cls.model_fields and cls.model_fields[name].annotation is not bool:
                raise ValueError(f"{name} is {str(value).lower()}, which is no number and no text")
        return given


class OfExperiment(MlflowBody):
    experiment_id: ExperimentRef


class OfRun(MlflowBody):
    run_id: RunRef


class OfDataset(MlflowBody):
    dataset_name: Annotated[str | None, Field(max_length=500)] = None
    dataset_digest: Annotated[str | None, Field(max_length=36)] = None

    @property
    def dataset(self) -> tuple[str, str]:
        """Name and digest; empty where none was given."""
        return self.dataset_name or "", self.dataset_digest or ""


class Metric(OfDataset):
    key: Name
    value: float
    timestamp: TimeMs
    step: Step = 0
    model_id: ModelRef | Literal[""] | None = None
    """The logged model that it is about."""

    def of_model(self, run_id: str) -> ModelPoint:
        experiment_id, number = (self.model_id or "").split("-")[1:]
        return ModelPoint(int(experiment_id), int(number), self.key, run_id, *self.dataset, self.step, self.timestamp, self.value)

    @property
    def point(self) -> RunPoint:
        return RunPoint(self.key, self.step, self.timestamp, self.value)


class Parameter(MlflowBody):
    key: Name
    value: Annotated[str, Field(max_length=PARAMETER_CHARACTERS_MAX)] = ""

    @property
    def pair(self) -> Pair:
        return Pair(self.key, self.value)


class Tag(MlflowBody):
    key: Name
    value: Annotated[str, Field(max_length=TAG_CHARACTERS_MAX)] = ""

    @property
    def pair(self) -> Pair:
        return Pair(self.key, self.value)


class CreateExperiment(MlflowBody):
    name: Title
    artifact_location: str | None = None
    tags: Annotated[list[Tag], Field(max_length=PAIRS_MAX)] = []


class SearchExperiments(MlflowBody):
    filter: str = ""
    order_by: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=10)] = []
    max_results: Annotated[int, Field(ge=1, le=50_000)] = 1_000
    page_token: str = ""
    view_type: ViewType = "ACTIVE_ONLY"


class SetExperimentTag(OfExperiment, Tag):
    pass


class DeleteExperimentTag(OfExperiment):
    key: Name


class UpdateExperiment(OfExperiment):
    new_name: Annotated[Title, Field(max_length=DESCRIBED_NAME_CHARACTERS_MAX)]
    """Same limit as for the name of any experiment, because a rename is recorded in the same way."""


class CreateRun(OfExperiment):
    run_name: Annotated[str | None, Field(max_length=500)] = None
    start_time: TimeMs | None = None
    tags: Annotated[list[Tag], Field(max_length=PAIRS_MAX)] = []


class UpdateRun(OfRun):
    status: Status | None = None
    end_time: TimeMs | None = None
    run_name: Annotated[str | None, Field(max_length=500)] = None


class SearchRuns(MlflowBody):
    experiment_ids: Annotated[list[ExperimentRef], Field(max_length=1_000)] = []
    filter: str = ""
    run_view_type: ViewType = "ACTIVE_ONLY"
    order_by: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=10)] = []
    max_results: Annotated[int, Field(ge=1, le=50_000)] = 1_000
    page_token: str = ""


class LogMetric(OfRun, Metric):
    pass


class LogParameter(OfRun, Parameter):
    pass


class SetTag(OfRun, Tag):
    pass


class DeleteTag(OfRun):
    key: Name


class LogBatch(OfRun):
    metrics: Annotated[list[Metric], Field(max_length=METRICS_MAX)] = []
    params: Annotated[list[Parameter], Field(max_length=PAIRS_MAX)] = []
    tags: Annotated[list[Tag], Field(max_length=PAIRS_MAX)] = []


class Dataset(MlflowBody):
    name: Annotated[str, Field(max_length=500)]
    digest: Annotated[str, Field(max_length=36)]
    source_type: Annotated[str, Field(max_length=250)] = ""
    source: Annotated[str, Field(max_length=65_535)] = ""
    schema_: Annotated[str | None, Field(max_length=65_535, alias="schema")] = None
    profile: Annotated[str | None, Field(max_length=65_535)] = None


class InputTag(MlflowBody):
    key: Annotated[str, Field(max_length=255)]
    value: Annotated[str, Field(max_length=500)] = ""


class DatasetInput(MlflowBody):
    tags: Annotated[list[InputTag], Field(max_length=20)] = []
    dataset: Dataset


class OfModel(MlflowBody):
    model_id: ModelRef


class ModelOutput(OfModel):
    step: Step = 0


class LogInputs(OfRun):
    datasets: Annotated[list[DatasetInput], Field(max_length=PAIRS_MAX)] = []
    models: Annotated[list[OfModel], Field(max_length=PAIRS_MAX)] = []


class LogOutputs(OfRun):
    models: Annotated[list[ModelOutput], Field(max_length=PAIRS_MAX)] = []


class LogModel(OfRun):
    model_json: Annotated[str, Field(max_length=TAG_CHARACTERS_MAX)]


class ModelParameters(MlflowBody):
    params: Annotated[list[Parameter], Field(max_length=PAIRS_MAX)] = []


class ModelTags(MlflowBody):
    tags: Annotated[list[Tag], Field(max_length=PAIRS_MAX)] = []


class CreateModel(OfExperiment, ModelParameters, ModelTags):
    name: Annotated[Title | Literal[""] | None, Field()] = None
    model_type: Annotated[str, Field(max_length=500)] = ""
    source_run_id: RunRef | Literal[""] = ""


class FinalizeModel(MlflowBody):
    status: Literal["LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"]


class ModelOrder(OfDataset):
    field_name: Annotated[str, Field(min_length=1, max_length=500)]
    ascending: bool = True


class SearchModels(MlflowBody):
    experiment_ids: Annotated[list[ExperimentRef], Field(max_length=1_000)] = []
    filter: str = ""
    datasets: Annotated[list[OfDataset], Field(max_length=PAIRS_MAX)] = []
    order_by: Annotated[list[ModelOrder], Field(max_length=10)] = []
    max_results: Annotated[int, Field(ge=1, le=50_000)] = 50
    page_token: str = ""


def checked_run(given: str) -> str:
    """Id of a run in a query or a path. Raises DoorError."""
    return made(OfRun, json.dumps({"run_id": given}).encode()).run_id


def checked_model(given: str) -> str:
    """Id of a logged model in a path. Raises DoorError."""
    return made(OfModel, json.dumps({"model_id": given}).encode()).model_id


def checked_experiment(given: str) -> str:
    """Id of an experiment in a query. Raises DoorError."""
    return made(OfExperiment, json.dumps({"experiment_id": given}).encode()).experiment_id


B = TypeVar("B", bound=MlflowBody)


async def read(request: Request, kind: type[B]) -> B:
    """The body; the gate has seen that it is JSON. Raises DoorError."""
    return made(kind, await request.body() or b"{}")


def made(kind: type[B], document: bytes) -> B:
    """Raises DoorError."""
    try:
        return kind.model_validate_json(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        why = first["msg"].replace("Input should", "must").removeprefix("Value error, ")
        found = first.get("input")
        shown = f" (found {visible(str(found))[:80]!r})" if isinstance(found, (str, int, float)) else ""
        raise DoorError("invalid", f"{where or 'The body'}: {why}{shown}.") from error
