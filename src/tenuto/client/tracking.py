"""Writes unmanaged runs by the door's part of MLflow's protocol, without MLflow's client. A repeated request adds nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from tenuto.client.errors import Away, ClientError, Refused, Unreachable
from tenuto.client.target import Target

API = "/mlflow/api/2.0/mlflow"
FILES = "/mlflow/api/2.0/mlflow-artifacts/artifacts"
POINTS_BATCH, PAIRS_BATCH = 1_000, 100
"""Most values, and most parameters or tags, of one request."""
TRIES_MAX = 8
PAUSE_SECONDS_MAX = 10.0
TIMEOUT_SECONDS = 60.0
T = TypeVar("T")


@dataclass
class TrackedRun:
    """Run with all its data."""

    key: str
    """Key of the run in its own tracker: a run with the same key is not written twice."""
    name: str
    status: str
    start_time_ms: int
    end_time_ms: int | None
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    points: Iterable[tuple[str, float, int, int]] = ()
    """(name, value, time in milliseconds, step) of each point."""
    datasets: Sequence[Mapping[str, Any]] = field(default=())


class Tracking:
    """Client of the door's tracking routes. Raises ClientError."""

    def __init__(self, target: Target) -> None:
        self._http = httpx.Client(
            base_url=target.url, headers={"Authorization": f"Bearer {target.token}"}, timeout=TIMEOUT_SECONDS, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def experiment(self, name: str, tags: Mapping[str, str]) -> str:
        """Id of the experiment of unmanaged runs that has this name; it is created if missing."""
        try:
            found = self._ask("GET", f"{API}/experiments/get-by-name", params={"experiment_name": name})
            return str(found["experiment"]["experiment_id"])
        except Refused as error:
            if error.word != "RESOURCE_DOES_NOT_EXIST":
                raise
        body = {"name": name, "tags": [{"key": key, "value": text} for key, text in tags.items()]}
        return str(self._ask("POST", f"{API}/experiments/create", json=body, key=f"import {name}"[:200])["experiment_id"])

    def write(self, experiment_id: str, run: TrackedRun) -> str:
        """Writes the run; returns its id, which is the same for the same key."""
        body = {"experiment_id": experiment_id, "run_name": run.name, "start_time": run.start_time_ms}
        run_id = str(
            self._ask("POST", f"{API}/runs/create", json=body, key=f"{experiment_id} {run.key}")["run"]["info"]["run_id"]
        )
        for kind, pairs in (("params", run.parameters), ("tags", run.tags)):
            for batch in batches(pairs.items(), PAIRS_BATCH):
                self._log(run_id, {kind: [{"key": key, "value": value} for key, value in batch]})
        for points in batches(run.points, POINTS_BATCH):
            self._log(run_id, {"metrics": [_metric(*point) for point in points]})
        if run.datasets:
            self._ask("POST", f"{API}/runs/log-inputs", json={"run_id": run_id, "datasets": list(run.datasets)})
        update: dict[str, Any] = {"run_id": run_id, "status": run.status}
        self._ask("POST", f"{API}/runs/update", json=update | ({} if run.end_time_ms is None else {"end_time": run.end_time_ms}))
        return run_id

    def artifact(self, experiment_id: str, run_id: str, path: str, file: Path) -> None:
        """Stores a file under its path among the run's artifacts."""
        with file.open("rb") as opened:
            self._once("PUT", f"{FILES}/{experiment_id}/{run_id}/artifacts/{quote(path)}", content=opened)

    def _log(self, run_id: str, data: dict[str, Any]) -> None:
        self._ask("POST", f"{API}/runs/log-batch", json={"run_id": run_id, **data})

    def _ask(self, method: str, path: str, *, key: str = "", **arguments: Any) -> Any:
        """Sends a request, and repeats it while the cluster is unreachable: all of these may be sent twice."""
        if key:
            arguments["headers"] = {"Idempotency-Key": key.encode("ascii", "backslashreplace")[:200]}
        pause = 0.2
        for left in reversed(range(TRIES_MAX)):
            try:
                return self._once(method, path, **arguments)
            except Away as error:
                if not left:
                    raise
                time.sleep(max(pause, error.retry_after_seconds or 0.0))
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
        raise AssertionError

    def _once(self, method: str, path: str, **arguments: Any) -> Any:
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise Unreachable(f"The cluster at {self._http.base_url} does not answer ({type(error).__name__}).") from error
        if answer.is_success:
            return answer.json()
        raise _told(answer)


def _told(answer: httpx.Response) -> ClientError:
    try:
        body = answer.json()
        code, message = str(body["error_code"]), str(body["message"])
    except (ValueError, KeyError, TypeError):
        return ClientError(f"{answer.request.url} answered {answer.status_code}, which a Tenuto cluster does not; check --url.")
    if answer.status_code in (429, 503):
        away = Away(message)
        given = answer.headers.get("retry-after", "")
        away.retry_after_seconds = float(given) if given.isdecimal() else None
        return away
    refused = Refused(message)
    refused.status, refused.word = answer.status_code, code
    return refused


def _metric(name: str, value: float, time_ms: int, step: int) -> dict[str, Any]:
    shown: float | str = value
    if value != value or value in (float("inf"), float("-inf")):
        shown = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return {"key": name, "value": shown, "timestamp": time_ms, "step": step}


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
