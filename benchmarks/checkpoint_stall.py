"""Time for which checkpoints stop the training thread: `python benchmarks/checkpoint_stall.py [--rounds 6]`.

A real PyTorch trial (a perceptron with Adam on the CPU) is trained by the product's trainer, and saved by its checkpoint writer
into a shared directory on this disk, while training goes on. Turn by turn with it, training waits for the same checkpoint, as
with `checkpoint_storage.async_save: false`, and the training thread saves the same state itself, with `torch.save` into a file on
the same disk: with fsync, which is as durable as ours, and without.

stall      what the training thread waits for: in the call that takes the checkpoint (the weights' copy), and in the optimizer's
           next step (until its state's copy is done)
first      the stall of the first checkpoint of the process, whose memory was made in the background
following  the batch after, against the median batch: what writing in the background takes from training on this machine
cpu        processor time of all threads during the call, and of torch.save without fsync: less disturbed by other processes

Then the same trial with less state trains with one checkpoint in 20 batches, turn by turn with none: beside training
(`when_busy: wait` and `skip`), and as before, while training waits. Each checkpoint is begun before its 20 batches, so that these
and the writing take their time from one another. Turns are short and many, as other processes on the machine disturb each of
them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from figures import figure, parse
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tenuto.pytorch import PyTorchTrial, PyTorchTrialContext
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.storage import CheckpointStorage
from tenuto.workers.checkpoints.location import Place
from tenuto.workers.checkpoints.writer import CheckpointWriter, Position
from tenuto.workers.harness.background_saves import BackgroundSaves
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.snapshots import Copier
from tenuto.workers.pytorch.trainer import PyTorchTrainer

LAYERS = 12
BATCH = 16
PERIOD = 20
"""Batches between two checkpoints of the second part."""


class Trial(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.width = context.get_hparam("width")
        self.model = context.wrap_model(nn.Sequential(*[nn.Linear(self.width, self.width) for _ in range(LAYERS)]))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

    def build_training_data_loader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.randn(64 * BATCH, self.width)), BATCH, shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.model(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": self.model(batch[0]).square().mean()}


Times = tuple[float, float, float]
"""Wall seconds, the training thread's processor seconds, the process's."""


def timed(work: Callable[[], object]) -> Times:
    before = time.perf_counter(), time.thread_time(), time.process_time()
    work()
    return time.perf_counter() - before[0], time.thread_time() - before[1], time.process_time() - before[2]


class Bench:
    def __init__(self, directory: Path, state_mb: int) -> None:
        self.directory = directory
        width = int((state_mb * 1e6 / (12 * LAYERS)) ** 0.5)  # weights and two moments of 4 bytes
        config = ExperimentConfig.model_validate(
            {
                "name": "bench",
                "entrypoint": "bench:Trial",
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1_000_000}},
                "min_checkpoint_period": {"batches": 10},
            }
        )
        info = TrialInfo(1, "1-1", 1, 7, {"width": width}, config.model_dump(mode="json"))
        self.trainer = PyTorchTrainer(Trial, info)
        assignment = Assignment(
            allocation_id="1-1-1", trial_id="1-1", trial_number=1, experiment_id=1, config=config, context_hash="",
            hyperparameters={}, trial_seed=1, experiment_seed=1, slots=(), checkpoint=None, target_length=1_000_000,
        )  # fmt: skip
        self.writer = CheckpointWriter(assignment, Place(assignment, directory / "checkpoints"), lambda _: None, self.say)

    def watch_steps(self) -> None:
        wait_for_pieces = Copier.wait_for_pieces

        def timed_wait(copier: Copier) -> None:
            self.waited += timed(lambda: wait_for_pieces(copier))[0]

        Copier.wait_for_pieces = timed_wait  # type: ignore[method-assign]

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def train(self, batches: int) -> list[float]:
        """Wall seconds of each."""
        until = self.trainer.batches
        return [timed(lambda goal=until + 1 + n: self.trainer.train(goal, lambda: False))[0] for n in range(batches)]  # type: ignore[misc]

    def ours(self) -> tuple[Times, float, float]:
        """(the call, seconds that the next step waited, the next batch's seconds)"""
        batches = self.trainer.batches
        position = Position(f"1-1-1-{batches}", batches, batches)
        self.waited = 0.0
        call = timed(lambda: self.writer.save(position, self.trainer.snapshot))
        [following] = self.train(1)
        self.writer.wait()
        [checkpoint_id] = self.writer.take_stored()
        assert checkpoint_id == position.checkpoint_id
        self.clear()
        return call, self.waited, following

    def waiting(self) -> Times:
        """Training waits until the checkpoint is stored."""
        batches = self.trainer.batches
        position = Position(f"1-1-2-{batches}", batches, batches)
        found = timed(lambda: self.writer.save_now(position, lambda: self.trainer.save))
        self.clear()
        return found

    def clear(self) -> None:
        self.writer.wait()
        self.writer.take_stored()
        shutil.rmtree(self.directory / "checkpoints", ignore_errors=True)
        self.writer._base = None

    def series(self, way: str, batches: int) -> tuple[Times, int]:
        """Times of so many batches with one checkpoint in PERIOD, and the number of checkpoints stored in the end."""
        storage = CheckpointStorage(async_save=way != "waiting", when_busy="skip" if way == "skip" else "wait")
        saves = BackgroundSaves(storage, lambda _: None)

        def save() -> None:
            position = Position(f"1-1-3-{self.trainer.batches}", self.trainer.batches, self.trainer.batches)
            match saves.way(self.trainer, self.writer, optional=True):
                case "copy":
                    self.writer.save(position, self.trainer.snapshot)
                case "wait":
                    self.writer.save_now(position, lambda: self.trainer.save)

        def work() -> None:
            for _ in range(max(1, batches // PERIOD)):
                if way != "none":
                    save()
                self.trainer.train(self.trainer.batches + PERIOD, lambda: False)

        times = timed(work)
        self.writer.wait()
        stored = len(self.writer.take_stored())
        self.clear()
        return times, stored

    def torch_save(self, sync: bool) -> Times:
        model, optimizer = self.trainer.context._models[0], self.trainer.context._optimizers[0]
        path = self.directory / "blocking.pt"

        def save() -> None:
            with path.open("wb") as file:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())

        found = timed(save)
        path.unlink()
        return found

    @property
    def state_mb(self) -> float:
        return sum(parameter.nbytes for parameter in self.trainer.context._models[0].parameters()) * 3 / 1e6


def measure(bench: Bench, rounds: int) -> dict[str, Any]:
    bench.watch_steps()
    steps = bench.train(4)
    (first, *_), first_wait, _ = bench.ours()
    calls: list[Times] = []
    stalls, followings, before, durable, plain = [], [], [], [], []
    for _ in range(rounds):
        steps += bench.train(2)
        call, waited, following = bench.ours()
        calls.append(call)
        stalls.append(call[0] + waited)
        followings.append(following)
        before.append(bench.waiting())
        durable.append(bench.torch_save(sync=True))
        plain.append(bench.torch_save(sync=False))

    def ms(values: list[float]) -> float:
        return round(statistics.median(values) * 1e3, 1)

    def percent(theirs: list[Times]) -> float:
        return round(statistics.median(mine / other[0] for mine, other in zip(stalls, theirs, strict=True)) * 100, 1)

    return {
        "state, MB": round(bench.state_mb),
        "stall, ms": ms(stalls),
        "of it in the call, ms": ms([call[0] for call in calls]),
        "first stall, ms": round((first + first_wait) * 1e3, 1),
        "training waits (async_save: false), ms": ms([item[0] for item in before]),
        "torch.save with fsync, ms": ms([item[0] for item in durable]),
        "torch.save without, ms": ms([item[0] for item in plain]),
        "stall, % of training waits": percent(before),
        "stall, % of torch.save with fsync": percent(durable),
        "stall, % of torch.save without": percent(plain),
        "cpu of the call, ms": ms([call[2] for call in calls]),
        "cpu of torch.save without fsync, ms": ms([item[2] for item in plain]),
        "batch, ms": ms(steps),
        "following batch, ms": ms(followings),
        "rounds": rounds,
        "processors": os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "load average": [round(value, 1) for value in os.getloadavg()],
    }


WAYS = ("none", "wait", "skip", "waiting")
NAMES = {"wait": "beside training, when_busy: wait", "skip": "beside training, when_busy: skip", "waiting": "training waits"}


def throughput(bench: Bench, turns: int, batches: int) -> dict[str, dict[str, float]]:
    """Batches per second without a checkpoint over those with one in PERIOD, by the way of saving: medians of ratios of turns."""
    bench.series("wait", 2 * PERIOD)  # memory, files
    times: dict[str, list[Times]] = {way: [] for way in WAYS}
    stored: dict[str, int] = {}
    for turn in range(turns):
        for way in WAYS if turn % 2 else reversed(WAYS):
            found, stored[way] = bench.series(way, batches)
            times[way].append(found)

    def ratio(way: str, kind: int) -> float:
        return statistics.median(none[kind] / own[kind] for none, own in zip(times["none"], times[way], strict=True))

    def batch(way: str) -> float:
        return round(statistics.median(item[0] for item in times[way]) / batches * 1e3, 1)

    return {
        name: {
            "throughput, of none": round(ratio(way, 0), 3),
            "the same by the training thread's processor time": round(ratio(way, 1), 3),
            "batch, ms": batch(way),
            "batch without checkpoints, ms": batch("none"),
            "checkpoints stored": stored[way],
        }
        for way, name in NAMES.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state-mb", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--throughput-mb", type=int, default=100, help="state in the second part")
    parser.add_argument("--batches", type=int, default=40, help="of each turn in the second part")
    parser.add_argument("--turns", type=int, default=20, help="of each way in the second part")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk that is measured (default: here)")
    options = parse(parser, state_mb=4, rounds=1, throughput_mb=1, batches=20, turns=1)
    with tempfile.TemporaryDirectory(prefix=".stall-", dir=options.directory) as name:
        found = measure(Bench(Path(name), options.state_mb), options.rounds)
    print(json.dumps(found, indent=1))
    peers = (
        ("training waits for it", "training waits (async_save: false), ms", "stall, % of training waits"),
        ("torch.save with fsync", "torch.save with fsync, ms", "stall, % of torch.save with fsync"),
        ("torch.save without", "torch.save without, ms", "stall, % of torch.save without"),
    )
    for peer, theirs, percent in peers:
        ratio, bar = found[percent] / 100, "ratio at most 0.1"
        figure("stall of the training thread", found["stall, ms"], "ms", beside=peer, of=found[theirs], ratio=ratio, bar=bar)
    with tempfile.TemporaryDirectory(prefix=".stall-", dir=options.directory) as name:
        series = throughput(Bench(Path(name), options.throughput_mb), options.turns, options.batches)
    print(json.dumps(series, indent=1))
    for way, row in series.items():
        ratio, bar = row["throughput, of none"], "" if way == NAMES["waiting"] else "ratio at least 0.95"
        name, none = f"batches with one checkpoint in {PERIOD}, {way}", 1e3 / row["batch without checkpoints, ms"]
        figure(name, 1e3 / row["batch, ms"], "batches/s", beside="without checkpoints", of=none, ratio=ratio, bar=bar)


if __name__ == "__main__":
    main()
