"""Training on every kind of slot, on a cluster of its own: killed, resumed, compared, timed beside a bare loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.checking.findings import MachineFinding
from tenuto.client.errors import ClientError, NotCompleted, TimedOut
from tenuto.client.target import Target
from tenuto.client.waiting import Deadline
from tenuto.embedded.files import Layout
from tenuto.embedded.options import Options
from tenuto.embedded.postgres_home import HOME_VARIABLE
from tenuto.embedded.process import ServerError
from tenuto.embedded.start import start_detached
from tenuto.embedded.stop import stop_cluster
from tenuto.kernel.scratch import scratch_directory
from tenuto.kernel.settings import Settings
from tenuto.workers.agent.slots import device_variables, find_slots

if TYPE_CHECKING:
    from tenuto.client.blocking.client import Client
    from tenuto.schemas.events.agent import Slot

MODEL = Path(__file__).parent / "model"
EXPERIMENT_SECONDS_MAX = 300.0
"""Longest time of one of the short experiments: on a slow machine they take half a minute."""
BARE_LOOP_SECONDS_MAX = 300.0
AGENT_SECONDS_MAX = 60.0
KEPT_SETTINGS = (HOME_VARIABLE, "TENUTO_WORKER_CONFINED", "TENUTO_WORKER_INHERITS", "TENUTO_PRELOAD")
"""Settings that say how this machine runs processes, and not what a cluster does."""
POLL_SECONDS = 0.1
SPEED_RATIO_MIN = 0.8
"""Least share of a bare loop's speed that raises no word; below it something keeps the trial waiting."""
LOG_LINES_SHOWN = 5
METRICS = ("weights", "steps_per_second", "stall_seconds")
"""Metrics of the model that is trained, which are read here."""
GANG_SLOTS = 2
CPU_SLOTS = 2
"""CPU slots of the cluster where there is no GPU, if there are so many cores: enough for a gang."""


@dataclass(frozen=True)
class TrainingSize:
    """Amount of training in one trial."""

    batches: int
    checkpoint_batches: int
    width: int
    batch_size: int
    """Records of one batch, of all slots together."""

    @property
    def killed_at(self) -> int:
        """Batch in the middle of the run, and between two checkpoints."""
        return self.batches // 2 // self.checkpoint_batches * self.checkpoint_batches + self.checkpoint_batches // 2


def size_for(kind: str, quick: bool) -> TrainingSize:
    """Amount for a kind of slot (cpu, cuda)."""
    if kind == "cuda":
        return TrainingSize(
            batches=400 if not quick else 40, checkpoint_batches=50 if not quick else 8, width=128, batch_size=256
        )
    return TrainingSize(batches=400 if not quick else 24, checkpoint_batches=50 if not quick else 6, width=16, batch_size=64)


def slots_here() -> tuple[Slot, ...]:
    """Slots that a cluster of this machine would have; of CPU slots, CPU_SLOTS at most. Raises NoSlots."""
    found = find_slots(0)
    return found if found[0].kind == "cuda" else found[:CPU_SLOTS]


def kinds(slots: Sequence[Slot]) -> list[Slot]:
    """The first slot of each kind of device."""
    return list({(slot.kind, slot.device): slot for slot in reversed(slots)}.values())[::-1]


