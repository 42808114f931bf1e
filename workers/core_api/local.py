"""Scripts without a cluster: the configuration is read here, and the reports go into a directory.

    run.json          RunDescription of the run
    code/             the script, and modules that it imported from its own directory
    reports.jsonl     one ReportLine per line, in the order of the reports, with the same bodies as for an agent
    checkpoints/      a store as in a cluster: manifests, and contents by their hash
    lock              held while a process writes the record

`tenuto run import DIRECTORY` imports it into a cluster.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import platform
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from tenuto.kernel.clock import SystemClock
from tenuto.schemas.assignments import Assignment, SourceCheckpoint
from tenuto.schemas.config import ConstHyperparameter, ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, explain
from tenuto.schemas.config.reading import parse_config
from tenuto.schemas.config.storage import SHARED_STORE, CheckpointStorage
from tenuto.schemas.events.trial import files_hash
from tenuto.schemas.ids import allocation_id, location_of, trial_id
from tenuto.schemas.record import GitState, KnownData
from tenuto.schemas.reports import DataReport, EnvironmentReport
from tenuto.version import __version__
from tenuto.workers.core_api.local_record import (
    CODE_DIRECTORY,
    RUN_FILE,
    LocalReports,
    RunDescription,
    checkpoints_of,
    read_lines,
    read_run,
    store_of,
    sweep,
)
from tenuto.workers.core_api.session import Session, say
from tenuto.workers.harness.directives import Directive, DirectiveBox
from tenuto.workers.harness.errors import UserError
from tenuto.workers.record import recorder
from tenuto.workers.record.code import keep_sources
from tenuto.workers.record.git import git_state

CONFIG_FILE = "config.yaml"
RUNS_DIRECTORY = "tenuto-runs"
LOCK_FILE = "lock"
LOCAL_EXPERIMENT_ID = 0
"""Id of the experiment without a cluster; those of a cluster count from 1."""
RUNS_MAX = 100_000
"""Most records of one name in one directory: more of them are made by a loop."""


def open_local(
    config: str | os.PathLike[str] | Mapping[str, Any] | None, hyperparameters: Mapping[str, Any], directory: Path | None
) -> Session:
    """A session with a record of its own. Raises UserError."""
    parsed = read_config(config)
    values = _fixed(parsed.hyperparameters, hyperparameters, "hyperparameters")
    clock = SystemClock()
    directory = (directory or _new_directory(parsed.name)).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    unlock = lock(directory)
    known = read_run(directory) if (directory / RUN_FILE).exists() else None
    if known is not None and (known.config != parsed or known.hyperparameters != values):
        unlock()
        raise UserError(
            f"{directory} holds a run with another configuration or other hyperparameters; give tenuto.init() another directory."
        )
    description = known or RunDescription(
        config=parsed,
        hyperparameters=values,
        seed=_seed(parsed, clock),
        started_us=clock.now_us(),
        command=tuple(sys.argv),
        tenuto_version=__version__,
        python_version=platform.python_version(),
        host=platform.node(),
        given={f"hyperparameters.{name}": text for name, text in _dotted(hyperparameters)},
        git=_git_of_script(),
    )
    if known is None:
        # Atomic, because a half-written file would make the directory useless.
        partial = directory / f"{RUN_FILE}.partial"
        partial.write_bytes(description.to_json() + b"\n")
        os.replace(partial, directory / RUN_FILE)
    box = DirectiveBox(Directive("run", parsed.searcher.max_length.value))
    reports = LocalReports(directory, description, box, clock)
    sweep(directory)
    assignment = _assignment(directory, description, reports.starts)
    recorder.install(recorder.Recorder(assignment, lambda body: reports.report("tracker", body), say))

    def close() -> None:
        recorder.install(None)
        keep_sources(directory / CODE_DIRECTORY)  # once more: some are imported late
        reports.close()

    keep_sources(directory / CODE_DIRECTORY)
    say(f"no cluster here: the record of this run is kept in {directory}")
    if parsed.searcher.source_checkpoint is not None:
        say("searcher.source_checkpoint is ignored: without a cluster, the location of that checkpoint is not known")
    return Session(
        assignment=assignment,
        box=box,
        reports=reports,
        checkpoint_directory=store_of(directory).root,
        clock=clock,
        local_directory=directory,
        at_close=[close, _leave_on_signals(box), unlock],
    )


def _assignment(directory: Path, description: RunDescription, starts: int) -> Assignment:
    """Assignment for the process of the `starts`-th start, as an agent would hand it out: it goes on from the latest
    checkpoint."""
    trial = trial_id(LOCAL_EXPERIMENT_ID, 1)
    sources = tuple(
        SourceCheckpoint(
            checkpoint_id=report.checkpoint_id,
            location=location_of(SHARED_STORE, trial, report.checkpoint_id),
            batches=report.batches,
            files_hash=files_hash(report.files),
        )
        for report in reversed(checkpoints_of(directory))
    )
    return Assignment(
        allocation_id=allocation_id(trial, starts),
        trial_id=trial,
        trial_number=1,
        experiment_id=LOCAL_EXPERIMENT_ID,
        # A run without a cluster keeps its checkpoints in its record, whatever store the configuration names.
        config=description.config.model_copy(update={"checkpoint_storage": CheckpointStorage()}),
        context_hash="",
        hyperparameters=description.hyperparameters,
        trial_seed=description.seed,
        experiment_seed=description.seed,
        slots=(),
        checkpoint=sources[0] if sources else None,
        earlier_checkpoints=sources[1:],
        target_length=description.config.searcher.max_length.value,
        **_known(directory, trial),
    )


def _known(directory: Path, trial: str) -> dict[str, Any]:
    """Environment and data that earlier processes of this run recorded, for comparison."""
    data: dict[str, KnownData] = {}
    environment = ""
    for line in read_lines(directory):
        if isinstance(line.body, DataReport):
            found = line.body.data
            data[found.name] = KnownData(name=found.name, fingerprint=found.fingerprint, recorded_by=trial)
        elif isinstance(line.body, EnvironmentReport):
            environment = line.body.environment.digest()
    return {"known_data": tuple(data.values()), "known_environment": environment}


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, default=str)


def _git_of_script() -> GitState | None:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return git_state(Path(script).resolve().parent) if isinstance(script, str) else None


def read_config(config: str | os.PathLike[str] | Mapping[str, Any] | None) -> ExperimentConfig:
    """The experiment configuration. Raises UserError."""
    from pydantic import ValidationError

    try:
        if isinstance(config, Mapping):
            script = Path(sys.argv[0]).name
            named = {
                "name": Path(script).stem or "run",
                "entrypoint": shlex.quote(script) if script.endswith(".py") else "train.py",
                **config,
            }
            if isinstance(named.get("searcher"), Mapping):
                named["searcher"] = {"name": "single", **named["searcher"]}
            return ExperimentConfig.model_validate(named)
        path = Path(config if config is not None else CONFIG_FILE)
        return parse_config(path.read_bytes())
    except ValidationError as error:
        raise UserError("tenuto.init(config): " + "; ".join(map(str, explain(error)))) from None
    except ConfigError as error:
        raise UserError(f"{path}: " + "; ".join(map(str, error.problems))) from None
    except OSError as error:
        if config is None:
            raise UserError(
                f"there is no cluster here, and no {CONFIG_FILE} in {Path.cwd()}; give tenuto.init() the experiment's "
                'configuration: a file, or data such as {"searcher": {"metric": "loss", "max_length": {"batches": 100}}}.'
            ) from None
        raise UserError(f"tenuto.init(config): {path} cannot be read: {error.strerror}.") from None


def _fixed(space: Mapping[str, Any], given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Hyperparameters with one value each. Raises UserError if a range is left, or a value is given for an unknown name."""
    unknown = sorted(set(given) - set(space))
    if unknown:
        raise UserError(
            f"tenuto.init({path}): the configuration has no {unknown[0]!r}; it has {', '.join(sorted(space)) or 'none'}."
        )
    values: dict[str, Any] = {}
    for name, item in space.items():
        if isinstance(item, Mapping):
            inner = given.get(name, {})
            if not isinstance(inner, Mapping):
                raise UserError(f"tenuto.init({path}): {name!r} is a group; give a mapping.")
            values[name] = _fixed(item, inner, f"{path}.{name}")
        elif name in given:
            values[name] = copy.deepcopy(given[name])
        elif isinstance(item, ConstHyperparameter):
            values[name] = copy.deepcopy(item.val)
        else:
            raise UserError(
                f"{path}.{name} is a range, and without a cluster there is no search; give a value: "
                f"tenuto.init(hyperparameters={{{name!r}: ...}})."
            )
    return values


