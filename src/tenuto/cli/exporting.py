"""exp export: an experiment as tables in files, or its trials in the form of other trackers, written by those trackers' own
libraries."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tenuto.cli.common import ExperimentId, client
from tenuto.cli.errors import CliError
from tenuto.cli.mlflow_runs import checked, mlflow_client
from tenuto.cli.say import say
from tenuto.cli.table_files import write_tables

BATCH = 1_000
PARAMETER_CHARACTERS_MAX = 6_000
"""MLflow's limit."""
SOURCE, COMPLETE = "tenuto.trial", "tenuto.complete"
"""Tags of an exported run: its trial, and whether all of the ended trial is in it."""
STATUS = {"completed": "FINISHED", "early_stopped": "FINISHED", "failed": "FAILED", "canceled": "KILLED"}


@dataclass(frozen=True)
class Exported:
    """A trial with what is exported of it."""

    id: str
    name: str
    state: str
    hyperparameters: dict[str, Any]
    tags: dict[str, str]
    started_ms: int
    ended_ms: int | None
    points: list[tuple[int, int, dict[str, float]]]
    """Step, time in milliseconds and metrics, by step."""


def export(
    context: typer.Context,
    experiment: ExperimentId,
    target: Annotated[
        str, typer.Argument(help="A directory; for mlflow its tracking URI or directory; for wandb a directory for `wandb sync`.")
    ],
    to: Annotated[Literal["csv", "parquet", "mlflow", "wandb"], typer.Option("--to", help="Form of the files or runs.")],
) -> None:
    """Export an experiment: as tables of its trials, training metrics and validations (csv, parquet), to MLflow, or as offline
    runs of Weights & Biases: hyperparameters, metrics, labels. A trial that was exported whole to a tracker is left out."""
    rest = client(context)
    found = rest.get_experiment(experiment)
    found.reload()
    if to in ("csv", "parquet"):
        for path in write_tables(found, Path(target), to):
            say(f"{path} written.")
        return
    trials = (_exported(found.data, trial) for trial in found.list_trials())
    if to == "mlflow":
        written, before = _to_mlflow(found.data, trials, target)
        where = f"at {target}"
    else:
        written, before = _to_wandb(found.data, trials, Path(target))
        where = f"below {target}; `wandb sync {Path(target) / 'wandb'}/offline-run-*` sends them"
    known = f", {before} exported before" if before else ""
    say(f"{written} run{'s' * (written != 1)} exported{known}: {where}.")


def _exported(experiment: dict[str, Any], trial: Any) -> Exported:
    points: dict[int, tuple[int, dict[str, float]]] = {}
    for kind in ("training", "validation"):
        columns = trial.metrics(kind).columns
        names = [name for name in columns if name not in ("trial", "batches", "time_us", "length")]
        for row, step in enumerate(columns.get("batches", ())):
            time_ms = int(columns["time_us"][row]) // 1000
            values = {name: float(columns[name][row]) for name in names if not math.isnan(columns[name][row])}
            _, known = points.get(int(step), (0, {}))
            points[int(step)] = (time_ms, {**known, **values})
    data = trial.data
    tags = {"tenuto.state": data["state"], "tenuto.experiment": str(experiment["id"]), "tenuto.seed": str(data["seed"])}
    tags |= {"mlflow.user": experiment["user"]} | {f"tenuto.label.{label}": "true" for label in experiment["labels"]}
    return Exported(
        id=data["id"],
        name=f"{experiment['name']} {data['id']}",
        state=data["state"],
        hyperparameters=dict(_flat(data["hyperparameters"])),
        tags=tags,
        started_ms=data["requested_us"] // 1000,
        ended_ms=None if data["ended_us"] is None else data["ended_us"] // 1000,
        points=[(step, *points[step]) for step in sorted(points)],
    )


