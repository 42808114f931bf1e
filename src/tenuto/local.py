"""A trial in the foreground, from Python: `tenuto.run_local`. docs/local.md shows it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.version import __version__

if TYPE_CHECKING:
    from tenuto.schemas.config import ExperimentConfig
    from tenuto.schemas.record import GitState
    from tenuto.workers.core_api.local_record import RunDescription
    from tenuto.workers.harness.trainer import TrialBase


@dataclass(frozen=True)
class LocalRun:
    """A run in the foreground that has ended."""

    directory: Path
    """Directory of its record, which `tenuto run import` makes an experiment of."""
    hyperparameters: Mapping[str, Any]
    """Values with which it trained, by name; a group is a dict."""
    seed: int
    """Seed of the experiment: `reproducibility.experiment_seed` gives the same trial."""
    complete: bool
    """False: it was interrupted; the same call with `directory` goes on."""
    trial: Any
    """The trained trial; None where the record was complete before."""

    @property
    def validations(self) -> list[dict[str, Any]]:
        """`batches`, and the metrics, of each validation, in order."""
        from tenuto.schemas.reports import ValidationReport
        from tenuto.workers.core_api.local_record import read_lines

        bodies = [line.body for line in read_lines(self.directory)]
        return [{"batches": body.batches, **body.metrics} for body in bodies if isinstance(body, ValidationReport)]

    def copy_checkpoint(self, into: str | os.PathLike[str]) -> Path:
        """Writes the files of its latest checkpoint into `into`, a new or empty directory, and returns that. Raises UserError if
        there is no checkpoint, or the directory has files."""
        from tenuto.kernel.storage import checkpoints
        from tenuto.workers.core_api.local_record import checkpoints_of, store_of
        from tenuto.workers.errors import UserError

        stored = checkpoints_of(self.directory)
        if not stored:
            raise UserError(f"{self.directory} has no checkpoint yet.")
        store, target = store_of(self.directory), Path(into)
        if target.exists() and any(target.iterdir()):
            raise UserError(f"{target} is not empty; name a new directory.")
        checkpoints.load(store, checkpoints.read_manifest(store, stored[-1].checkpoint_id), target)
        return target


def run_local(
    trial: type[TrialBase],
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    hyperparameters: Mapping[str, Any] | None = None,
    directory: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> LocalRun:
    """Trains one trial of a PyTorch or Keras Trial class in this process, without a cluster, and returns when it is over.

    `trial`: the class. `config`: the experiment's configuration, as a YAML file or as plain data; `name`, `entrypoint` and
    `searcher.name` may be left out of data. `hyperparameters`: values over those of the configuration; None: none. What then
    still has a range is drawn as for the search's first trial in a cluster. `directory`: directory of the record; if it holds
    one, that run goes on. None: a new one under `tenuto-runs/`. `quiet`: True: metrics, validations and checkpoints are not
    shown.

    An interruption (Ctrl-C) saves a checkpoint and returns. Raises UserError if the configuration is wrong, the directory holds
    other files or another run, or this process has a run already; and the errors of the trial's code.

        import tenuto
        from model_def import Line  # your PyTorchTrial

        config = {"searcher": {"metric": "error", "max_length": {"epochs": 8}}}
        found = tenuto.run_local(Line, config, hyperparameters={"lr": 0.1})
        print(found.validations[-1], found.trial.model.weight)
    """
    from tenuto.workers.core_api.local import new_directory
    from tenuto.workers.core_api.session import current
    from tenuto.workers.errors import UserError
    from tenuto.workers.local.running import Foreground

    session = current()
    if session is not None and not session.is_over:
        raise UserError("tenuto.run_local: this process has a run already; a script that calls tenuto.init() trains itself.")
    parsed = _config_of(trial, config, hyperparameters or {})
    target = (Path(directory) if directory is not None else new_directory(parsed.name)).absolute()
    description = begin(parsed, target, given=_given(hyperparameters or {}))
    sources = _sources_of(trial)
    foreground = Foreground.open(target, sources=sources, show=_unshown if quiet else None)
    trainers: list[Any] = []
    action = foreground.train(None, trial, built=trainers.append)
    return LocalRun(
        directory=target,
        hyperparameters=description.hyperparameters,
        seed=description.seed,
        complete=action == "stop",
        trial=getattr(trainers[0], "trial", None) if trainers else None,
    )


def begin(
    config: ExperimentConfig,
    directory: Path,
    *,
    command: Sequence[str] | None = None,
    given: Mapping[str, str] | None = None,
    git: GitState | None = None,
    context_hash: str = "",
    fill: Callable[[], None] = lambda: None,
) -> RunDescription:
    """Description of a run without a cluster, as the first trial of its experiment; written into the directory, or read from
    there. `fill` writes what else a new record begins with. Raises UserError."""
    from tenuto.kernel.clock import SystemClock
    from tenuto.workers.core_api.local import seed_of
    from tenuto.workers.core_api.local_record import RUN_FILE, RunDescription, read_run
    from tenuto.workers.core_api.local_session import lock
    from tenuto.workers.errors import UserError

    if (directory / RUN_FILE).exists():
        known = read_run(directory)
        if known.config != config:
            raise UserError(f"{directory} holds a run with another configuration; name another directory for this one.")
        return known
    if directory.is_dir() and any(directory.iterdir()):  # files of the user's must not be mixed with ours
        raise UserError(f"{directory} is not empty and holds no record of a run; name a new directory.")
    clock = SystemClock()
    seed = seed_of(config, clock)
    hyperparameters, trial_seed = _first(config, seed)
    description = RunDescription(
        config=config,
        hyperparameters=hyperparameters,
        seed=seed,
        trial_seed=trial_seed,
        started_us=clock.now_us(),
        command=tuple(sys.argv if command is None else command),
        tenuto_version=__version__,
        python_version=platform.python_version(),
        host=platform.node(),
        given=dict(given or {}),
        git=git,
        context_hash=context_hash,
    )
    directory.mkdir(parents=True, exist_ok=True)
    unlock = lock(directory)
    try:
        if (directory / RUN_FILE).exists():
            raise UserError(f"another process has begun a run in {directory}; give the same command again to go on with it.")
        fill()
        partial = directory / f"{RUN_FILE}.partial"
        partial.write_bytes(description.to_json() + b"\n")
        os.replace(partial, directory / RUN_FILE)  # last: with it the directory is a record
    finally:
        unlock()
    return description


def _first(config: ExperimentConfig, seed: int) -> tuple[dict[str, Any], int]:
    """Hyperparameters and seed of the first trial. Raises UserError."""
    from tenuto.services.searcher.adapters.samplers import SamplerMissing
    from tenuto.services.searcher.simulation.first_trial import NoFirstTrial, first_trial
    from tenuto.workers.errors import UserError

    try:
        requested = first_trial(config, seed)
    except (NoFirstTrial, SamplerMissing) as error:
        raise UserError(f"searcher: {error}") from None
    return requested.hyperparameters, requested.seed


def _config_of(
    trial: type[TrialBase], config: str | os.PathLike[str] | Mapping[str, Any], hyperparameters: Mapping[str, Any]
) -> ExperimentConfig:
    from tenuto.schemas.config.derive import merged
    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.reading import load_yaml
    from tenuto.workers.core_api.local import read_config
    from tenuto.workers.errors import UserError

    if not isinstance(config, Mapping):
        path = Path(config)
        try:
            document = load_yaml(path.read_bytes())
        except OSError as error:
            raise UserError(f"tenuto.run_local: {path} cannot be read: {error.strerror}.") from None
        except ConfigError as error:
            raise UserError(f"{path}: {error}") from None
        if not isinstance(document, Mapping):
            raise UserError(f"tenuto.run_local: {path} holds no configuration, which is a mapping.")
    else:
        document = {"name": trial.__name__, "entrypoint": f"{trial.__module__}:{trial.__qualname__}", **config}
    return read_config(merged(document, {"hyperparameters": hyperparameters} if hyperparameters else {}), "tenuto.run_local")


def _given(hyperparameters: Mapping[str, Any]) -> dict[str, str]:
    from tenuto.schemas.config.derive import dotted

    return dotted({"hyperparameters": hyperparameters}) if hyperparameters else {}


def _unshown(body: object) -> None:
    """Ignores a report that the terminal would show."""


def _sources_of(trial: type[TrialBase]) -> Path | None:
    file = getattr(sys.modules.get(trial.__module__), "__file__", None)
    return Path(file).resolve().parent if isinstance(file, str) else None
