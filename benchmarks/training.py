"""Cost of the harness per training step: the Trial API under the real training loop, against a bare loop of the same model.

    python benchmarks/training.py [--step-ms 10] [--pairs 150] [--steps 10] [--loader-workers 0]

One process, one torch thread, CPU. A perceptron whose width is chosen so that a bare step takes about --step-ms; Adam, batches
of 64, shuffled data. Blocks of --steps steps alternate: a bare block (torch's own DataLoader, zero_grad, forward, backward, step,
the loss read every 10 steps), then a block of the trial, with everything that an experiment brings: exact mode, seeding per
batch, metrics every 10 batches, a callback, the check for directives after each batch, and reports over gRPC to an agent in
another process. Bare blocks run without deterministic kernels, as a bare loop would. Both train the very same model with the
same optimizer on the same data: two models of one size differ by 2 % in speed, by where their tensors happen to lie.

wall        median over pairs of (trial / bare - 1); neighbours in time share what else the machine does
cpu         the same of the training thread's own CPU time: what is left of the difference when other processes disturb
quietest    the tenth of the blocks that took least CPU time, ours against bare: nearest to a machine with nothing else to do
per step    median of the difference in microseconds
interval    of each median: where 95 % of the medians of as many pairs drawn again with replacement lie (bootstrap, Efron 1979);
            a busy machine makes it wide, more --pairs make it narrow

The C library is told to keep freed memory, for both: else either loop pays for fresh pages by chance, up to milliseconds a step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from figures import figure, parse
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tenuto.kernel.clock import SystemClock
from tenuto.pytorch import PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from tenuto.workers.connection.agent_client import AgentClient
from tenuto.workers.connection.directives import Directive, DirectiveBox
from tenuto.workers.harness.reporter import Reporter
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.harness.training import TrainingLoop
from tenuto.workers.pytorch.trainer import PyTorchTrainer

ROOT = Path(__file__).resolve().parents[1]
FEATURES = 64
BATCH = 64
RECORDS = 6400
LOG_BATCHES = 10
WARM_UP_PAIRS = 3
RESAMPLES = 2_000
SETTINGS = {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
AGENT = """
import sys, threading
from pathlib import Path
from tests.support.agent_stand_in import WorkerBench
directory = Path(sys.argv[1])
config = {
    "name": "bench", "entrypoint": "model_def:Trial",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": int(sys.argv[2])}},
    "log_period": {"batches": int(sys.argv[3])},
}
with WorkerBench(directory, directory, config, {}) as bench:
    agent = bench.agent(int(sys.argv[2]))
    print(agent.socket, flush=True)
    sys.stdin.read()
"""


def model(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10)
    )


def records() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(RECORDS, FEATURES, generator=generator), torch.randint(0, 10, (RECORDS,), generator=generator)
    )


class Bare:
    """The training loop that a careful user would write."""

    def __init__(self, trained: nn.Module, optimizer: torch.optim.Optimizer, dataset: TensorDataset, loader_workers: int) -> None:
        self.model, self.optimizer = trained, optimizer
        self.loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=loader_workers, persistent_workers=loader_workers > 0)
        self.batches = self.endless()
        self.log: list[float] = []

    def endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def train(self, steps: int) -> None:
        kept = []
        for step in range(steps):
            inputs, labels = next(self.batches)
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(inputs), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            kept.append(loss.detach())
            if step % LOG_BATCHES == LOG_BATCHES - 1:
                self.log.append(float(torch.stack(kept).mean()))
                kept.clear()


class Counter(PyTorchCallback):
    def on_epoch_end(self, epoch_idx: int) -> None:
        self.epochs = epoch_idx


class Trial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(model(context.get_hparam("width")))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"counter": Counter()}

    def build_training_data_loader(self) -> DataLoader[Any]:
        self.dataset = records()
        return DataLoader(self.dataset, BATCH, shuffle=True, num_workers=self.context.get_hparam("loader_workers"))

    def build_validation_data_loader(self) -> DataLoader[Any]:
        return DataLoader(records(), BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": nn.functional.cross_entropy(self.model(batch[0]), batch[1])}


Times = tuple[float, float]
"""Wall and CPU seconds of a block."""


def now() -> Times:
    return time.perf_counter(), time.thread_time()


class Done(Exception):
    pass


class Alternating(PyTorchTrainer):
    """Runs a bare block whenever the loop has trained `steps` batches; ours is all the time between, the loop's included."""

    def arrange(self, bare: Bare, steps: int, pairs: int) -> None:
        self.bare, self.steps, self.pairs = bare, steps, pairs
        self.measured: list[tuple[Times, Times]] = []
        self.bare_times: Times | None = None

    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None:
        if self.batches % self.steps == 0:
            if self.bare_times is not None:
                wall, cpu = now()
                self.measured.append((self.bare_times, (wall - self.started[0], cpu - self.started[1])))
                if len(self.measured) == self.pairs:
                    raise Done
            torch.use_deterministic_algorithms(False)
            hooks, self.bare.optimizer._optimizer_step_post_hooks = self.bare.optimizer._optimizer_step_post_hooks, OrderedDict()
            before = now()
            self.bare.train(self.steps)
            after = now()
            self.bare_times = (after[0] - before[0], after[1] - before[1])
            self.bare.optimizer._optimizer_step_post_hooks = hooks  # ours
            torch.use_deterministic_algorithms(True, warn_only=True)
            self.started = now()
        super().train(until_batches, interrupted)