def _to_mlflow(experiment: dict[str, Any], trials: Iterator[Exported], uri: str) -> tuple[int, int]:
    """Numbers of the runs that were written, and of those that were there. Raises CliError."""
    client = mlflow_client(uri, make=True)
    known = checked(lambda: client.get_experiment_by_name(experiment["name"]))
    experiment_id = known.experiment_id if known else checked(lambda: client.create_experiment(experiment["name"]))
    written = before = 0
    for trial in trials:
        source = f"{experiment['submitted_us']} {trial.id}"  # another cluster has a trial of this id, too
        filter_ = f"tags.`{SOURCE}` = '{source}'"
        runs = checked(lambda filter_=filter_: client.search_runs([experiment_id], filter_string=filter_))
        if any(run.data.tags.get(COMPLETE) == "true" for run in runs):
            before += 1
            continue
        for run in runs:  # an export that was broken off, or that came before the trial's end
            checked(lambda run=run: client.delete_run(run.info.run_id))
        checked(lambda trial=trial, source=source: _write(client, experiment_id, trial, source))
        written += 1
    return written, before


def _write(client: Any, experiment_id: str, trial: Exported, source: str) -> None:
    from mlflow.entities import Metric, Param

    tags = {**trial.tags, SOURCE: source}
    run_id = client.create_run(experiment_id, trial.started_ms, tags, trial.name).info.run_id
    parameters = [Param(name, _text(value)[:PARAMETER_CHARACTERS_MAX]) for name, value in trial.hyperparameters.items()]
    for first in range(0, len(parameters), 100):
        client.log_batch(run_id, params=parameters[first : first + 100])
    metrics = [Metric(name, value, time_ms, step) for step, time_ms, values in trial.points for name, value in values.items()]
    for first in range(0, len(metrics), BATCH):
        client.log_batch(run_id, metrics[first : first + BATCH])
    ended = trial.ended_ms is not None
    if ended:
        client.set_terminated(run_id, STATUS.get(trial.state, "FINISHED"), trial.ended_ms)
    client.set_tag(run_id, COMPLETE, "true" if ended else "false")


def _to_wandb(experiment: dict[str, Any], trials: Iterator[Exported], directory: Path) -> tuple[int, int]:
    """Same as `_to_mlflow`, but to Weights & Biases."""
    from tenuto.kernel.optional import NotInstalled, needed

    try:
        wandb = needed("wandb")
        directory.mkdir(parents=True, exist_ok=True)
    except NotInstalled as error:
        raise CliError(f"{error}.") from error
    except OSError as error:
        raise CliError(f"{directory} cannot be written: {error.strerror}.") from error
    written = before = 0
    for trial in trials:
        run_id = f"tenuto-{experiment['submitted_us']}-{trial.id}"
        if any(_whole(found) for found in directory.glob(f"wandb/offline-run-*-{run_id}")):
            before += 1
            continue
        settings = wandb.Settings(
            mode="offline", root_dir=str(directory), console="off", disable_git=True, disable_code=True, silent=True,
            x_disable_stats=True, x_disable_meta=True, x_save_requirements=False, x_start_time=trial.started_ms / 1000,
        )  # fmt: skip
        labels = list(experiment["labels"])
        run = wandb.init(
            project=experiment["name"], id=run_id, name=trial.name, config=trial.hyperparameters, tags=labels, settings=settings
        )
        for step, time_ms, values in trial.points:
            run.log({**values, "_timestamp": time_ms / 1000}, step=step)
        run.summary.update({name: value for name, value in trial.tags.items() if name.startswith("tenuto.")})
        run.finish(exit_code=int(trial.state == "failed"))
        _mark(directory, run_id, trial)
        written += 1
    return written, before


def _mark(directory: Path, run_id: str, trial: Exported) -> None:
    """Notes that the run is whole, beside what wandb wrote: an export that is broken off leaves no such note."""
    made = max(directory.glob(f"wandb/offline-run-*-{run_id}"))
    note = {"trial": trial.id, "complete": trial.ended_ms is not None, "exported_s": int(time.time())}
    (made / "tenuto.json").write_text(json.dumps(note))


def _whole(directory: Path) -> bool:
    try:
        return bool(json.loads((directory / "tenuto.json").read_text())["complete"])
    except (OSError, ValueError, KeyError):
        return False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
