"""Importance of hyperparameters by fANOVA (Hutter, Hoos and Leyton-Brown, ICML 2014), computed by Optuna in a process that may be
killed: `python -m tenuto.services.gateway.experiments.adapters.importance` reads one question and writes one answer.

A forest for a thousand trials takes seconds and some hundred megabytes, of which the gateway itself has none to spare.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import resource
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.kernel.optional import NotInstalled, needed
from tenuto.services.gateway.http.fair_queue import Turns

TRIALS_MAX = 1_000
"""Most trials that are used: a forest takes time with their number, and more hardly change the result."""
TRIALS_MIN = 4
"""Fewest trials that can be compared."""
NAMES_MAX = 64
CHOICES_MAX = 64
"""Values of a hyperparameter that is no number; one with more tells trials apart like a name."""
PROCESSOR_SECONDS_MAX = 25
"""Longest computation, in whole seconds of a processor, so that a busy machine refuses nothing that an idle one finds."""
SECONDS_MAX = 120.0
"""Longest time for it, less than browsers wait: the others' turn comes even if the process does not run at all."""
WAITING_MAX = 16
MEMORY_BYTES_MAX = 4 << 30
"""Limit of address space; the libraries map far more than they use."""
NICENESS = 10
MODULE = "tenuto.services.gateway.experiments.adapters.importance"
ANSWER_BYTES_MAX = 1 << 20
SEED = 1
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "HOME")
Trials = Sequence[tuple[Mapping[str, Any], float]]


class NoImportance(Exception):
    """`str(error)` is one sentence for the user. `code`: conflict, unavailable or too_many."""

    def __init__(self, message: str, code: str = "conflict") -> None:
        super().__init__(message)
        self.code = code


class Importances:
    """One at a time for all users: it takes a core for seconds."""

    def __init__(self) -> None:
        self._turns = Turns(of_one_user=1, at_once=1)
        self._waiting = 0

    async def of(self, trials: Trials, logs: Sequence[str], user: str) -> dict[str, Any]:
        """`logs`: names of hyperparameters on a logarithmic scale. Returns `importances` by name, and names `left_out`. Raises
        NoImportance."""
        if self._waiting >= WAITING_MAX:
            raise NoImportance("Too many wait for the importance of hyperparameters; try again in a few seconds.", "too_many")
        self._waiting += 1
        try:
            async with self._turns.turn(user):
                question = await asyncio.to_thread(json.dumps, [list(trials), list(logs)])
                return await _asked(question.encode())
        finally:
            self._waiting -= 1


async def _asked(question: bytes) -> dict[str, Any]:
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, str(PROCESSOR_SECONDS_MAX), stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
        env=environment | threads, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS_MAX):
            answer, _ = await process.communicate(question)
    except TimeoutError:
        raise NoImportance(f"The importance of the hyperparameters was not found within {SECONDS_MAX:.0f} s.") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == -signal.SIGXCPU:
        raise NoImportance(f"The importance of the hyperparameters takes more than {PROCESSOR_SECONDS_MAX} s of a processor.")
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        raise NoImportance("The process that computes the importance of hyperparameters was ended by it.") from None
    if "missing" in found:
        raise NoImportance(f"The gateway lacks what computes importance: {found['missing']}.", "unavailable")
    if "refused" in found:
        raise NoImportance(found["refused"])
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested hyperparameters by names with dots."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def logarithmic(space: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Names in a search space that are on a logarithmic scale."""
    found = []
    for name, leaf in space.items():
        if isinstance(leaf, Mapping) and leaf.get("type") == "log":
            found.append(f"{prefix}{name}")
        elif isinstance(leaf, Mapping) and not isinstance(leaf.get("type"), str):
            found += logarithmic(leaf, f"{prefix}{name}.")
    return found


def axes(trials: Trials, logs: Sequence[str]) -> tuple[dict[str, list[Any]], list[str]]:
    """(name -> value of each trial, as a number or as text; names that cannot be judged). Left out are those that are the same in
    all trials or that some lack, and texts with as many values as a name has."""
    rows = [flat(values) for values, _ in trials]
    found: dict[str, list[Any]] = {}
    left_out = []
    for name in sorted({name for row in rows for name in row}):
        values = [row[name] for row in rows if name in row]
        numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
        if numeric and name in logs and min(values) > 0:
            values = [math.log(value) for value in values]
        elif not numeric:
            values = [json.dumps(value, sort_keys=True) for value in values]
        kinds = len(set(values))
        if len(values) < len(rows) or kinds < 2 or (not numeric and kinds > CHOICES_MAX) or len(found) >= NAMES_MAX:
            left_out.append(name)
        else:
            found[name] = [float(value) for value in values] if numeric else values
    return found, left_out


def judged(trials: Trials, logs: Sequence[str]) -> dict[str, Any]:
    """Raises NoImportance, NotInstalled and ImportError."""
    found, left_out = axes(trials, logs)
    if len(trials) < TRIALS_MIN:
        raise NoImportance(f"The importance of hyperparameters needs {TRIALS_MIN} trials with a metric; {len(trials)} have one.")
    if not found:
        raise NoImportance("No hyperparameter differs between the trials, so none is more important than another.")
    if len({value for _, value in trials}) == 1:
        raise NoImportance("All trials have the same metric, so no hyperparameter matters.")
    optuna, importance = needed("optuna"), needed("optuna.importance")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spaces = {
        name: optuna.distributions.FloatDistribution(min(values), max(values))
        if isinstance(values[0], float)
        else optuna.distributions.CategoricalDistribution(sorted(set(values)))
        for name, values in found.items()
    }
    study = optuna.create_study()
    study.add_trials(
        optuna.trial.create_trial(params={name: found[name][at] for name in found}, distributions=spaces, value=value)
        for at, (_, value) in enumerate(trials)
    )
    values = importance.FanovaImportanceEvaluator(seed=SEED).evaluate(study)
    if not sum(values.values()) > 0:  # NaN, too
        raise NoImportance("The forest finds no hyperparameter that explains the metric.")
    return {"importances": values, "left_out": left_out}


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MEMORY_BYTES_MAX if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    os.nice(NICENESS)
    trials, logs = json.load(sys.stdin)
    try:
        answer = judged(trials, logs)
    except NoImportance as error:
        answer = {"refused": str(error)}
    except NotInstalled as error:
        answer = {"missing": str(error)}
    except ImportError as error:
        answer = {"missing": f"{error}; install it: pip install 'tenuto[search]'".replace("\n", " ")}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
