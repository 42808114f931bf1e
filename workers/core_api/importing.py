"""Imports the record of a run without a cluster: the worker of an imported experiment sends the record's reports to its agent,
like every worker. So the log stays true about when, by which allocation, and what was reported."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from tenuto.kernel.scratch import scratch_directory
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Damaged
from tenuto.schemas.config.yaml_text import dump_yaml
from tenuto.schemas.record import IMPORT_PLACE, IMPORT_RECORD, IMPORT_SCRIPT, OVERRIDES_MAX, Origin
from tenuto.schemas.reports import (
    CheckpointReport,
    DataReport,
    EnvironmentReport,
    LogsReport,
    MetricsReport,
    TrainingEndedReport,
    ValidationReport,
)
from tenuto.workers.checkpoints.files import RECORD_FILE
from tenuto.workers.core_api.links import link_or_copy
from tenuto.workers.core_api.local_record import (
    CODE_DIRECTORY,
    REPORTS_FILE,
    RUN_FILE,
    RunDescription,
    checkpoints_of,
    read_lines,
    read_run,
    store_of,
)
from tenuto.workers.core_api.run import Run
from tenuto.workers.core_api.script_checkpoints import METADATA_FILE
from tenuto.workers.core_api.session import Session, current, say
from tenuto.workers.core_api.start import init
from tenuto.workers.errors import UserError
from tenuto.workers.record import recorder

IMPORTED_LABEL = "imported"
COMMAND_LINE_CHARACTERS_MAX = 10_000


def import_config(directory: Path) -> str:
    """Configuration of the experiment that the record becomes, as YAML: one trial with the hyperparameters and the seed of the
    run. It is as long as its last validation; one that its code ended early, as long as it should have been. Raises UserError if
    nothing was validated."""
    description = read_run(directory)
    positions = [line.body.batches for line in read_lines(directory) if isinstance(line.body, ValidationReport)]
    if not positions or max(positions) == 0:
        raise UserError(f"{directory} has no validation yet, and an imported experiment needs one; train it further.")
    plain: dict[str, Any] = json.loads(description.config.to_json())
    for period in ("min_validation_period", "min_checkpoint_period", "log_period"):
        plain.pop(period, None)
    searcher = description.config.searcher
    length = {"batches": max(positions)} if ended_of(directory) is None else json.loads(searcher.max_length.to_json())
    plain |= {
        "description": f"{_origin(description)} {plain['description']}".strip(),
        "labels": [*(label for label in plain["labels"] if label != IMPORTED_LABEL), IMPORTED_LABEL],
        "entrypoint": IMPORT_SCRIPT,
        "hyperparameters": _constants(description.hyperparameters),
        "searcher": {
            "name": "single",
            "metric": searcher.metric,
            "smaller_is_better": searcher.smaller_is_better,
            "max_length": length,
            **({} if description.trial_seed is None else {"trial_seed": description.trial_seed}),
        },
        "reproducibility": {"experiment_seed": description.seed},
    }
    return dump_yaml(plain)


def ended_of(directory: Path) -> TrainingEndedReport | None:
    """Report of the record that the run's own code ended its training early; None if it did not, or reported nothing before."""
    found = [line.body for line in read_lines(directory) if isinstance(line.body, TrainingEndedReport)]
    return found[-1] if found and found[-1].batches else None