def trained(slots: Sequence[Slot], *, quick: bool, report: Callable[[str], None]) -> Iterator[MachineFinding]:
    """Findings of training on each kind of slot, and on a gang where there are two slots. `quick`: some batches only, whose times
    say little. `report` is told of each step."""
    try:
        with _cluster(len(slots) if slots[0].kind == "cpu" else None, report) as client:
            chosen = kinds(slots)
            agent = _agent(client) if len(chosen) > 1 else ""
            for slot in chosen:
                name = slot.device if slot.kind == "cuda" else "one slot"
                if len(chosen) > 1:
                    _use_only(client, agent, slots, slot)
                report(f"training on {name}")
                size = size_for(slot.kind, quick)
                yield from _one_slot(client, name, slot, size)
            if len(slots) >= GANG_SLOTS:
                if len(chosen) > 1:
                    _use_all(client, agent, slots)
                report(f"training on {GANG_SLOTS} slots")
                yield _killed_and_resumed(client, f"gang of {GANG_SLOTS}", size_for(slots[0].kind, quick), GANG_SLOTS)[0]
    except (ServerError, ClientError, OSError) as error:
        advice = "Its files are in the temporary directory (TMPDIR); if that is not the cause, `tenuto up` would fail alike."
        yield MachineFinding("cluster", "PROBLEM", str(error), advice)


@contextmanager
def _cluster(cpu_slots: int | None, report: Callable[[str], None]) -> Iterator[Client]:
    """A cluster of its own, with its files in a directory that is removed at the end. Raises ServerError, OSError."""
    from tenuto.client.blocking.client import Client

    with scratch_directory("check") as place:
        place.chmod(0o711)  # PostgreSQL and workers may be other accounts, which pass through it
        layout = Layout.of(place / "cluster")
        options = Options(layout, cpu_slots=cpu_slots, worker_user=Settings.from_environment().worker_user)
        try:
            url = start_detached(options, report, with_parent=True, environment=_environment())
            with Client(Target(url, layout.token.read_text().strip(), str(layout.token))) as client:
                yield client
        finally:
            _stop(layout)


def _environment() -> dict[str, str]:
    """This process's variables without settings of a cluster, such as targets of anchors, which would get another one's notes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_") or name in KEPT_SETTINGS}


def _stop(layout: Layout) -> None:
    """Raises ServerError."""
    deadline = Deadline(AGENT_SECONDS_MAX)
    while True:
        try:
            stop_cluster(layout)
        except ServerError:  # it is just starting, and has not said yet which process leads it
            if deadline.over:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return


def _agent(client: Client) -> str:
    """Id of the cluster's one agent, which may join a moment after the cluster is up. Raises ClientError."""
    deadline = Deadline(AGENT_SECONDS_MAX)
    while not (agents := client.list_agents()):
        if deadline.over:
            raise TimedOut(f"The agent of the cluster has not joined within {AGENT_SECONDS_MAX:.0f} s.")
        time.sleep(POLL_SECONDS)
    return str(agents[0]["id"])


def _use_only(client: Client, agent: str, slots: Sequence[Slot], used: Slot) -> None:
    for slot in slots:
        change = "enable" if slot is used else "disable"
        client.post(f"/agents/{agent}/{change}", {"slot_id": slot.slot_id})


def _use_all(client: Client, agent: str, slots: Sequence[Slot]) -> None:
    for slot in slots:
        client.post(f"/agents/{agent}/enable", {"slot_id": slot.slot_id})


def _one_slot(client: Client, name: str, slot: Slot, size: TrainingSize) -> Iterator[MachineFinding]:
    finding, whole = _killed_and_resumed(client, name, size, 1)
    yield finding
    if whole and whole["steps_per_second"]:
        yield _speed(name, whole["steps_per_second"], _bare_steps_per_second(slot, size))
        share = whole["stall_seconds"] * whole["steps_per_second"]
        stall = f"training waits {whole['stall_seconds'] * 1e3:.1f} ms, the time of {share:.1f} steps"
        yield MachineFinding(f"checkpoint on {name}" if slot.kind == "cuda" else "checkpoint", "ok", stall)


def _killed_and_resumed(client: Client, name: str, size: TrainingSize, slots: int) -> tuple[MachineFinding, dict[str, float]]:
    """(finding; last validation of the run that was not killed, empty if there is none)."""
    try:
        whole, _ = _last_validation(client, size, slots, killed_at=0)
        resumed, runs = _last_validation(client, size, slots, killed_at=size.killed_at)
    except (NotCompleted, TimedOut, _NoValidation) as error:
        return MachineFinding(name, "PROBLEM", str(error), "Lines above the error are the last ones of the trial's log."), {}
    return compared(name, size, whole["weights"], resumed["weights"], runs), whole


