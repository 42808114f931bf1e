"""The small forms of benchmarks, which tests run so that none rots. No figure is judged: `make bench` measures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.forked_programs import ForkedPrograms
from tests.support.live_cluster import LiveCluster

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FIGURES = "BENCH_FIGURES"
PROGRAM_SECONDS_MAX = 600.0
"""Only a hang takes as long: the longest takes half a minute on an idle machine, and three minutes on one with ten others."""
LAST_LINES = 60
"""Of a program's output, in the message of a test that fails."""
AGENTS, AGENT_SLOTS = 2, 2
PROGRAMS: dict[str, tuple[str, ...]] = {
    "chaos": (), "checkpoint_kills": (), "checkpoint_stall": (), "checkpoints": (), "client": (), "containers": (),
    "ddp_resume": (),
    "decision_latency": (), "distributed": (), "event_log": (), "event_streams": (), "from_determined": ("{determined}",),
    "horovod": (), "idle_connections": (), "kept_workers": (), "lists": (), "metric_layouts": (), "metrics": (),
    "mlflow_ingest": (), "page": (), "past_queue": (),
    "provisioning": (), "provisioning_days": (), "reports": (), "scheduler": (), "scheduler_events": (), "search": (),
    "search_kills": (), "search_noise": (), "search_noise_rules": (), "search_quality": (), "service_loop": (),
    "shared_cluster": (), "start_up": (), "training": (), "turnover": (), "webhooks": (),
    "curves/surrogate": ("--out", "{tmp}/surrogate.npz"), "curves/table": ("{tmp}/table.csv", "{tmp}/config.yaml"),
    "curves/train": ("--out", "{tmp}/curves.npz"),
    "peers/curves_ours": ("--out", "{ours}"), "peers/curves_peers": ("{ours}",), "peers/curves_rules": (),
    "peers/rate_peers": ("optuna", "--url", "sqlite:///{tmp}/optuna.db"), "peers/trials_per_second": (),
}  # fmt: skip
"""Arguments of the small form, besides --small. Without their peers (the extra `bench`, peers/requirements.txt, an MLflow server)
event_log, metrics, mlflow_ingest, curves_peers and trials_per_second run what needs none."""
ON_A_CLUSTER = {
    "chaos", "client", "distributed", "kept_workers", "mlflow_ingest", "search_kills", "shared_cluster", "turnover",
    "peers/trials_per_second",
}  # fmt: skip
"""They share a running cluster: its start, with what its two agents import, costs twenty seconds of a processor. What two of them
kill is waited for before the next one."""


class SharedCluster:
    """Starts when the first benchmark needs it, and anew after one that failed, which may have left anything in it."""

    def __init__(self) -> None:
        self._live: LiveCluster | None = None

    def directory(self) -> Path:
        if self._live is None:
            place = Path(tempfile.mkdtemp(prefix="tenuto-bench-"))
            place.chmod(0o711)  # workers may run as another user
            self._live = LiveCluster(place / "cluster", AGENT_SLOTS)
            self._live.up("--agents", str(AGENTS))
        self._live.wait_for(self._whole)
        return self._live.directory

    def _whole(self) -> bool:
        assert self._live is not None
        with contextlib.suppress(Exception):  # what was killed may be on its way up
            return sum(agent["state"] == "joined" for agent in self._live.client().get("/agents")) == AGENTS
        return False

    def end(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.down()
            shutil.rmtree(live.directory.parent, ignore_errors=True)


class Runs:
    """Benchmarks that run one after the other, with `variables`; their figures are gathered in `directory`."""

    def __init__(self, forked: ForkedPrograms, directory: Path, variables: Mapping[str, str] | None = None) -> None:
        self._forked, self._directory, self._variables = forked, directory, dict(variables or {})

    def run(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        """Runs a benchmark to its end, and returns all figures so far."""
        figures, log = self._directory / "figures.jsonl", self._directory / "output.log"
        environment = {**os.environ, FIGURES: str(figures), **self._variables}
        program = BENCHMARKS / f"{name}.py"
        ended = self._forked.run(program, arguments, environment, self._directory, log, seconds_max=PROGRAM_SECONDS_MAX)
        output = log.read_text(errors="replace")
        assert not ended.too_long, f"{name} did not end in {PROGRAM_SECONDS_MAX:.0f} s:\n{last_lines(output)}"
        assert ended.code == 0, f"{name} ended with {ended.code}:\n{last_lines(output)}"
        assert output.strip(), f"{name} prints nothing"
        print(f"{name}: {ended.cpu_seconds} s of a processor\n{last_lines(output)}")
        return [json.loads(line) for line in figures.read_text().splitlines()] if figures.exists() else []

    def small(self, name: str, places: Mapping[str, Path]) -> None:
        """Runs its small form, which must give figures. `places`: what its arguments name."""
        figures = self.run(name, *(argument.format(**places) for argument in PROGRAMS[name]), "--small")
        mine = [figure for figure in figures if figure["benchmark"] == name]
        assert mine, f"{name} gives no figure: call `figure` of benchmarks/figures.py"
        assert all(isinstance(figure["value"], int | float) for figure in mine)


def last_lines(output: str) -> str:
    return "\n".join(output.splitlines()[-LAST_LINES:])
