"""Scripts without a cluster: the configuration is read here, and the reports go into a directory.

    run.json          RunDescription of the run
    code/             the script, and modules that it imported from its own directory; of `tenuto exp create --local` the model
                      directory as it would be packed
    reports.jsonl     one ReportLine per line, in the order of the reports, with the same bodies as for an agent
    checkpoints/      a store as in a cluster: manifests, and contents by their hash
    lock              held while a process writes the record

`tenuto run import DIRECTORY` imports it into a cluster.
"""

from __future__ import annotations

import copy
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tenuto.kernel import search_methods
from tenuto.kernel.clock import SystemClock
from tenuto.schemas.config import ConstHyperparameter, ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, explain
from tenuto.schemas.record import GitState
from tenuto.version import __version__
from tenuto.workers.core_api.local_record import RUN_FILE, RunDescription, read_run
from tenuto.workers.core_api.local_session import lock, open_record
from tenuto.workers.core_api.session import Session, say
from tenuto.workers.errors import UserError
from tenuto.workers.record.git import git_state

CONFIG_FILE = "config.yaml"
RUNS_DIRECTORY = "tenuto-runs"
RUNS_MAX = 100_000
"""Most records of one name in one directory: more of them are made by a loop."""


def open_local(
    config: str | os.PathLike[str] | Mapping[str, Any] | None, hyperparameters: Mapping[str, Any], directory: Path | None
) -> Session:
    """A session with a record of its own. Raises UserError."""
    parsed = read_config(config)
    values = _fixed(parsed.hyperparameters, hyperparameters, "hyperparameters")
    clock = SystemClock()
    directory = (directory or new_directory(parsed.name)).absolute()
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
        seed=seed_of(parsed, clock),
        started_us=clock.now_us(),
        command=tuple(sys.argv),
        tenuto_version=__version__,
        python_version=platform.python_version(),
        host=platform.node(),
        given={f"hyperparameters.{name}": text for name, text in _dotted(hyperparameters)},
        git=_git_of_script(),
    )
    session = open_record(directory, description, unlock)
    if parsed.searcher.source_checkpoint is not None:
        say("searcher.source_checkpoint is ignored: without a cluster, the location of that checkpoint is not known")
    return session


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, default=str)


def _git_of_script() -> GitState | None:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return git_state(Path(script).resolve().parent) if isinstance(script, str) else None


def _without_template(config: ExperimentConfig, caller: str) -> ExperimentConfig:
    """Raises UserError."""
    if config.template is not None:
        raise UserError(f"{caller}(config): template: templates are kept by a cluster, and this run has none; leave it out")
    return config


def read_config(config: str | os.PathLike[str] | Mapping[str, Any] | None, caller: str = "tenuto.init") -> ExperimentConfig:
    """The experiment configuration. `caller`: the function that was given it. Raises UserError."""
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
            return _without_template(ExperimentConfig.model_validate(named), caller)
        path = Path(config if config is not None else CONFIG_FILE)
        return _without_template(search_methods.parsed(path.read_bytes()), caller)
    except ValidationError as error:
        raise UserError(f"{caller}(config): " + "; ".join(map(str, explain(error)))) from None
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


def seed_of(config: ExperimentConfig, clock: SystemClock) -> int:
    seed = config.reproducibility.experiment_seed
    return clock.new_seed() if seed is None else seed


def new_directory(name: str) -> Path:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
    for number in range(1, RUNS_MAX):
        path = Path(RUNS_DIRECTORY) / f"{stem}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
    raise UserError(f"{RUNS_DIRECTORY} holds {RUNS_MAX} runs named {stem}; remove some.")
