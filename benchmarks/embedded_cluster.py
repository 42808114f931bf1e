"""A cluster of real processes on this machine, for benchmarks: started, asked through `tenuto`, and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import yaml

CLUSTER_VARIABLE = "BENCH_CLUSTER"
"""Names the data directory of a running cluster that benchmarks use instead of one of their own: the small forms share one, as
its start and end cost ten seconds of a processor."""
DOOR_VARIABLE = "TEST_COMMANDS_DOOR"
"""As tests/support/commands.py has it: names where small forms have commands forked."""
TENUTO = Path(sys.executable).with_name("tenuto")
WAIT_SECONDS_MAX = 300.0
POLL_SECONDS = 0.02
T = TypeVar("T")


def command(
    arguments: Sequence[str | Path], environment: Mapping[str, str], seconds_max: float
) -> subprocess.CompletedProcess[str]:
    """`tenuto` to its end. In small forms it is forked from a process that has imported it. Raises subprocess.TimeoutExpired."""
    words = [*map(str, arguments)]
    if DOOR_VARIABLE in os.environ:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from tests.support import commands

        return commands.run(words, environment, seconds_max)
    return subprocess.run(
        [str(TENUTO), *words], env=environment, capture_output=True, text=True, timeout=seconds_max, check=False
    )


def model_with(variables: Mapping[str, str], model: Path, directory: Path) -> Path:
    """A copy of one of the benchmarks' models that has these variables from a file. With variables of its own a run would need
    another warm process, whose import of a framework takes three seconds of a processor."""
    made = Path(tempfile.mkdtemp(prefix=f"{model.name}-", dir=directory))
    shutil.copytree(model, made, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (made / "settings.json").write_text(json.dumps(dict(variables)))
    return made


class EmbeddedCluster:
    """`steps`: a file to which the benchmarks' models write a line per step."""

    def __init__(self, directory: Path, model: Path, environment: dict[str, str], *, own: bool = False) -> None:
        """`own`: the settings in `environment` matter, so no other cluster will do."""
        given = "" if own else os.environ.get(CLUSTER_VARIABLE, "")
        self.shared = bool(given)
        """The cluster was running, may have more slots, and has other experiments."""
        self.directory, self.root, self.model = directory, Path(given) if given else directory / "cluster", model
        self.steps = directory / "steps.txt"
        self.environment = {**os.environ, **environment, "TENUTO_DATA_DIRECTORY": str(self.root)}

    def cli(self, *arguments: str, **environment: str) -> str:
        """Raises RuntimeError with what the command said, and where it does not end in time."""
        try:
            done = command(arguments, self.environment | environment, WAIT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"tenuto {' '.join(arguments)} did not end in {WAIT_SECONDS_MAX:.0f} s") from None
        if done.returncode:
            raise RuntimeError(done.stderr or done.stdout)
        return done.stdout

    def submit(self, config: dict[str, Any], *, user: str | None = None) -> str:
        """Returns the experiment's id. The model finds the file `steps` as STEPS_FILE, and the `variables` of `config`."""
        model = model_with({"STEPS_FILE": str(self.steps), **config.pop("variables", {})}, self.model, self.directory)
        path = self.directory / f"config-{config['name']}.yaml"
        path.write_text(yaml.safe_dump(config))
        names = {"USER": user, "LOGNAME": user} if user is not None else {}
        return str(json.loads(self.cli("exp", "create", str(path), str(model), "--json", **names))["id"])

    def words(self) -> list[list[str]]:
        """Of each whole line of `steps`."""
        text = self.steps.read_text() if self.steps.exists() else ""
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait(self, look: Callable[[], T], enough: Callable[[T], bool], what: str) -> T:
        """Raises TimeoutError."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not enough(found := look()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come in {WAIT_SECONDS_MAX:.0f} s")
            time.sleep(POLL_SECONDS)
        return found

    def leader(self, allocation: str) -> psutil.Process:
        """Of the session in which an allocation's processes run. Raises RuntimeError where there is none."""
        for process in self.marked():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                mark = process.environ().get("TENUTO_RUN", "")
                if mark.endswith(f":{allocation}") and process.pid == os.getsid(process.pid):
                    return process
        raise RuntimeError(f"allocation {allocation} has no processes")

    def marked(self) -> list[psutil.Process]:
        """Everything that was started for a trial."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("TENUTO_RUN", "-").startswith(f"{self.root.resolve()}/"):
                    found.append(process)
        return found


@contextlib.contextmanager
def directory_for_cluster() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as name:
        Path(name).chmod(0o711)  # workers may run as another user
        yield Path(name)


@contextlib.contextmanager
def up(cluster: EmbeddedCluster, cpu_slots: int, agents: int = 1) -> Iterator[None]:
    """`cpu_slots` of each agent."""
    if cluster.shared:
        yield
        return
    try:
        cluster.cli("up", "--detach", "--cpu-slots", str(cpu_slots), "--agents", str(agents))
        yield
    finally:
        with contextlib.suppress(RuntimeError):
            cluster.cli("down")
