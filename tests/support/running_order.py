"""Which test files run when, and beside which. The longest begin first, so that at the end none runs alone. A test with real
parts mostly waits: while some of the processes wait, one computes, and the processors are idle less."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler.loadfile import LoadFileScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "costs.json"
"""Seconds of each file in a whole run, with its fixtures. Rewritten by a run with the variable RECORD."""
RECORD = "TEST_COSTS"
"""Path to which the table of this run is written: `TEST_COSTS=tests/costs.json make test`. Files that did not run keep their
value."""
USUAL_SECONDS = {"e2e": 80.0, "security": 40.0, "simulation": 20.0, "contract": 15.0, "integration": 12.0}
"""Of files that the table does not have yet, by directory; others take a second."""
COMPUTING = ("simulation", "unit")
"""Directories whose tests wait for nothing."""
COMPUTING_SHARE = 4
"""One of so many processes begins with files that compute, the others with those that wait. A waiting one takes about a third of
a processor, so that three of them and a computing one keep two processors busy."""

FRAMEWORKS = {
    "test_keras": "Keras", "test_determined_trials": "Keras",
    "test_core_api_huggingface": "trainers", "test_core_api_own_samplers": "trainers",
    "test_core_api_lightning": "trainers", "test_lightning_epoch_ends": "trainers",
}  # fmt: skip
"""What the workers of test files import, by how the files' names begin: Keras with a back end, or other libraries' trainers.
Each process that runs one starts a warm process first, which costs 7 to 20 seconds of a processor, and has it for all further
ones."""


@cache
def table() -> dict[str, float]:
    found: dict[str, float] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    return found


def seconds_of(file: str) -> float:
    """Expected seconds of a file, named relative to the root of the repository."""
    return table().get(file, USUAL_SECONDS.get(_directory(file), 1.0))


def _directory(file: str) -> str:
    return Path(file).parent.name


def _framework(file: str) -> str:
    return next((name for begin, name in FRAMEWORKS.items() if Path(file).name.startswith(begin)), "")


def slowest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The same order among files of equal length, which is random, and within each file."""
    return sorted(items, key=lambda item: -seconds_of(_file(item.nodeid)))


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


class Mixed(LoadFileScheduling):
    """Deals out whole files, as `--dist loadfile` does. A process that begins with computing files takes waiting ones when no
    others are left, and the other way round. The files of a framework go to the process that had the first of them, as long as
    the others find any more."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._computing = {f"gw{number}" for number in range(max(1, self.numnodes // COMPUTING_SHARE))}
        self._began: dict[str, str] = {}
        """Process that had the first file of each framework."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        process = node.gateway.id

        def later(file: str) -> tuple[bool, int]:
            began = self._began.get(_framework(file))
            return (_directory(file) in COMPUTING) != (process in self._computing), 1 if began is None else 2 * (began != process)

        file = min(self.workqueue, key=later)  # of equal ones the longest
        if framework := _framework(file):
            self._began.setdefault(framework, process)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)


class Recorder:
    """A plugin that writes the table of a run."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_file(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = {file: seconds for file, seconds in table().items() if (ROOT / file).exists()}
        rounded = {file: round(seconds, 1) for file, seconds in self._seconds.items() if seconds >= 1}
        self._target.write_text(json.dumps(known | rounded, indent=0, sort_keys=True) + "\n")


def configure(config: pytest.Config) -> None:
    """Records where that is asked for, once per run: processes of a run tell the first one what they have run."""
    if (target := os.environ.get(RECORD)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(target)))
