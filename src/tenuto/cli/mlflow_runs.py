"""import mlflow: runs of another tracker as unmanaged runs, read by MLflow's own client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import Json
from tenuto.cli.errors import CliError
from tenuto.cli.say import say
from tenuto.kernel.scratch import scratch_directory

if TYPE_CHECKING:
    from tenuto.client.tracking import TrackedRun, Tracking

PAGE = 1_000
ALLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"
"""MLflow reads its older form of storage, a directory, only where this variable says so."""


def import_mlflow(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="Tracking URI, such as http://mlflow:5000, or a directory such as mlruns.")],
    experiments: Annotated[
        list[str] | None,
        typer.Option("--experiment", "-e", help="Name of an experiment to import (default: all). May be repeated."),
    ] = None,
    artifacts: Annotated[bool, typer.Option("--artifacts", help="Import the files of the runs, too.")] = False,
    json: Json = False,
) -> None:
    """Import runs from MLflow: parameters as hyperparameters, histories of metrics, tags. Runs that were imported before are not
    doubled: what they lack is added.

    Exits with 0 if every run was imported, and 3 if some were refused; they are named on standard error."""
    import sys

    from tenuto.client.errors import Refused
    from tenuto.client.target import Target
    from tenuto.client.tracking import Tracking

    data_dir, url = context.obj or (None, None)
    target = Target.find(data_dir, url)
    client = mlflow_client(source)
    found: list[dict[str, str]] = []
    refused = 0
    with Tracking(target) as tracking:
        for experiment in _experiments(client, experiments):
            experiment_id = ""
            for run in _runs(client, experiment):
                tags = {key: text for key, text in experiment.tags.items() if not key.startswith("tenuto.")}
                experiment_id = experiment_id or tracking.experiment(experiment.name, tags)
                try:
                    run_id = _copy(client, run, tracking, experiment_id, artifacts)
                except Refused as error:
                    refused += 1
                    say(f"Run {run.info.run_id} is not imported: {error}", file=sys.stderr)
                    continue
                found.append({"run": run.info.run_id, "trial": run_id, "experiment": experiment.name})
    if json:
        from tenuto.cli.output import print_json

        print_json(found)
    else:
        count = len(found)
        say(f"{count} run{'s' * (count != 1)} imported; `tenuto exp ls` shows their experiments.")
    if refused:
        raise typer.Exit(3)


def _copy(client: Any, run: Any, tracking: Tracking, experiment_id: str, artifacts: bool) -> str:
    """Writes a run of MLflow; returns its id here. Raises Refused."""
    run_id = tracking.write(experiment_id, _read(client, run))
    if artifacts:
        _copy_artifacts(client, run, tracking, experiment_id, run_id)
    return run_id


def mlflow_client(uri: str, *, make: bool = False) -> Any:
    """MLflow's client for a tracking URI or a directory. `make`: the directory may be missing. Raises CliError."""
    from tenuto.kernel.optional import NotInstalled, needed

    if "://" not in uri:
        os.environ.setdefault(ALLOW_FILES, "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    try:
        mlflow = needed("mlflow")
    except NotInstalled as error:
        raise CliError(f"{error}.") from error
    if "://" not in uri and not make and not Path(uri).is_dir():
        raise CliError(f"{uri} is no directory; give a directory that MLflow wrote, such as mlruns, or a tracking URI.")
    try:
        return mlflow.MlflowClient(tracking_uri=uri if "://" in uri else str(Path(uri).absolute()))
    except (mlflow.exceptions.MlflowException, ImportError) as error:
        raise CliError(
            f"MLflow cannot open {uri} ({error}); start its server (`mlflow server`) and give that address."
        ) from error


def _experiments(client: Any, names: list[str] | None) -> list[Any]:
    """Raises CliError."""
    found = list(asked(lambda token: client.search_experiments(max_results=PAGE, page_token=token)))
    if names is None or not names:
        return found
    known = {experiment.name: experiment for experiment in found}
    if missing := [name for name in names if name not in known]:
        raise CliError(f"There is no experiment {missing[0]!r}; there are {', '.join(sorted(known)) or 'none'}.")
    return [known[name] for name in names]


def _runs(client: Any, experiment: Any) -> Iterator[Any]:
    ids = [experiment.experiment_id]
    order = ["attributes.start_time ASC"]
    yield from asked(lambda token: client.search_runs(ids, max_results=PAGE, order_by=order, page_token=token))


def asked(page_of: Any) -> Iterator[Any]:
    """Items of all pages. Raises CliError."""
    token = None
    while True:
        page = checked(lambda token=token: page_of(token))
        yield from page
        token = page.token
        if not token:
            return


def checked(ask: Any) -> Any:
    """Answer of MLflow's client. Raises CliError."""
    from tenuto.kernel.optional import needed

    try:
        return ask()
    except needed("mlflow").exceptions.MlflowException as error:
        raise CliError(f"MLflow refuses this: {str(error).splitlines()[0][:500]}") from error


def _read(client: Any, run: Any) -> TrackedRun:
    from tenuto.client.tracking import TrackedRun

    info = run.info
    tags = {**run.data.tags, "tenuto.imported": f"mlflow run {info.run_id}"}
    tags.setdefault("mlflow.user", info.user_id or "")
    return TrackedRun(
        key=f"mlflow {info.run_id}",
        name=info.run_name or "",
        status=info.status,
        start_time_ms=info.start_time or 0,
        end_time_ms=info.end_time,
        parameters=run.data.params,
        tags=tags,
        points=_points(client, info.run_id, sorted(run.data.metrics)),
        datasets=[_dataset(item) for item in run.inputs.dataset_inputs] if run.inputs else (),
    )


def _points(client: Any, run_id: str, names: list[str]) -> Iterator[tuple[str, float, int, int]]:
    for name in names:
        for point in checked(lambda name=name: client.get_metric_history(run_id, name)):
            yield name, point.value, point.timestamp, point.step


def _dataset(item: Any) -> dict[str, Any]:
    shown = {name: value for name, value in item.dataset.to_dictionary().items() if value is not None}
    return {"dataset": shown, "tags": [{"key": tag.key, "value": tag.value} for tag in item.tags]}


def _copy_artifacts(client: Any, run: Any, tracking: Tracking, experiment_id: str, run_id: str) -> None:
    with scratch_directory("import") as directory:
        for path in _files(client, run.info.run_id, ""):
            local = checked(lambda path=path: client.download_artifacts(run.info.run_id, path, str(directory)))
            tracking.artifact(experiment_id, run_id, path, Path(local))
            Path(local).unlink()


def _files(client: Any, run_id: str, path: str) -> Iterator[str]:
    for item in checked(lambda: client.list_artifacts(run_id, path or None)):
        if item.is_dir:
            yield from _files(client, run_id, item.path)
        else:
            yield item.path