def compared(name: str, size: TrainingSize, whole: float, resumed: float, runs: int) -> MachineFinding:
    """Finding about two trials that should have ended alike. `whole`, `resumed`: digests of their weights. `runs`: number of the
    second one's runs."""
    found = f"{size.batches} batches; killed at {size.killed_at}, resumed from a checkpoint"
    if runs < 2:
        return MachineFinding(name, "PROBLEM", f"{size.batches} batches; the trial was not killed", "Tell the makers of Tenuto.")
    if whole != resumed:
        advice = "A resumed trial does not end as one that ran through: tell the makers of Tenuto, with the lines of this check."
        return MachineFinding(name, "PROBLEM", f"{found}: other weights", advice)
    return MachineFinding(name, "ok", f"{found}: the same weights, bit for bit")


class _NoValidation(Exception):
    pass


def _last_validation(client: Client, size: TrainingSize, slots: int, *, killed_at: int) -> tuple[dict[str, float], int]:
    """(metrics of the trial's last validation, number of its runs). Raises NotCompleted, TimedOut, _NoValidation."""
    experiment = client.create_experiment(_config(size, slots, killed_at), MODEL)
    try:
        experiment.wait(timeout_seconds=EXPERIMENT_SECONDS_MAX)
        trial = experiment.get_trial(1)
        found = trial.validations()
    except TimedOut:
        experiment.kill()  # its slots are needed
        raise
    except NotCompleted as error:
        lines = list(experiment.get_trial(1).logs(tail=LOG_LINES_SHOWN))
        raise NotCompleted("\n".join([*lines, str(error)]), error.experiment_id, error.state) from error
    if not len(found):
        raise _NoValidation(f"Experiment {experiment.id} ended without a validation.")
    return {name: float(found.columns[name][-1]) for name in METRICS}, int(trial.data["allocations"])


def _config(size: TrainingSize, slots: int, killed_at: int) -> dict[str, Any]:
    return {
        "name": "check",
        "entrypoint": "model_def:CheckTrial",
        "hyperparameters": {
            "global_batch_size": size.batch_size,
            "width": size.width,
            "checkpoint_batches": size.checkpoint_batches,
            "killed_at": killed_at,
        },
        "searcher": {"name": "single", "metric": "accuracy", "smaller_is_better": False, "max_length": {"batches": size.batches}},
        "resources": {"slots_per_trial": slots},
        "min_checkpoint_period": {"batches": size.checkpoint_batches},
        "max_restarts": 1,
        "reproducibility": {"experiment_seed": 1},
    }


def _bare_steps_per_second(slot: Slot, size: TrainingSize) -> float | None:
    """None: the bare loop failed."""
    command = [sys.executable, "-P", "-m", "tenuto.checking.bare_loop", *map(str, (size.width, size.batch_size, size.batches))]
    environment = {**os.environ, **device_variables((slot,)), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BARE_LOOP_SECONDS_MAX, check=True)
        return float(json.loads(done.stdout)["steps_per_second"])
    except (subprocess.SubprocessError, ValueError, KeyError):
        return None


def _speed(name: str, steps_per_second: float, bare: float | None) -> MachineFinding:
    subject = "speed" if name == "one slot" else f"speed on {name}"
    if bare is None:
        return MachineFinding(subject, "note", f"{steps_per_second:.1f} steps/s", "The bare loop beside it failed.")
    ratio = steps_per_second / bare
    found = f"{steps_per_second:.1f} steps/s, {ratio:.2f} of a bare loop ({bare:.1f})"
    if ratio < SPEED_RATIO_MIN:
        return MachineFinding(subject, "note", found, "Other work on the machine, or a slow disk, may keep it waiting.")
    return MachineFinding(subject, "ok", found)