def choose_width(step_ms: float, loader_workers: int) -> int:
    """The narrowest of a few widths whose step takes as long, by the thread's CPU time."""
    for width in (64, 128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 3072):
        trained = model(width)
        bare = Bare(trained, torch.optim.Adam(trained.parameters()), records(), loader_workers)
        bare.train(5)
        before = now()
        bare.train(10)
        if (now()[1] - before[1]) * 100 >= step_ms * 0.97:
            return width
    return 4096


def measure(options: argparse.Namespace, directory: Path, socket: str, width: int) -> list[tuple[Times, Times]]:
    client = AgentClient(f"unix:{socket}", "stand-in-token", "1-1-1", 0, SystemClock())
    welcome = client.hello()
    assignment = welcome.assignment
    hyperparameters = {"width": width, "loader_workers": options.loader_workers}
    info = TrialInfo(1, "1-1", 1, 7, hyperparameters, assignment.config.model_dump(mode="json"))
    trainer = Alternating(Trial, info)
    trial: Any = trainer.trial
    bare = Bare(trial.model, trial.optimizer, trial.dataset, options.loader_workers)
    trainer.arrange(bare, options.steps, options.pairs + WARM_UP_PAIRS)
    reporter = Reporter(client, welcome.last_sequence)
    box = DirectiveBox(Directive(assignment.action, assignment.target_length))
    loop = TrainingLoop(assignment, trainer, box, reporter, directory / "checkpoints", SystemClock())
    try:
        loop.run()
    except Done:
        pass
    finally:
        trainer.close()
        reporter.close()
        client.close()
    return trainer.measured[WARM_UP_PAIRS:]


def quartiles(values: list[float], digits: int) -> list[float]:
    return [round(value, digits) for value in statistics.quantiles(values, n=4)]


def interval(values: list[float], digits: int) -> list[float]:
    numbers = random.Random(0)
    medians = sorted(statistics.median(numbers.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return [round(medians[int(share * RESAMPLES)], digits) for share in (0.025, 0.975)]


def quietest(pairs: list[tuple[Times, Times]], kind: int) -> float:
    count = max(1, len(pairs) // 10)
    bare, ours = (statistics.mean(sorted(pair[side][kind] for pair in pairs)[:count]) for side in (0, 1))
    return ours / bare - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--steps", type=int, default=10, help="per block; a multiple of 10")
    parser.add_argument("--loader-workers", type=int, default=0)
    options = parse(parser, step_ms=0.1, pairs=2)
    if not options.small and any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **SETTINGS})
    torch.set_num_threads(1)
    width = choose_width(options.step_ms, options.loader_workers)
    target = (options.pairs + WARM_UP_PAIRS + 1) * options.steps
    with tempfile.TemporaryDirectory() as name:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, name, str(target), str(LOG_BATCHES)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert agent.stdout is not None
        try:
            pairs = measure(options, Path(name), agent.stdout.readline().strip(), width)
        finally:
            agent.communicate()
    wall = [ours[0] / bare[0] - 1 for bare, ours in pairs]
    cpu = [ours[1] / bare[1] - 1 for bare, ours in pairs]
    for kind, (name, over) in enumerate({"wall": wall, "cpu": cpu}.items()):
        own, bare_ms = (statistics.median(pair[side][kind] for pair in pairs) / options.steps * 1e3 for side in (1, 0))
        ratio, bar = 1 + statistics.median(over), "ratio at most 1.03 at 10 ms"
        figure(f"step of a Trial, {name}", own, "ms", beside="a bare loop", of=bare_ms, ratio=ratio, bar=bar)
    print(
        json.dumps(
            {
                "model width": width,
                "bare step, ms (wall, cpu)": [
                    round(statistics.median(bare[kind] for bare, _ in pairs) / options.steps * 1e3, 2) for kind in (0, 1)
                ],
                "overhead wall, % (quartiles)": quartiles([100 * value for value in wall], 2),
                "overhead cpu, % (quartiles)": quartiles([100 * value for value in cpu], 2),
                "interval of the median, % (wall, cpu)": [interval([100 * value for value in kind], 2) for kind in (wall, cpu)],
                "overhead of the quietest tenth, % (wall, cpu)": [round(100 * quietest(pairs, kind), 2) for kind in (0, 1)],
                "per step, us (wall, cpu)": [
                    round(statistics.median(ours[kind] - bare[kind] for bare, ours in pairs) / options.steps * 1e6)
                    for kind in (0, 1)
                ],
                "pairs": len(pairs),
                "torch": torch.__version__,
                "processors": os.cpu_count(),
                "machine": platform.machine(),
                "load average": [round(value, 1) for value in os.getloadavg()],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