def epoch_batches_of(directory: Path) -> int:
    """Batches of an epoch by which each position of the record has the length in epochs that was reported with it. The run's own
    number is not on record."""
    bodies = [line.body for line in read_lines(directory)]
    found = [(body.batches, body.length) for body in bodies if isinstance(body, (ValidationReport, TrainingEndedReport))]
    return min((batches // length for batches, length in found if length), default=max(batches for batches, _ in found) + 1)


def fill_context(directory: Path, context: Path, *, packed: bool) -> None:
    """Writes the model directory of the imported experiment: the run's own code, so that it can be compared, and beside it the
    script that reports the record. Not packed: agents read the record where it is."""
    if (directory / CODE_DIRECTORY).is_dir():
        shutil.copytree(directory / CODE_DIRECTORY, context, dirs_exist_ok=True)
    (context / IMPORT_SCRIPT).write_text("from tenuto.workers.core_api.importing import main\n\nmain()\n")
    if packed:
        shutil.copytree(
            directory, context / IMPORT_RECORD, copy_function=link_or_copy, ignore=lambda path, _: _code_of(directory, path)
        )
    else:
        (context / IMPORT_PLACE).write_text(str(directory.absolute()))


def _code_of(directory: Path, path: str) -> list[str]:
    return [CODE_DIRECTORY] if Path(path) == directory else []


def import_origin(directory: Path) -> Origin:
    """Origin of the run, as of its start."""
    description = read_run(directory)
    return Origin(
        command_line=shlex.join(description.command)[:COMMAND_LINE_CHARACTERS_MAX],
        overrides=dict(list(description.given.items())[:OVERRIDES_MAX]),
        git=description.git,
        seed_drawn=description.config.reproducibility.experiment_seed is None,
    )


def import_key(directory: Path, *, packed: bool) -> str:
    """Key of the import, by which the cluster knows a run that it has already: the same until the record grows."""
    digest = hashlib.sha256(b"packed" if packed else b"in place")
    for name in (RUN_FILE, REPORTS_FILE):
        digest.update((directory / name).read_bytes())
    return f"run-{digest.hexdigest()}"


def main() -> None:
    """The script of an imported experiment."""
    place = Path(IMPORT_PLACE)
    directory = Path(place.read_text()) if place.exists() else Path(IMPORT_RECORD)
    if not directory.is_dir():
        raise UserError(f"the record is not in {directory} on this node; import it without --in-place, which packs it.")
    session = current()
    assert session is not None
    session.at_begin = None  # this process's environment is not the one in which the run was made
    recorder.install(None)
    with init() as run:
        _report(directory, session, run)


def _report(directory: Path, session: Session, run: Run) -> None:
    if session.assignment.config.searcher.max_length.unit == "epochs":
        run.epoch_batches = epoch_batches_of(directory)
    there = {report.checkpoint_id for report in checkpoints_of(directory)}
    done = run.checkpoint.latest.steps if run.checkpoint.latest is not None else 0
    trial = {"trial_id": run.trial_id, "allocation_id": session.assignment.allocation_id}
    for line in read_lines(directory):
        body = line.body
        if isinstance(body, ValidationReport):
            run.report_validation(body.batches, body.metrics)
        elif isinstance(body, MetricsReport):
            session.reports.report("metrics", body.model_copy(update=trial))
        elif isinstance(body, LogsReport):
            session.reports.report("logs", body.model_copy(update=trial))
        elif isinstance(body, (EnvironmentReport, DataReport)):
            session.reports.report("tracker", body.model_copy(update=trial))
        elif isinstance(body, CheckpointReport) and body.checkpoint_id in there and body.batches > done:
            _save(directory, body, run)
        elif isinstance(body, TrainingEndedReport):
            run.report_progress(body.batches)
            run.end_training(body.said)


def _save(directory: Path, report: CheckpointReport, run: Run) -> None:
    """Saves a checkpoint of the record. A damaged one is reported and left out: the rest of the record is still useful."""
    store = store_of(directory)
    with scratch_directory("import") as files:
        try:
            manifest = checkpoints.read_manifest(store, report.checkpoint_id)
            checkpoints.check_record(manifest, report.files)
            checkpoints.load(store, manifest, files)
        except Damaged as error:
            say(f"checkpoint {report.checkpoint_id} of the record is left out: {error}")
            return
        metadata = json.loads((files / METADATA_FILE).read_text()) if (files / METADATA_FILE).exists() else {}
        with run.checkpoint.save(report.batches, metadata) as target:
            shutil.copytree(files, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(METADATA_FILE, RECORD_FILE))


def _origin(description: RunDescription) -> str:
    return f"Imported: run without a cluster on {description.host} as `{' '.join(description.command)}`."


def _constants(values: dict[str, Any]) -> dict[str, Any]:
    """Hyperparameters as constants. Groups stay groups; a bare value that looks like a description of a range would be read as
    one."""
    return {
        name: _constants(value) if isinstance(value, dict) else {"type": "const", "val": value} for name, value in values.items()
    }
