"""A trial without a framework, quick to start: its weights are a sum. The environment says what goes wrong, and where."""

import math
import os
import time
from pathlib import Path

import tenuto
from tenuto.workers.harness.trainer import Trainer, TrialBase


class CountingTrainer(Trainer):
    epoch_batches = 10

    def __init__(self):
        self.total, self.new = 0, []

    def train(self, until_batches, interrupted):
        while self.batches < until_batches and not interrupted():
            if str(self.batches) == os.environ.get("TEST_HOLD_AT"):
                hold()
            if str(self.batches) == os.environ.get("TEST_RAISE_AT"):
                raise ValueError("the sum is odd")
            if str(self.batches) == os.environ.get("TEST_INVALID_AT"):
                raise tenuto.InvalidHyperparameters("the model is too wide")
            if str(self.batches) == os.environ.get("TEST_EXIT_AT"):
                raise SystemExit(0)
            self.total += self.batches
            self.new.append(self.batches)
            self.batches += 1

    def take_metrics(self):
        metrics = {"mean": sum(self.new) / len(self.new)} if self.new else {}
        self.new = []
        return metrics

    def validate(self):
        return {os.environ.get("TEST_METRIC", "total"): self.total, "nan": math.nan}

    def save(self, directory):
        (directory / "sum.txt").write_text(f"{self.batches} {self.total}")

    def load(self, directory):
        self.batches, self.total = (int(word) for word in (directory / "sum.txt").read_text().split())

    def close(self):
        pass


def hold():
    """Waits until the test creates its file beside ours."""
    held = Path(os.environ["TEST_HOLD_FILE"])
    held.with_suffix(".held").touch()
    while not held.exists():
        time.sleep(0.01)


class CountingTrial(TrialBase):
    @classmethod
    def make_trainer(cls, info):
        return CountingTrainer()


class Unfinished(TrialBase):
    pass


not_a_trial = 3
