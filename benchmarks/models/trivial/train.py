"""A trial whose training costs nothing: what is measured is everything else. With CHECKPOINTS=1 it saves at each rung."""

import json
import os
import time
from pathlib import Path

import tenuto

if (settings := Path(__file__).with_name("settings.json")).exists():  # see `model_with` in benchmarks/embedded_cluster.py
    os.environ.update(json.loads(settings.read_text()))
CHECKPOINTS = os.environ.get("CHECKPOINTS") == "1"
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))

with tenuto.init() as run:
    x, steps = run.hyperparameters["x"], 0
    if run.checkpoint.latest is not None:
        with run.checkpoint.restore() as directory:
            steps = json.loads((directory / "steps.json").read_text())
    for operation in run.operations():
        while steps < operation.steps and not run.should_preempt():
            time.sleep(STEP_SECONDS)
            steps += 1
        if CHECKPOINTS:
            with run.checkpoint.save(steps) as directory:
                (directory / "steps.json").write_text(json.dumps(steps))
        if steps == operation.steps:
            run.report_validation(steps, {"loss": (x - 0.3) ** 2 + 1 / steps})