def _seed(config: ExperimentConfig, clock: SystemClock) -> int:
    seed = config.reproducibility.experiment_seed
    return clock.new_seed() if seed is None else seed


def _new_directory(name: str) -> Path:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
    for number in range(1, RUNS_MAX):
        path = Path(RUNS_DIRECTORY) / f"{stem}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
    raise UserError(f"{RUNS_DIRECTORY} holds {RUNS_MAX} runs named {stem}; remove some.")


def lock(directory: Path) -> Callable[[], None]:
    """Locks the record; returns the function that unlocks it. Raises UserError if another process holds it."""
    try:
        file = (directory / LOCK_FILE).open("w")
    except OSError as error:
        raise UserError(f"{directory / LOCK_FILE} cannot be written: {error.strerror}.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserError(f"another process writes the record in {directory}; wait for it, or give another directory.") from None
    return file.close


def _leave_on_signals(box: DirectiveBox) -> Callable[[], None]:
    """Makes the first SIGINT or SIGTERM ask the script to save and leave; a second SIGINT ends it at once. Returns the
    function that undoes this."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # only the main thread may, and then another owns the signals
    process_id = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process_id:  # a forked helper of the script's: it has nothing to save
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        signal.signal(number, before[signal.Signals(number)])
        box.leave("preempt")
        say("asked to leave: the script saves and ends when it next asks run.should_preempt()")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
