"""A search of a few lines: the code is packed, a cluster is found or started, and the experiment is waited for."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.client.errors import ClientError
from tenuto.kernel.scratch import scratch_directory
from tenuto.searching.code import module_source

if TYPE_CHECKING:
    from tenuto.client import Client
    from tenuto.client.blocking.experiments import Experiment

MODULE = "searched"
SCRIPT = "search_main.py"
TRIALS = 10
_VALUES = '''"""Written by tenuto.run_search: calls a function with hyperparameters, and reports what it returns."""

import tenuto
from searched import {name} as searched

with tenuto.init() as run:
    for operation in run.operations():
        found = searched(dict(run.hyperparameters))
        run.report_validation(operation.steps, dict(found) if isinstance(found, dict) else {{{metric!r}: found}})
'''
_LOOP = '''"""Written by tenuto.run_search: calls a function with the run of the trial."""

import tenuto
from searched import {name} as searched

with tenuto.init() as run:
    searched(run)
'''


def run_search(
    target: Callable[..., Any] | type,
    space: Mapping[str, Any],
    *,
    metric: str = "loss",
    smaller_is_better: bool = True,
    max_trials: int = TRIALS,
    max_length: int | Mapping[str, int] | None = None,
    searcher: str | Mapping[str, Any] = "random",
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    model_dir: str | Path | None = None,
    client: Client | None = None,
    wait: bool = True,
    timeout_seconds: float | None = None,
    say: Callable[[str], None] = print,
) -> Experiment:
    """Searches the space, and returns the experiment once it has completed (`best_trial()`, `trials()`, ...).

    `target`: a function of hyperparameters (a dict) that returns the metric, or a dict of metrics; a function with the one
    parameter `run`, which gets the run of the Core API; or a Trial class. Its source and that of what it uses is sent.
    `model_dir`: directory whose files are sent beside it; None: none.

    `space`: values by name. A list: one of these; a pair of numbers: between them, whole numbers if both are; a dict with `type`,
    as in a configuration: such a range; another dict: a group; else a constant. `metric`: name of the metric to compare.
    `smaller_is_better`: False: the largest value is the best.

    `searcher`: a method of docs/search.md, or such a section. `max_trials`: most trials; without effect on the methods single and
    grid. `max_length`: longest training of a trial, in batches, or such as {"epochs": 8}; needed unless `target` is a function of
    hyperparameters. `name`: name of the experiment; None: that of the target. `config`: what else the configuration has; None:
    nothing.

    `client`: client of the cluster. None: the cluster that the command line finds; where none is up on this machine, one is
    started. It is left running: it holds the results, and `tenuto down` stops it. `wait`: False: return at once.
    `timeout_seconds`: longest wait; None: no limit. `say`: called with sentences for the user.

    Raises ClientError if the target cannot be sent or no cluster can be reached, Refused for a wrong configuration, NotCompleted
    if the search failed or was canceled, TimedOut after `timeout_seconds`: then it goes on.

        import tenuto

        def distance(hyperparameters):
            return (hyperparameters["x"] - 3.0) ** 2

        found = tenuto.run_search(distance, {"x": (0.0, 5.0)}, metric="distance", max_trials=4)
        print(found.best_trial().hyperparameters["x"])
    """
    made = _config(target, space, metric, smaller_is_better, max_trials, max_length, searcher)
    made |= {"name": name or str(getattr(target, "__name__", "search")), **(config or {})}
    with scratch_directory("search") as place:
        if model_dir is not None:
            shutil.copytree(model_dir, place, dirs_exist_ok=True, symlinks=True)
        for file, text in _files(target, metric, place).items():
            if (place / file).exists():
                raise ClientError(f"{model_dir} has a file {file}, which run_search writes: give yours another name.")
            (place / file).write_text(text, encoding="utf-8")
        client = _cluster(say) if client is None else client
        experiment = client.create_experiment(made, place)
    say(f"Experiment {experiment.id} searches; `tenuto exp describe {experiment.id}` shows it.")
    if wait:
        try:
            experiment.wait(timeout_seconds=timeout_seconds)
        except KeyboardInterrupt:
            say(f"Experiment {experiment.id} goes on; `tenuto exp cancel {experiment.id}` ends it.")
            raise
    return experiment


def _takes_run(target: Any) -> bool:
    return not isinstance(target, type) and list(inspect.signature(target).parameters) == ["run"]


def _files(target: Any, metric: str, place: Path) -> dict[str, str]:
    """Name -> content. Raises NotPortable."""
    found = {f"{MODULE}.py": module_source(target, frozenset(item.stem for item in place.iterdir()))}
    if not isinstance(target, type):
        found[SCRIPT] = (_LOOP if _takes_run(target) else _VALUES).format(name=target.__name__, metric=metric)
    return found


def _config(
    target: Any,
    space: Mapping[str, Any],
    metric: str,
    smaller_is_better: bool,
    max_trials: int,
    max_length: int | Mapping[str, int] | None,
    searcher: str | Mapping[str, Any],
) -> dict[str, Any]:
    """Raises ClientError."""
    if not callable(target):
        raise ClientError(f"run_search needs a function or a Trial class (found {target!r}).")
    whole = isinstance(target, type) or _takes_run(target)
    if max_length is None and whole:
        raise ClientError(f"{target.__name__} trains step by step: say how long with max_length, such as 1000 (batches).")
    if max_length is None or isinstance(max_length, int):
        max_length = {"batches": max_length or 1}
    section: dict[str, Any] = {"name": searcher} if isinstance(searcher, str) else dict(searcher)
    section = {"metric": metric, "smaller_is_better": smaller_is_better, "max_length": dict(max_length), **section}
    if section.get("name") not in ("single", "grid"):
        section.setdefault("max_trials", max_trials)
    return {
        "entrypoint": f"{MODULE}:{target.__name__}" if isinstance(target, type) else SCRIPT,
        "hyperparameters": {str(key): _range(value) for key, value in space.items()},
        "searcher": section,
    }


def _range(value: Any) -> Any:
    if isinstance(value, list):
        return {"type": "categorical", "vals": value}
    if isinstance(value, tuple) and len(value) == 2 and all(type(item) in (int, float) for item in value):
        kind = "int" if all(type(item) is int for item in value) else "double"
        return {"type": kind, "minval": value[0], "maxval": value[1]}
    if isinstance(value, Mapping):
        return dict(value) if "type" in value else {key: _range(item) for key, item in value.items()}
    return value


def _cluster(say: Callable[[str], None]) -> Client:
    """The one that the command line finds; where there is none, one is started on this machine. Raises ClientError."""
    import os

    from tenuto.client import Client
    from tenuto.embedded.files import Layout, is_up
    from tenuto.embedded.options import Options
    from tenuto.embedded.process import ServerError
    from tenuto.embedded.start import start_detached

    if os.environ.get("TENUTO_URL") or is_up(Layout.of(None)):
        return Client()
    say("No cluster is up on this machine, so one is started.")
    layout = Layout.of(None)
    try:
        url = start_detached(Options(layout, None, None, 1, ""), lambda line: None)
    except ServerError as error:
        raise ClientError(str(error)) from error
    say(f"Tenuto is up at {url} (data: {layout.root}); it is left running, and `tenuto down` stops it.")
    return Client()
